"""`supervise wait`: until a run is ready, or until it ends."""

from __future__ import annotations

import time
from math import inf
from typing import Any

from supervise.attempts.roles import living
from supervise.attempts.store import RUN_NAME, Run
from supervise.model.exits import Exit
from supervise.model.process import ProcessId
from supervise.text import duration
from supervise.verbs.following import SUSPENDED, Following, ended, line, look
from supervise.verbs.select import choose, is_live, say, store

_LOOK_EVERY_S = 0.2
_TURN_S = 1.0
_INTERRUPTED = 130


def wait(name: str | None, *, ready: bool, timeout_s: float | None) -> int:
    """Wait for a run.

    Args:
        name: the run; None for the only one that is live.
        ready: until it is ready; else until it ends.
        timeout_s: how long, in seconds; a run that is not there yet may come within that time. None: for as long as
            it takes, and only for one that is there.

    Returns:
        0 if it is ready; the run's own exit status if it ended; 90 if it was not ready in time, or never came, 125 if
        it did not end in time; 2 if it is not clear which run is meant.
    """
    until = time.monotonic() + (inf if timeout_s is None else timeout_s)
    try:
        run = _find(name, until, ready=ready) if timeout_s is not None else choose(name, live_only=False)
        if run is None:
            return Exit.USAGE
        if timeout_s is not None and run.read_state() is None and run.latest() is None:
            say(f"supervise: run {run.name} has not been started within {duration(timeout_s)}")
            return Exit.NOT_READY if ready else Exit.INTERNAL
        if not is_live(run):
            return _not_there(run, timeout_s if ready and time.monotonic() >= until else None)
        return follow(run, until, timeout_s or 0.0, attempt=0 if ready else None)
    except KeyboardInterrupt:
        say("supervise: not waiting any more; the run goes on")
        return _INTERRUPTED


def follow(run: Run, until: float, timeout_s: float, *, attempt: int | None, whose: ProcessId | None = None) -> int:
    """Wait for one that is there.

    Args:
        run: which one.
        until: monotonic seconds.
        timeout_s: what people call that.
        attempt: the first attempt that may be ready; None to wait for the end.
        whose: the supervise that is meant; None for the one that has the run now.

    Returns:
        See `wait`.
    """
    following = Following(run, whose)
    said: dict[str, Any] | None = None
    try:
        while (left := until - time.monotonic()) > 0 or said is None:
            now = following.next(min(max(left, 0.0), _TURN_S))
            said = now or said or look(run, following.whose)
            if now is not None and now.get("over"):
                return ended(run, now, following.whose)
            if attempt is not None and _is_ready(said, attempt):
                say(f"supervise: {line(said)}")
                return Exit.OK
    finally:
        following.close()
    what = "ended" if attempt is None else "become ready"
    now_it = "is suspended" if said.get("state") == SUSPENDED else "goes on"
    say(f"supervise: run {run.name} has not {what} within {duration(timeout_s)}, it {now_it}: {line(said)}")
    return Exit.INTERNAL if attempt is None else Exit.NOT_READY


def _is_ready(said: dict[str, Any], attempt: int) -> bool:
    number = said.get("attempt")
    return said.get("state") == "ready" and isinstance(number, int) and number >= attempt


def _find(name: str | None, until: float, *, ready: bool) -> Run | None:
    """The run, once it is there: one that is to become ready must live, one that is to end may have ended."""
    if name is None or not RUN_NAME.fullmatch(name):
        chosen = choose(name, live_only=False)
        if chosen is None:
            return None
        name = chosen.name
    run = store().run(name)
    before = run.read_state()
    while time.monotonic() < until and not is_live(run):
        state = run.read_state()
        if state is not None and (not ready or _came_and_went(before, state)):
            break
        time.sleep(_LOOK_EVERY_S)
    return run


def _came_and_went(before: dict[str, Any] | None, state: dict[str, Any]) -> bool:
    return (before or {}).get("supervisor") != state.get("supervisor") and living(state, "supervisor") is None


def _not_there(run: Run, waited_s: float | None) -> int:
    """What is to be said of a run that does not live, and has not come in so many seconds."""
    said = look(run)
    if waited_s is not None:
        say(f"supervise: run {run.name} has not been started within {duration(waited_s)}; last: {line(said)}")
        return Exit.NOT_READY
    say(f"supervise: run {run.name} is not running; last: {line(said)}")
    status = said.get("exit_status")
    return status if isinstance(status, int) else Exit.INTERNAL
