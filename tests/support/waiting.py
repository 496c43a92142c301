"""Waiting on monotonic time for what has no event to wait for, and saying what was seen when it never came."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from supervise.host import procfs, signals
from supervise.model.process import ProcessId

DEADLINE_S = 20.0
_POLL_S = 0.01

T = TypeVar("T")


def wait_until(
    predicate: Callable[[], T], deadline_s: float = DEADLINE_S, *, failure: Callable[[], object] = lambda: ""
) -> T:
    """Poll until the predicate's value is true, and return it; AssertionError with `failure()` past the deadline."""
    deadline = time.monotonic() + deadline_s
    while not (value := predicate()):
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {deadline_s} s: {failure() or predicate}")
        time.sleep(_POLL_S)
    return value


def alive(target: int | ProcessId) -> bool:
    """Whether a process runs; a zombie does not. A bare pid is only good while nothing can have reused it."""
    identity = target if isinstance(target, ProcessId) else procfs.identify(target)
    return identity is not None and signals.alive(identity)


def survivors(targets: Iterable[ProcessId]) -> list[str]:
    """Those that still run, described."""
    return [describe(target) for target in targets if signals.alive(target)]


def wait_gone(targets: Iterable[ProcessId], deadline_s: float = DEADLINE_S) -> None:
    """Wait until none of them runs."""
    targets = list(targets)
    wait_until(lambda: not survivors(targets), deadline_s, failure=lambda: f"survivors: {survivors(targets)}")


def describe(target: ProcessId) -> str:
    """One line about a process, for failure messages."""
    process = procfs.read(target.pid)
    if process is None:
        return f"{target.pid} (gone)"
    return f"{target.pid} {process.state} ppid {process.ppid} sid {process.sid} {' '.join(process.argv or ())[:200]}"
