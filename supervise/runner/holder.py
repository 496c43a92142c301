"""One group per run: taking its lock, and saying who holds it."""

from __future__ import annotations

import signal
import time
from typing import Any

from supervise.attempts.roles import living
from supervise.attempts.store import Run
from supervise.group.ending import Deadlines
from supervise.host import procfs, signals
from supervise.model.process import ProcessId
from supervise.report.console import Console

__all__ = ["living", "take_lock"]

_SLACK_S = 10.0
_LOOK_EVERY_S = 0.1


def take_lock(run: Run, deadlines: Deadlines, console: Console) -> int | None:
    """Take the run's lock; wait for a keeper that is still ending the group of a dead supervise.

    Args:
        run: the run.
        deadlines: of its stop path, which bound the wait.
        console: where it is said who holds the lock.

    Returns:
        The lock's descriptor, None if the run is live.

    Raises:
        StoreError: the lock file cannot be opened.
    """
    lock = run.lock()
    if lock is not None:
        return lock
    until = time.monotonic() + deadlines.total_s + _SLACK_S
    told = False
    while time.monotonic() < until:
        state = run.read_state()
        if supervisor := living(state, "supervisor"):
            _refuse(run, supervisor, console)
            return None
        if not told:
            console.waiting(f"run {run.name}: its keeper is still ending the group of a supervise that was killed")
            told = True
        _continue_stopped(state)
        time.sleep(_LOOK_EVERY_S)
        lock = run.lock()
        if lock is not None:
            return lock
    console.line("slate", f"{run.name}: the lock is held, and not by a supervise that can be seen from here")
    console.note(f"find the holder with: fuser -v {run.path}/lock")
    return None


def _continue_stopped(state: dict[str, Any] | None) -> None:
    """A keeper or guard that somebody stopped (Ctrl-Z reaches them not, `kill -STOP` does) would never let go."""
    for role in ("keeper", "guard"):
        helper = living(state, role)
        process = procfs.read(helper.pid, cmdline=False, environ=False) if helper else None
        if helper is not None and process is not None and process.state == "T":
            signals.send(helper, signal.SIGCONT)


def _refuse(run: Run, supervisor: ProcessId, console: Console) -> None:
    console.line("slate", f"{run.name}: 1 finding")
    console.note(f"BLOCKED run {run.name} is live: supervise {supervisor} holds it")
    console.note(f"        supervise stop {run.name}, or choose another name with --name")
