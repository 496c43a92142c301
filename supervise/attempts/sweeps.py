"""The state of a sweep, in its run's directory: what has been tried, so that the same command line can go on."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from supervise.attempts.store import VERSION, Run
from supervise.host import files
from supervise.model.sweep import Result

NAME = "sweep.json"
"""In the directory of its run."""

_NUMBERS = ("ready_s", "ttft_s", "seconds")
_MOST_S = 2.0**40


class State(NamedTuple):
    """What is known of a sweep: `key` tells it from every other one, `finished` that nothing of it is left to do."""

    key: str
    results: tuple[Result, ...] = ()
    finished: bool = False


def read(run: Run) -> State | None:
    """The last sweep of a run, None if there is none or what is written of it is damaged."""
    said = files.read_json(os.path.join(run.path, NAME)) or {}
    key, results, finished = said.get("key"), said.get("results"), said.get("finished")
    if not isinstance(key, str) or not isinstance(results, list) or not isinstance(finished, bool):
        return None
    sound = [_result(each) for each in results]
    return State(key, tuple(each for each in sound if each), finished) if all(sound) else None


def write(run: Run, state: State) -> None:
    """Write it down, atomically.

    Raises:
        OSError: it could not be written.
    """
    said = {"version": VERSION, **state._asdict(), "results": [result._asdict() for result in state.results]}
    files.write_json(os.path.join(run.path, NAME), said)


def exists(run: Run) -> bool:
    """Whether anything stands where the last sweep would."""
    return os.path.lexists(os.path.join(run.path, NAME))


@contextmanager
def alone(run: Run) -> Iterator[bool]:
    """Whether nobody else sweeps this run, for as long as this lasts.

    Raises:
        OSError: the lock file cannot be opened.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(os.path.join(run.path, "sweep.lock"), flags, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    else:
        yield True
    finally:
        os.close(fd)


def _result(said: object) -> Result | None:
    """A result, None where any of its values is not of its kind."""
    if not isinstance(said, dict) or said.keys() != set(Result._fields):
        return None
    values, advice = said["values"], said["advice"]
    numbers = all(_number(said[name]) for name in _NUMBERS) and said["seconds"] is not None
    attempt = said["attempt"] is None or (type(said["attempt"]) is int and 0 < said["attempt"] < 10**9)
    if not (_texts(values) and _texts(advice) and numbers and attempt and _rest(said)):
        return None
    return Result(**{**said, "values": tuple(values), "advice": tuple(advice)})


def _rest(said: dict[str, Any]) -> bool:
    optional = ("outcome", "cause", "failure", "signature", "fingerprint")
    text = isinstance(said["why"], str) and said["verdict"] in ("pass", "fail", "skip", "abandoned")
    return text and all(said[name] is None or isinstance(said[name], str) for name in optional)


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _number(value: object) -> bool:
    return value is None or (type(value) in (int, float) and 0 <= value < _MOST_S)  # type: ignore[operator]
