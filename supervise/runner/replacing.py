"""`--replace`: the supervise that holds a run is ended by its own stop path, then the run is ours."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

from supervise.attempts import locking
from supervise.attempts.roles import living
from supervise.attempts.store import Run
from supervise.group.ending import Deadlines
from supervise.host import procfs, signals
from supervise.model.process import ProcessId
from supervise.report.console import Console
from supervise.runner.asking import RefusedError, ask, ask_to_stop, suspended
from supervise.runner.holder import condition, continue_stopped, refuse, take_lock
from supervise.text import duration

if TYPE_CHECKING:
    from supervise.attempts.store import Store
    from supervise.runner.plan import Plan

_AT_ONCE_S = 1.0
_SLACK_S = 15.0
_LOOK_EVERY_S = 0.1
_CLAIM = "replace.lock"


def take(planned: Plan, store: Store, run: Run, console: Console) -> int | None:
    """Take the lock of a run; a supervise that has it is ended if the launch can follow, as far as that can be told.

    Args:
        planned: the launch.
        store: all runs.
        run: the run.
        console: where it is said what happens.

    Returns:
        The lock's descriptor; None, with lines that say why, if the run cannot be had.

    Raises:
        StoreError, OSError: the run's directory cannot be used.
        TellingError, TierError: what was asked for cannot be had; nothing was touched.
    """
    until, supervisor = time.monotonic() + _AT_ONCE_S, None
    # One that has just begun has not written down yet who it is.
    while (lock := run.lock()) is None and (supervisor := living(run.read_state(), "supervisor")) is None:
        if time.monotonic() >= until:
            return take_lock(run, planned.deadlines, console)
        time.sleep(_LOOK_EVERY_S)
    if lock is not None or supervisor is None:
        return lock
    if not may_replace(planned, store, run, supervisor, console):
        return None
    return take_over(run, supervisor, planned.deadlines, console)


def may_replace(planned: Plan, store: Store, run: Run, supervisor: ProcessId, console: Console) -> bool:
    """Look whether a supervise may be ended for this launch; nothing is touched, and why not is said.

    Args:
        planned: the launch.
        store: all runs.
        run: the run.
        supervisor: who has it.
        console: where it is said.

    Raises:
        TellingError, TierError: what was asked for cannot be had.
    """
    if _begun_since(supervisor):
        console.line("slate", f"{run.name}: 1 finding")
        console.note(f"BLOCKED run {run.name} is live: supervise {supervisor} began within the same second as this one")
        console.note("        --replace does not end such a one: of two that are started at once, one is to stay")
        console.note("        try again, if that one is to be replaced all the same")
        return False
    from supervise.runner.foresight import foresee

    return foresee(planned, store, run, supervisor, console)


def _begun_since(supervisor: ProcessId) -> bool:
    """Whether that supervise began when we did, or later: two that are started at once must not end each other."""
    return procfs.age_s(supervisor.ticks) < procfs.age_s(procfs.self_id().ticks) + _AT_ONCE_S


def take_over(run: Run, supervisor: ProcessId, deadlines: Deadlines, console: Console) -> int | None:
    """End a supervise, and take the lock of its run.

    Args:
        run: the run.
        supervisor: who holds it now; nobody else is ended.
        deadlines: how long the stop path may take where that one does not say how long its own does.
        console: where it is said what happens.

    Returns:
        The lock's descriptor; None, with lines that say why, if the run cannot be had.

    Raises:
        StoreError, OSError: the run's directory cannot be used.
    """
    # One at a time: a second request to stop would take the grace away.
    claim = locking.claim(os.path.join(run.path, _CLAIM))
    if claim is None:
        console.line("slate", f"{run.name}: 1 finding")
        console.note(f"BLOCKED run {run.name} is being replaced by another supervise --replace at this moment")
        return None
    try:
        return _take_over(run, supervisor, deadlines, console)
    finally:
        os.close(claim)


def _take_over(run: Run, supervisor: ProcessId, deadlines: Deadlines, console: Console) -> int | None:
    began = time.monotonic()
    console.line("replace", f"run {run.name}: ending supervise {supervisor}{condition(run, supervisor)}")
    for now in (False, True):
        if ask_to_stop(run, supervisor, now=now) is signals.Sent.REFUSED:
            console.note(f"BLOCKED {supervisor} belongs to another user")
            return None
        if suspended(supervisor):
            signals.send(supervisor, signal.SIGCONT)
        within_s = _within_s(run, deadlines) + _SLACK_S
        lock, other = _wait(run, supervisor, time.monotonic() + within_s)
        if lock is not None:
            console.note(f"it has ended after {duration(time.monotonic() - began)}")
            return lock
        if other is not None:
            console.note("somebody else was faster")
            refuse(run, other, console)
            return None
        console.note(f"it has not ended within {duration(within_s)}" + ("" if now else "; now without its grace"))
    console.note(f"BLOCKED run {run.name} is still held; see supervise status {run.name}")
    return None


def _within_s(run: Run, deadlines: Deadlines) -> float:
    """How long its stop path takes at most, as it says itself once that has begun."""
    time.sleep(_LOOK_EVERY_S)
    try:
        said = (ask(run, "status", 1.0) or {}).get("within_s")
    except RefusedError:
        said = None
    return max(said, deadlines.total_s) if isinstance(said, int | float) else deadlines.total_s


def _wait(run: Run, supervisor: ProcessId, until: float) -> tuple[int | None, ProcessId | None]:
    """Wait for the lock: its descriptor, or who has it instead of us; neither if it is still held then."""
    while True:
        if (lock := run.lock()) is not None:
            return lock, None
        state = run.read_state()
        holder = living(state, "supervisor")
        if holder is not None and holder != supervisor:
            return None, holder
        if time.monotonic() >= until:
            return None, None
        if holder is None:
            continue_stopped(state)
        time.sleep(_LOOK_EVERY_S)
