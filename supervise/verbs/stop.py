"""`supervise stop`: ask the run's supervise to stop, and wait for the verified end."""

from __future__ import annotations

import os
import time

from supervise.attempts.roles import living
from supervise.attempts.store import Run
from supervise.host import signals
from supervise.model.exits import Exit
from supervise.runner.asking import ask_to_stop
from supervise.text import plural
from supervise.verbs.select import choose, is_live, left_alone, say, store

_LOOK_EVERY_S = 0.1


def stop(name: str | None, *, now: bool, timeout_s: float) -> int:
    """Stop a run.

    Args:
        name: the run; None for the only one that is live.
        now: skip the grace.
        timeout_s: how long to wait for its end, in seconds.

    Returns:
        0 stopped and verified, or not running; 95 if something survived; 125 if it is still there after the time-out, or
        another user's;
        2 if it is not clear which run is meant.
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
    if not _ask(run, now=now):
        return Exit.INTERNAL
    until = time.monotonic() + timeout_s
    while is_live(run):
        if time.monotonic() >= until:
            say(f"supervise: run {run.name} has not ended after {timeout_s:.0f} s; see supervise status, or stop --now")
            return Exit.INTERNAL
        time.sleep(_LOOK_EVERY_S)
    outcome = attempt.read("outcome") if attempt else None
    if outcome and outcome.get("survivors"):
        say(f"supervise: run {run.name}: {len(outcome['survivors'])} processes survived; see supervise logs and status")
        return Exit.SURVIVORS
    say(f"supervise: run {run.name} stopped" + (", verified" if outcome else ""))
    return Exit.OK


def _ask(run: Run, *, now: bool) -> bool:
    """A keeper that was left alone takes the signals as well. False if it is not ours to stop: that will not change."""
    state = run.read_state()
    target = living(state, "supervisor") or living(state, "keeper")
    if target is None or target.pid == os.getpid():
        return True
    if ask_to_stop(run, target, now=now) is signals.Sent.REFUSED:
        say(f"supervise: {target} of run {run.name} belongs to another user")
        return False
    return True
