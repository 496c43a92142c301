"""`supervise stop`: ask the run's supervise to stop, and wait for the verified end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

from supervise.attempts.elsewhere import elsewhere, is_occupied
from supervise.attempts.roles import living
from supervise.attempts.store import Run
from supervise.host import procfs, signals
from supervise.model.exits import Exit
from supervise.model.process import ProcessId
from supervise.runner.asking import RefusedError, ask, ask_to_stop, suspended
from supervise.text import plural
from supervise.verbs.select import choose, is_live, left_alone, say, store

_LOOK_EVERY_S = 0.1
_BEGINS_S = 3.0


def stop(name: str | None, *, now: bool, timeout_s: float) -> int:
    """Stop a run.

    Args:
        name: the run; None for the only one that is live.
        now: skip the grace.
        timeout_s: how long to wait for its end, in seconds.

    Returns:
        0 stopped and verified, or not running; 95 if something survived; 125 if it is still there after the time-out,
        or another user's, or in another PID namespace where it does not answer or leaves no record of its end; 2 if it
        is not clear which run is meant.

    Raises:
        StoreError: it is not ours to see.
    """
    run = choose(name, live_only=True)
    if run is None:
        return Exit.OK if name is None and not any(map(is_live, store().runs())) else Exit.USAGE
    if left := left_alone(run):
        told = f"{plural(len(left), 'process')} of it are left without a supervise"
        say(f"supervise: run {run.name}: {told}; end them with: supervise clean --name {run.name}")
        return Exit.SURVIVORS
    if not is_live(run):
        say(f"supervise: run {run.name} is not running")
        return Exit.OK
    attempt = run.latest()
    away = elsewhere(run)
    if not (_ask_elsewhere(run, now=now) if away else _ask(run, now=now)):
        return Exit.INTERNAL
    if not _wait(run, is_occupied if away else is_live, timeout_s):
        say(f"supervise: run {run.name} has not ended after {timeout_s:.0f} s; {_hint(run, now=now)}")
        return Exit.INTERNAL
    outcome = attempt.read("outcome") if attempt else None
    if away and not outcome and (run.read_state() or {}).get("state") != "done":
        say(f"supervise: run {run.name} is gone from the other PID namespace, and there is no record of how it ended")
        return Exit.INTERNAL
    return _told(run, outcome)


def _told(run: Run, outcome: dict[str, Any] | None) -> int:
    if outcome and outcome.get("survivors"):
        say(f"supervise: run {run.name}: {len(outcome['survivors'])} processes survived; see supervise logs and status")
        return Exit.SURVIVORS
    say(f"supervise: run {run.name} stopped" + (", verified" if outcome else ""))
    return Exit.OK


def _wait(run: Run, goes_on: Callable[[Run], bool], timeout_s: float) -> bool:
    """Whether it has ended in time."""
    until = time.monotonic() + timeout_s
    while goes_on(run):
        if time.monotonic() >= until:
            return False
        time.sleep(_LOOK_EVERY_S)
    return True


def _hint(run: Run, *, now: bool) -> str:
    """What can be done about one that does not end."""
    target = _target(run)
    if target is not None and suspended(target):
        return f"{target} is suspended, continue it with: kill -CONT {target.pid}"
    return "see supervise status" if now else "see supervise status, or stop --now"


def _target(run: Run) -> ProcessId | None:
    state = run.read_state()
    return living(state, "supervisor") or living(state, "keeper")


def _ask_elsewhere(run: Run, *, now: bool) -> bool:
    """No signal reaches it from here. False if it cannot be asked."""
    there = f"supervise: run {run.name} is live in another PID namespace, and"
    try:
        while (said := ask(run, "stop", now=now)) is None and _has_just_begun(run):
            time.sleep(_LOOK_EVERY_S)
        if said is not None:
            return True
    except RefusedError as error:
        say(f"{there} refuses: {error}; stop it there")
        return False
    say(f"{there} its control socket does not answer; stop it there")
    return False


def _has_just_begun(run: Run) -> bool:
    """Then it may not listen yet. Start times count from boot, in all PID namespaces (proc(5), starttime)."""
    began = ((run.read_state() or {}).get("supervisor") or {}).get("ticks")
    return began is not None and procfs.age_s(began) < _BEGINS_S


def _ask(run: Run, *, now: bool) -> bool:
    """A keeper that was left alone takes the signals as well. False if it is not ours to stop: that will not change."""
    target = _target(run)
    if target is None or target.pid == os.getpid():
        return True
    # First: it does not answer, and two requests that it finds when it is continued would be one (signal(7)).
    sent = signals.send(target, signal.SIGCONT) if suspended(target) else None
    if sent is signals.Sent.DELIVERED:
        say(f"supervise: {target} of run {run.name} was suspended: it is continued, to stop")
    if sent is signals.Sent.REFUSED or ask_to_stop(run, target, now=now) is signals.Sent.REFUSED:
        say(f"supervise: {target} of run {run.name} belongs to another user")
        return False
    return True
