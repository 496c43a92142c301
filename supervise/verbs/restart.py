"""`supervise restart`: the stop path, a clean slate, and the next attempt, by the supervise that has the run."""

from __future__ import annotations

import time
from math import inf
from typing import Any

from supervise.attempts.elsewhere import elsewhere
from supervise.attempts.roles import living
from supervise.attempts.store import Run
from supervise.host import signals
from supervise.model.exits import Exit
from supervise.model.process import ProcessId
from supervise.runner.asking import RefusedError, ask, suspended
from supervise.verbs.following import ended, look
from supervise.verbs.select import choose, say
from supervise.verbs.wait import follow

_NOT_RUNNING = 3
_INTERRUPTED = 130
# One that has just begun does not listen yet.
_BEGINS_S = 3.0
_LOOK_EVERY_S = 0.1
# It looks first whether the next launch is sure to be refused, see Control.
_ANSWER_S = 20.0


class _NotAskedError(Exception):
    """It does not restart, which has been said; the exit status that follows."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def restart(name: str | None, *, wait: bool, timeout_s: float | None) -> int:
    """Have a run begin again.

    Args:
        name: the run; None for the only one that is live.
        wait: until the next attempt is ready.
        timeout_s: how long to wait for that, in seconds; None for as long as it takes.

    Returns:
        0 asked, or ready; 3 if it is not running, or is being stopped; 94 if the next launch is sure to be refused,
        then it goes on; 125 if its supervise cannot be asked; 2 if it is not clear which run is meant. With `wait` the
        run's own exit status if it ends, 90 if it is not ready in time.
    """
    run = choose(name, live_only=True)
    if run is None:
        return Exit.USAGE if name is not None else _NOT_RUNNING
    supervisor = living(run.read_state(), "supervisor")
    if supervisor is None and not elsewhere(run):
        known = f"its command line is in supervise report {run.name}"
        say(f"supervise: run {run.name} is not running, so there is nothing to restart; launch it anew ({known})")
        return _NOT_RUNNING
    if supervisor is not None and suspended(supervisor):
        say(f"supervise: {supervisor} of run {run.name} is suspended; continue it with: kill -CONT {supervisor.pid}")
        return Exit.INTERNAL
    try:
        said = _asked(run, supervisor)
    except _NotAskedError as error:
        return error.status
    attempt = said.get("attempt")
    number = attempt if isinstance(attempt, int) else 0
    say(f"supervise: run {run.name}: {_follows(said, number)}")
    if not wait:
        return Exit.OK
    try:
        until = time.monotonic() + (inf if timeout_s is None else timeout_s)
        return follow(run, until, timeout_s or 0.0, attempt=number + 1, whose=supervisor)
    except KeyboardInterrupt:
        say("supervise: not waiting any more; the restart goes on")
        return _INTERRUPTED


def _asked(run: Run, supervisor: ProcessId | None) -> dict[str, Any]:
    """Ask that very supervise; whoever has the run after it has begun anew by itself.

    Raises:
        _NotAskedError: it does not restart.
    """
    until = time.monotonic() + _BEGINS_S
    try:
        while (said := ask(run, "restart", _ANSWER_S, supervisor)) is None and time.monotonic() < until:
            if _has_gone(supervisor):
                break
            time.sleep(_LOOK_EVERY_S)
    except RefusedError as error:
        say(f"supervise: run {run.name} does not restart: {error}")
        raise _NotAskedError(Exit.INTERNAL if error.status is None else error.status) from None
    if said is not None:
        return said
    if _has_gone(supervisor):
        ended(run, look(run, supervisor), supervisor)
        say("supervise: there was nothing left to restart")
        raise _NotAskedError(_NOT_RUNNING)
    say(f"supervise: run {run.name} cannot be asked, its control socket does not answer; stop it and start it again")
    raise _NotAskedError(Exit.INTERNAL)


def _has_gone(supervisor: ProcessId | None) -> bool:
    """Of one in another PID namespace nobody can tell."""
    return supervisor is not None and not signals.alive(supervisor)


def _follows(said: dict[str, Any], number: int) -> str:
    if said.get("state") in (None, "sweeping"):
        return f"attempt {number + 1} is about to begin anyway"
    if said.get("state") == "waiting":
        return f"attempt {number + 1} begins at once"
    return f"attempt {number} is being ended, attempt {number + 1} follows"
