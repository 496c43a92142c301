"""Follows one supervise of a run, change by change, until it has gone: through its socket, else by its run.json.

Another supervise may have the run by then (`--replace`): what that one does is no change of the one that is followed.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

from supervise.attempts import told
from supervise.attempts.elsewhere import elsewhere
from supervise.attempts.roles import living
from supervise.attempts.store import Attempt, Run
from supervise.host import files, signals
from supervise.model.exits import Exit
from supervise.model.process import ProcessId
from supervise.runner.asking import Conversation, RefusedError, suspended
from supervise.text import duration, printable, shorten
from supervise.verbs.select import is_live, say

_LOOK_EVERY_S = 0.2
_CONNECT_S = 1.0
_GONE_S = 15.0
_UNTIL_A_CHANGE = "  waits for a change of a watched file"
_WIDTH = 200
_LARGEST_EVENTS = 16 * 1024 * 1024
SUSPENDED = "suspended"


def _process(said: dict[str, Any] | None) -> ProcessId | None:
    """The supervise that a sound file of ours names."""
    found = (said or {}).get("supervisor")
    return ProcessId(found["pid"], found["ticks"]) if found else None


class Following:
    """One supervise of a run, from now on.

    Args:
        run: which one.
        whose: that supervise; None for the one that has the run now.
    """

    def __init__(self, run: Run, whose: ProcessId | None = None) -> None:
        self._run = run
        state = run.read_state()
        self.whose = whose or _process(state)
        # One of another PID namespace cannot be told by its pid.
        self._here = whose or living(state, "supervisor")
        self._conversation: Conversation | None = None
        self._asked = False
        self._last: dict[str, Any] | None = None
        self._suspended = False

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
        if self._conversation is not None:
            return self._silent()
        return self._seen(until)

    def _silent(self) -> dict[str, Any] | None:
        """It is there and says nothing: nothing has changed, or it is busy, or stopped, or goes on after that."""
        stopped = self._here is not None and suspended(self._here)
        changed, self._suspended = stopped != self._suspended, stopped
        if self._last is None:
            self._last = look(self._run, self.whose)
            return self._last
        if not changed:
            return None
        return {**self._last, "state": SUSPENDED} if stopped else self._last

    def _ask(self) -> None:
        """A supervise that has just begun does not listen yet; one that has stopped to is not asked again."""
        if self._asked:
            return
        if (conversation := Conversation.begin(self._run, "watch", _CONNECT_S, self._here)) is not None:
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
            said = look(self._run, self.whose)
            if said != self._last:
                self._last = said
                return said
            if (left := until - time.monotonic()) <= 0:
                break
            time.sleep(min(_LOOK_EVERY_S, left))
            self._ask()
        return None


def look(run: Run, whose: ProcessId | None = None) -> dict[str, Any]:
    """How a run is by its files alone, as Control would tell it, as far as they know.

    Args:
        run: which one.
        whose: the supervise that is meant; None for the one that has the run, or had it last.
    """
    # In this order: what is written last is written while it lives.
    live = is_live(run)
    state = run.read_state() or {}
    if whose is not None and _process(state) not in (None, whose):
        return _replaced(run, whose)
    supervisor = living(state, "supervisor")
    # Its keeper is ending the group of a supervise that was killed: what that one wrote last is true no more.
    left = live and supervisor is None and not elsewhere(run)
    attempt = run.latest()
    outcome = (attempt.read("outcome") if attempt else None) or {}
    ended = state.get("ended") or {}
    source = state if live else outcome
    stopped = supervisor is not None and suspended(supervisor)
    return {
        **_unknown(run, attempt),
        "state": "orphaned" if left else SUSPENDED if stopped else state.get("state"),
        "phase": state.get("phase"),
        "cause": _cause(source),
        "relaunch_at": source.get("relaunch_at"),
        "exit_status": None if live else ended.get("exit_status", outcome.get("exit_status")),
        "why": ended.get("why"),
        "over": not live,
    }


def _replaced(run: Run, whose: ProcessId) -> dict[str, Any]:
    """The end of a supervise whose run another one has by now: only what belongs to its attempts is still there."""
    attempt = _last_of(run, whose)
    outcome = (attempt.read("outcome") if attempt else None) or {}
    ended = (_ended(run, attempt) if attempt else None) or {}
    return {
        **_unknown(run, attempt),
        "state": "done",
        "cause": _cause(outcome),
        "exit_status": ended.get("exit_status", outcome.get("exit_status")),
        "why": ended.get("why"),
        "over": True,
    }


def _last_of(run: Run, whose: ProcessId) -> Attempt | None:
    """The last attempt of a supervise that is still kept."""
    for number in reversed(run.numbers()):
        attempt = run.attempt(number)
        if _process(attempt.read("attempt")) == whose:
            return attempt
    return None


def _ended(run: Run, attempt: Attempt) -> dict[str, Any] | None:
    """How a supervise ended after an attempt, where that was not the end of the attempt; events.jsonl keeps it."""
    try:
        lines = files.read_regular(os.path.join(run.path, "events.jsonl"), _LARGEST_EVENTS).splitlines()
    except (OSError, ValueError):
        return None
    for line in reversed(lines):
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict) and event.get("attempt") == attempt.number and event.get("state") == "done":
            ended: dict[str, Any] | None = event.get("ended") if told.sound({"ended": event.get("ended")}) else None
            return ended
    return None


def _unknown(run: Run, attempt: Attempt | None) -> dict[str, Any]:
    """What stands in no file, and what is the same in all."""
    return {
        "run": run.name,
        "state": None,
        "attempt": attempt.number if attempt else None,
        "phase": None,
        "percent": None,
        "eta_s": None,
        "stalled": None,
        "cause": None,
        "log": attempt.log if attempt else None,
        "ready_s": None,
        "relaunch_at": None,
    }


def _cause(said: dict[str, Any]) -> str | None:
    cause = said.get("cause") or {}
    return cause.get("text") or cause.get("meaning")


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
    elif said.get("state") == "waiting":
        known = _is_number(said.get("relaunch_at"))
        told += f"  relaunch in {duration(max(0.0, said['relaunch_at'] - time.time()))}" if known else _UNTIL_A_CHANGE
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


def ended(run: Run, said: dict[str, Any], whose: ProcessId | None = None) -> int:
    """Wait until a supervise that says it is over has gone, and say how it ended.

    Args:
        run: its run.
        said: its last word.
        whose: that supervise; None for the one that has the run, or had it last.

    Returns:
        Its exit status.
    """
    until = time.monotonic() + _GONE_S
    while _remains(run, whose) and time.monotonic() < until:
        time.sleep(_LOOK_EVERY_S)
    last = look(run, whose)
    status, cause = said.get("exit_status"), said.get("cause")
    if isinstance(last.get("exit_status"), int) and status in (None, last["exit_status"]):
        # Its outcome has the last word; what was said before it was written may have been a guess.
        status, cause = last["exit_status"], last["cause"] or _in_short(run, last)
    because = f": {printable(shorten(str(cause), _WIDTH))}" if cause else ""
    if not isinstance(status, int):
        say(f"supervise: run {run.name} has ended, and there is no record of how{because}")
        return Exit.INTERNAL
    say(f"supervise: run {run.name} has ended with status {status}{because}")
    return status


def _remains(run: Run, whose: ProcessId | None) -> bool:
    """Whether a supervise, or what ends its group in its place, is still there."""
    if whose is not None and _process(run.read_state()) not in (None, whose):
        return signals.alive(whose)
    return is_live(run)


def _in_short(run: Run, last: dict[str, Any]) -> str | None:
    """What outcome.json calls the end, where nobody has named a cause; None if somebody asked for it."""
    outcome = run.attempt(last["attempt"]).read("outcome") if last["attempt"] is not None else None
    name = (outcome or {}).get("outcome")
    if isinstance(last["why"], str):
        return last["why"]
    return name.replace("-", " ") if isinstance(name, str) and name != "asked" else None
