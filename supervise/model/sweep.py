"""A sweep: one trial for each value of a flag or a variable, and which of them need not be made. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import combinations, product
from typing import NamedTuple

MOST = 1000
"""Trials in one sweep: whoever wants more has made a mistake."""

_VARIABLE = "env:"
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FLAG = re.compile(r"-?-?[A-Za-z][A-Za-z0-9_.-]*")
_OPENING, _CLOSING = "[{(", "]})"
_OURS = "SUPERVISE_"

Point = tuple[str, ...]


class SweepError(ValueError):
    """What was asked for is no sweep; one clear line."""


class Axis(NamedTuple):
    """What is varied: a flag, with its dashes, or a variable of the environment; and its values, in order."""

    name: str
    values: tuple[str, ...]
    variable: bool = False


class Result(NamedTuple):
    """What a trial came to. `verdict` is `pass`, `fail`, `skip` or `abandoned`; the rest as in `Course`.

    `seconds` is how long all of it took, from the slate to the verified end.
    """

    values: Point
    verdict: str
    why: str
    attempt: int | None = None
    outcome: str | None = None
    cause: str | None = None
    failure: str | None = None
    signature: str | None = None
    fingerprint: str | None = None
    advice: tuple[str, ...] = ()
    ready_s: float | None = None
    ttft_s: float | None = None
    seconds: float = 0.0


def axes(given: Sequence[str]) -> tuple[Axis, ...]:
    """Read what was given to --set.

    Args:
        given: `FLAG=a,b,c` and `env:NAME=a,b`; a comma within brackets, of JSON perhaps, parts nothing. The same name
            again adds values.

    Raises:
        SweepError: one of them is none.
    """
    found: dict[tuple[bool, str], tuple[str, ...]] = {}
    for each in given:
        name, equals, values = each.partition("=")
        key = _named(name, each)
        if not equals or not values:
            raise SweepError(f"--set {each!r}: use FLAG=a,b,c or env:NAME=a,b,c")
        found[key] = tuple(dict.fromkeys((*found.get(key, ()), *_parted(values))))
    swept = tuple(Axis(name, values, variable) for (variable, name), values in found.items())
    count = 1
    for axis in swept:
        count *= len(axis.values)
    if count > MOST:
        raise SweepError(f"--set: these are {count} attempts, at most {MOST} are made")
    return swept


def points(swept: Sequence[Axis]) -> list[Point]:
    """All combinations of values, the last axis varies fastest."""
    return list(product(*(axis.values for axis in swept)))


def told(swept: Sequence[Axis], point: Point) -> str:
    """A point as people read it."""
    return " ".join(f"{axis.name}={value}" for axis, value in zip(swept, point, strict=True))


def pointless(point: Point, results: Sequence[Result], names: Sequence[frozenset[str]]) -> str | None:
    """Why a trial cannot come to anything else than those before it, None if it may.

    It takes two. If what differs between two trials that failed deterministically of the very same cause, down to its
    figures, was but some of the axes, and neither the cause nor the advice speaks of any of them, these axes do not
    matter where the others are as they were there. One failure alone proves nothing: that it says nothing of the value
    is no proof that another value would not have prevented it.

    Args:
        point: of the trial.
        results: of those before it.
        names: for each axis, all names of its flag or variable.
    """
    failed = [result for result in results if result.verdict == "fail" and result.failure == "deterministic"]
    for one, other in combinations(failed, 2):
        if one.fingerprint is None or (one.fingerprint, one.cause) != (other.fingerprint, other.cause):
            continue
        varied = {at for at, pair in enumerate(zip(one.values, other.values, strict=True)) if pair[0] != pair[1]}
        same = all(point[at] == one.values[at] for at in range(len(point)) if at not in varied)
        spoken = any(_speaks(result, names[at]) for at in varied for result in (one, other))
        if varied and same and not spoken:
            return f"it failed twice of the same cause, which does not depend on it: {one.cause}"
    return None


def conclusion(results: Sequence[Result], *, whole: bool = True) -> int:
    """The exit status: 0 if one has passed, 1 if none has, 125 if nothing could be judged.

    Args:
        results: of the trials.
        whole: whether nothing was left out for want of a launch: else nobody knows that none would have passed.
    """
    verdicts = {result.verdict for result in results}
    return 0 if "pass" in verdicts else 1 if "fail" in verdicts and whole else 125


def largest(swept: Sequence[Axis], results: Sequence[Result]) -> str | None:
    """The largest value that has passed, of one axis that has numbers; None if there is no such thing."""
    if len(swept) != 1:
        return None
    try:
        numbers = {value: float(value) for value in swept[0].values}
    except ValueError:
        return None
    passed = [result.values[0] for result in results if result.verdict == "pass"]
    return max(passed, key=numbers.__getitem__, default=None)


def _named(name: str, given: str) -> tuple[bool, str]:
    if name.startswith(_VARIABLE):
        variable = name.removeprefix(_VARIABLE)
        if not _VARIABLE_NAME.fullmatch(variable) or variable.startswith(_OURS):
            raise SweepError(f"--set {given!r}: {variable!r} is no variable that can be set")
        return True, variable
    if not _FLAG.fullmatch(name):
        raise SweepError(f"--set {given!r}: {name!r} is no flag")
    return False, name if name.startswith("-") else f"--{name}"


def _parted(values: str) -> Iterator[str]:
    depth, begin = 0, 0
    for at, char in enumerate(values):
        depth += (char in _OPENING) - (char in _CLOSING)
        if char == "," and depth <= 0:
            yield values[begin:at]
            begin = at + 1
    yield values[begin:]


def _speaks(result: Result, names: frozenset[str]) -> bool:
    text = _plain(" ".join((result.cause or "", result.why, *result.advice)))
    return any(re.search(rf"(?<![a-z0-9]){re.escape(_plain(name))}(?![a-z0-9])", text) for name in names)


def _plain(text: str) -> str:
    """Without what flags, attributes and words differ in: `--max-num-seqs`, `max_num_seqs`, `max num seqs`."""
    return " ".join(re.sub(r"[-_\s]+", " ", text).lower().split())
