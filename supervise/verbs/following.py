"""Follows a run, change by change, until its supervise has gone: through its control socket, else by its run.json."""

from __future__ import annotations

import time
from typing import Any

from supervise.attempts.roles import living
from supervise.attempts.store import Run
from supervise.model.exits import Exit
from supervise.runner.asking import Conversation, RefusedError
from supervise.text import duration, printable, shorten
from supervise.verbs.select import is_live, say

_LOOK_EVERY_S = 0.2
_CONNECT_S = 1.0
_GONE_S = 15.0
_WIDTH = 200


class Following:
    """One supervise of a run, from now on.

    Args:
        run: which one.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._conversation: Conversation | None = None
        self._asked = False
        self._last: dict[str, Any] | None = None

    def close(self) -> None:
        """Follow it no more."""
        if self._conversation is not None:
            self._conversation.close()
        self._conversation, self._asked = None, True

    def next(self, within_s: float) -> dict[str, Any] | None:
        """How it is now, at first and whenever that has changed; None if nothing has, within so many seconds.

        Returns:
            What `Control` tells; of a run that cannot be asked, what its files tell. `over` is true in the last one.
        """
        until = time.monotonic() + within_s
        self._ask()
        while self._conversation is not None and (left := until - time.monotonic()) > 0:
            if (said := self._heard(self._conversation, left)) is not None:
                self._last = said
                return said
        if self._last is None and self._conversation is not None:
            # It is there and does not answer: it is stopped, or busy.
            self._last = look(self._run)
            return self._last
        return self._seen(until)

    def _ask(self) -> None:
        """A supervise that has just begun does not listen yet; one that has stopped to is not asked again."""
        if not self._asked and (conversation := Conversation.begin(self._run, "watch", _CONNECT_S)) is not None:
            self._conversation, self._asked = conversation, True

    def _heard(self, conversation: Conversation, within_s: float) -> dict[str, Any] | None:
        try:
            said = conversation.next(within_s)
        except RefusedError:
            said = None
            conversation.over = True
        if said is None and conversation.over:
            self.close()
        return said

    def _seen(self, until: float) -> dict[str, Any] | None:
        while self._conversation is None:
            said = look(self._run)
            if said != self._last:
                self._last = said
                return said
            if (left := until - time.monotonic()) <= 0:
                break
            time.sleep(min(_LOOK_EVERY_S, left))
            self._ask()
        return None


def look(run: Run) -> dict[str, Any]:
    """How a run is by its files alone, as Control would tell it, as far as they know."""
    # In this order: what is written last is written while it lives.
    live = is_live(run)
    state = run.read_state() or {}
    # Its keeper is ending the group of a supervise that was killed: what that one wrote last is true no more.
    left = live and living(state, "supervisor") is None
    attempt = run.latest()
    outcome = (attempt.read("outcome") if attempt else None) or {}
    ended = state.get("ended") or {}
    source = state if live else outcome
    cause = source.get("cause") or {}
    return {
        "run": run.name,
        "state": "orphaned" if left else state.get("state"),
        "attempt": attempt.number if attempt else None,
        "phase": state.get("phase"),
        "percent": None,
        "eta_s": None,
        "stalled": None,
        "cause": cause.get("text") or cause.get("meaning"),
        "log": attempt.log if attempt else None,
        "ready_s": None,
        "relaunch_at": source.get("relaunch_at"),
        "exit_status": None if live else ended.get("exit_status", outcome.get("exit_status")),
        "why": ended.get("why"),
        "over": not live,
    }


def line(said: dict[str, Any]) -> str:
    """One of these in words."""
    told = f"{said.get('run')}  {'ended' if said.get('over') else said.get('state') or 'begins'}"
    if (attempt := said.get("attempt")) is not None:
        told += f"  attempt {attempt}"
    if said.get("over"):
        status = said.get("exit_status")
        told += f"  exit {status}" if status is not None else "  no record of how it ended"
    elif said.get("state") == "starting":
        told += f"  {now}" if (now := progress(said)) else ""
    elif said.get("state") == "ready" and _is_number(said.get("ready_s")):
        told += f"  after {duration(said['ready_s'])}"
    elif said.get("state") == "waiting" and _is_number(said.get("relaunch_at")):
        told += f"  relaunch in {duration(max(0.0, said['relaunch_at'] - time.time()))}"
    if cause := said.get("cause"):
        told += f"  {shorten(str(cause), _WIDTH)}"
    return printable(told)


def progress(said: dict[str, Any]) -> str:
    """How far a start has come, as far as that is known."""
    told = str(said.get("phase") or "")
    if _is_number(said.get("percent")):
        told += f" {said['percent']:.0f} %"
    if _is_number(said.get("eta_s")):
        told += f", ready in about {duration(said['eta_s'])}"
    if said.get("stalled"):
        told += f"; STALLED: {said['stalled']}"
    return told.lstrip(",; ")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def ended(run: Run, said: dict[str, Any]) -> int:
    """Wait until a supervise that says it is over has gone, and say how it ended.

    Args:
        run: its run.
        said: its last word.

    Returns:
        Its exit status.
    """
    until = time.monotonic() + _GONE_S
    while is_live(run) and time.monotonic() < until:
        time.sleep(_LOOK_EVERY_S)
    status = said.get("exit_status")
    cause = f": {printable(shorten(str(said['cause']), _WIDTH))}" if said.get("cause") else ""
    if not isinstance(status, int):
        say(f"supervise: run {run.name} has ended, and there is no record of how{cause}")
        return Exit.INTERNAL
    say(f"supervise: run {run.name} has ended with status {status}{cause}")
    return status
