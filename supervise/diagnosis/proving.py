"""Proves signatures on their own samples, and that no pattern takes more than linear effort on hostile text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import chain, pairwise
from typing import NamedTuple, TypeVar

from supervise.diagnosis.matching import OPTIONAL, QUIET, Matcher, fields
from supervise.diagnosis.prefixes import parse
from supervise.model.diagnosis import Line, Signature, SignatureSet, Trap
from supervise.profiles.automaton import LONGEST
from supervise.profiles.own import unfit
from supervise.profiles.signatures import FIGURES
from supervise.profiles.structure import trouble

Clock = Callable[[], float]
Entry = Signature | Trap
_Said = Iterator[tuple[str, str]]
_E = TypeVar("_E", bound=Entry)

Limit = Callable[[], AbstractContextManager[object]]

_BOUND = "give repetitions in the pattern a bound, and let no two of them take the same text"

# What explodes is seen in few repetitions: with many it could not be waited for. No polynomial grows like that from
# step to step, and what grows with the cube is seen when their number doubles.
_FEW = (4, 8, 12, 16, 20, 24)
_STEP_AT_MOST = 3.0
_DOUBLED = (10, 20, 40, 80, 160)
_DOUBLING_AT_MOST = 5.5
# Effort that grows with the length doubles when the text does; with its square it becomes four times as much. A bounded
# repetition looks like a square, too, until its bound is passed.
_MANY = (128, 256, 512, 1024, 2048, 4096, 8192, LONGEST)
_LINEAR_AT_MOST = 3.0
_STREAK = 3
# From here on a smaller growth means that no square is in it.
_ENOUGH = 4096
_SUSPICIOUS = 2.5
_HOPELESS = 200.0
_REPEATS = 3
_FRAGMENTS = (
    "a", " ", "1.", ": ", "x: ", "(", "[a] ", "'", "a b ", "a/b.so: ",
)  # fmt: skip


class Fault(NamedTuple):
    """What is wrong with one entry of one file, and what to do about it."""

    file: str
    id: str
    what: str
    todo: str

    def __str__(self) -> str:
        return " ".join(f"{self.file}: {self.id}: {self.what}; {self.todo}".split())


class TooLongError(Exception):
    """An entry could not be proven in the time that it may take."""


def prove(
    file: str, entries: SignatureSet, everything: SignatureSet, clock: Clock, limit: Limit = nullcontext
) -> list[Fault]:
    """Prove all entries of one file.

    A pattern that is unsafe by its structure is not searched with.

    Args:
        file: its name, for faults.
        entries: what it holds.
        everything: all that is known, the file's own entries among it: others must not take its samples.
        clock: tells the time in seconds; only proportions of what it tells count.
        limit: makes what bounds the proof of one entry, raising `TooLongError` within it.

    Returns:
        The faults, in the order of the file.
    """
    everything = SignatureSet(_safe(everything.signatures), _safe(everything.traps))
    matcher = Matcher(everything)
    faults: list[Fault] = []
    listed: tuple[Entry, ...] = (*entries.signatures, *entries.traps)
    for entry in listed:
        try:
            with limit():
                faults.extend(
                    Fault(file, entry.id, what, todo) for what, todo in _said(entry, matcher, everything, clock)
                )
        except TooLongError:
            faults.append(Fault(file, entry.id, "effort explodes: the proof did not end in time", _BOUND))
    return faults


def _safe(entries: Iterable[_E]) -> tuple[_E, ...]:
    return tuple(entry for entry in entries if trouble(entry.pattern) is None)


def _said(entry: Entry, matcher: Matcher, everything: SignatureSet, clock: Clock) -> _Said:
    if found := unfit(entry):
        what, allowed = found
        yield what, f"allowed: {allowed}"
        return
    yield from chain(_of_samples(entry, matcher, everything), _of_templates(entry), _of_effort(entry, clock))


# --- samples ----------------------------------------------------------------------------------------------------------


def _of_samples(entry: Entry, matcher: Matcher, everything: SignatureSet) -> _Said:
    for number, sample in enumerate(entry.match, 1):
        line = parse(sample, 1)
        if not any(literal in line.text for literal in entry.literals):
            yield f"match sample {number} holds none of the literals", "add one that each matching line holds"
        elif not entry.pattern.search(line.text):
            yield f"match sample {number} does not match the pattern", f"the pattern sees {_quoted(line.text)}"
        elif other := _taken(entry, line, matcher, everything):
            yield f"match sample {number} is {other}", "use a longer literal, or a narrower pattern over there"
    for number, sample in enumerate(entry.nomatch, 1):
        if _found(entry, parse(sample, 1), matcher):
            yield f"nomatch sample {number} matches", "narrow the pattern"


def _found(entry: Entry, line: Line, matcher: Matcher) -> bool:
    if isinstance(entry, Trap):
        held = any(literal in line.text for literal in entry.literals)
        return held and entry.pattern.search(line.text) is not None
    match = matcher.find(line)
    return match is not None and match.signature.id == entry.id


def _taken(entry: Entry, line: Line, matcher: Matcher, everything: SignatureSet) -> str | None:
    """Who gets a line instead of its own entry."""
    if isinstance(entry, Trap) or _found(entry, line, matcher):
        return None
    hiding = next((trap.id for trap in everything.traps if _found(trap, line, matcher)), None)
    if hiding:
        return f"hidden by the trap {hiding}"
    match = matcher.find(line)
    if match is None:
        return f"passed over because it is logged as {line.level if line.level in QUIET else 'information'}"
    return f"found as {match.signature.id}"


# --- templates --------------------------------------------------------------------------------------------------------


def _of_templates(entry: Entry) -> _Said:
    if isinstance(entry, Trap):
        return
    shown = (entry.meaning, *entry.advice, entry.constraint or "")
    used = {name for text in shown for name in fields(text)}
    captured = {name for sample in entry.match for name in _captured(entry.pattern, sample)}
    for name in sorted(used & entry.pattern.groupindex.keys() - captured):
        yield f"no match sample gives {{{name}}} a value", "add a sample that does"
    computed = {given for names in FIGURES.values() for given in names} - entry.pattern.groupindex.keys()
    for name in sorted(computed & set(fields(OPTIONAL.sub("", entry.meaning)))):
        yield f"the meaning depends on {{{name}}}, which may be unknown", "put that stretch in [brackets]"


def _captured(pattern: re.Pattern[str], sample: str) -> Iterable[str]:
    found = pattern.search(parse(sample, 1).text)
    return [name for name, value in found.groupdict().items() if value is not None] if found else []


# --- effort -----------------------------------------------------------------------------------------------------------


def _of_effort(entry: Entry, clock: Clock) -> _Said:
    for before, fragment, after in _hostile(entry):
        if is_slow(entry.pattern, before, fragment, after, clock):
            place = f"after {_quoted(before)}" if before else f"before {_quoted(after)}"
            yield f"effort explodes on {fragment!r} repeated {place}", _BOUND
            return


def _hostile(entry: Entry) -> Iterator[tuple[str, str, str]]:
    """Beginnings, what is repeated, and ends: whatever can stand around a literal, and samples broken off."""
    sample = parse(entry.match[0], 1).text
    for fragment in (*_FRAGMENTS, entry.literals[0]):
        yield "", fragment, entry.literals[0]
        yield sample[: len(sample) * 2 // 3], fragment, ""
    for literal in entry.literals:
        yield literal, "a ", ""
    yield "", sample, ""


def is_slow(pattern: re.Pattern[str], before: str, fragment: str, after: str, clock: Clock) -> bool:
    """Whether a search takes more than linear effort.

    Each length is measured against half of it, from short to long: what explodes is left before it cannot be waited
    for. What looks slow is measured again, because anything may have interrupted the first time.

    Args:
        pattern: what is searched.
        before: what the text begins with.
        fragment: what is repeated up to `LONGEST` characters.
        after: what it ends with.
        clock: tells the time in seconds.
    """
    few, doubled, many = (
        [_text(before, fragment, after, size) for size in sizes]
        for sizes in ([n * len(fragment) for n in _FEW], [n * len(fragment) for n in _DOUBLED], _MANY)
    )
    return (
        _keeps_growing(pattern, few, clock, _STEP_AT_MOST, 3)
        or _keeps_growing(pattern, doubled, clock, _DOUBLING_AT_MOST, 2)
        or _keeps_growing(pattern, many, clock, _LINEAR_AT_MOST, _STREAK)
    )


def _keeps_growing(pattern: re.Pattern[str], texts: list[str], clock: Clock, at_most: float, streak: int) -> bool:
    """Whether the effort for longer and longer texts grows more than `at_most` so many times in a row."""
    steep = 0
    for shorter, longer in pairwise(texts):
        grown = _growth(pattern, shorter, longer, clock)
        steep = steep + 1 if grown > at_most else 0
        if steep >= streak:
            return True
        if len(longer) >= _ENOUGH and grown < _SUSPICIOUS:
            return False
    return False


def _growth(pattern: re.Pattern[str], shorter: str, longer: str, clock: Clock) -> float:
    # Of short texts an interruption weighs most, and repetitions cost least.
    times = _REPEATS if len(longer) < _MANY[0] else 1
    before, now = _effort(pattern, shorter, clock, times), _effort(pattern, longer, clock, times)
    if before * _LINEAR_AT_MOST < now <= before * _HOPELESS:
        before, now = _effort(pattern, shorter, clock, _REPEATS), _effort(pattern, longer, clock, _REPEATS)
    return now / before if before else 1.0


def _text(before: str, fragment: str, after: str, size: int) -> str:
    return before + (fragment * (size // len(fragment) + 1))[:size] + after


def _effort(pattern: re.Pattern[str], text: str, clock: Clock, times: int) -> float:
    least = float("inf")
    for _ in range(times):
        began = clock()
        pattern.search(text)
        least = min(least, clock() - began)
    return least


def _quoted(text: str, width: int = 60) -> str:
    return repr(text if len(text) <= width else text[: width - 1] + "…")


def count(sets: Sequence[SignatureSet]) -> tuple[int, int, int]:
    """Count signatures, traps and samples of sets."""
    signatures = [each for listed in sets for each in listed.signatures]
    traps = [each for listed in sets for each in listed.traps]
    entries: list[Entry] = [*signatures, *traps]
    samples = sum(len(entry.match) + len(entry.nomatch) for entry in entries)
    return len(signatures), len(traps), samples
