"""`supervise restart`: the stop path, a clean slate, and the next attempt, by the supervise that has the run."""

from __future__ import annotations

import time
from math import inf
from typing import Any

from supervise.attempts.roles import living
from supervise.attempts.store import Run
from supervise.model.exits import Exit
from supervise.runner.asking import RefusedError, ask, suspended
from supervise.verbs.select import choose, say
from supervise.verbs.wait import follow

_NOT_RUNNING = 3
_INTERRUPTED = 130
# One that has just begun does not listen yet.
_BEGINS_S = 3.0
_LOOK_EVERY_S = 0.1


def restart(name: str | None, *, wait: bool, timeout_s: float | None) -> int:
    """Have a run begin again.

    Args:
        name: the run; None for the only one that is live.
        wait: until the next attempt is ready.
        timeout_s: how long to wait for that, in seconds; None for as long as it takes.

    Returns:
        0 asked, or ready; 3 if it is not running; 125 if its supervise cannot be asked; 2 if it is not clear which run
        is meant. With `wait` the run's own exit status if it ends, 90 if it is not ready in time.
    """
    run = choose(name, live_only=True)
    if run is None:
        return Exit.USAGE if name is not None else _NOT_RUNNING
    supervisor = living(run.read_state(), "supervisor")
    if supervisor is None:
        say(f"supervise: run {run.name} is not running; start it with its command line: supervise report {run.name}")
        return _NOT_RUNNING
    if suspended(supervisor):
        say(f"supervise: {supervisor} of run {run.name} is suspended; continue it with: kill -CONT {supervisor.pid}")
        return Exit.INTERNAL
    said = _asked(run)
    if said is None:
        return Exit.INTERNAL
    attempt = said.get("attempt")
    number = attempt if isinstance(attempt, int) else 0
    say(f"supervise: run {run.name}: {_follows(said, number)}")
    if not wait:
        return Exit.OK
    try:
        until = time.monotonic() + (inf if timeout_s is None else timeout_s)
        return follow(run, until, timeout_s or 0.0, attempt=number + 1)
    except KeyboardInterrupt:
        say("supervise: not waiting any more; the restart goes on")
        return _INTERRUPTED


def _asked(run: Run) -> dict[str, Any] | None:
    until = time.monotonic() + _BEGINS_S
    try:
        while (said := ask(run, "restart")) is None and time.monotonic() < until:
            time.sleep(_LOOK_EVERY_S)
    except RefusedError as error:
        say(f"supervise: run {run.name} does not restart: {error}")
        return None
    if said is None:
        say(
            f"supervise: run {run.name} cannot be asked, its control socket does not answer; stop it and start it again"
        )
    return said


def _follows(said: dict[str, Any], number: int) -> str:
    if said.get("state") in (None, "sweeping"):
        return f"attempt {number + 1} is about to begin anyway"
    if said.get("state") == "waiting":
        return f"attempt {number + 1} begins at once"
    return f"attempt {number} is being ended, attempt {number + 1} follows"
