"""A run's control socket: whoever may ask is told what it does, and may stop it or have it begin again.

One request per connection, a line of JSON: `{"request": "status"}`. The answer is one line of JSON, or, to `watch`, one
for each change until the run is over. Each has a `version` and `ok`; where that is false, `error` says why.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from supervise import lifecycle as life
from supervise.host import peers
from supervise.runner.asking import SOCKET
from supervise.runner.clients import VERSION, Client, Door
from supervise.runner.facts import Facts, after

if TYPE_CHECKING:
    from supervise.attempts.store import Run
    from supervise.model.news import News
    from supervise.report.console import Console

# Whoever may wait for long leaves room for somebody who wants to stop it.
_MOST_LISTENING = 24
_PERIOD_S = 0.25


class _RequestError(Exception):
    """It cannot be met; the text is the answer."""


class Control:
    """Serves a run's control socket, and hears what it has to tell.

    Args:
        run: the run; its lock is held.
        post: takes what is asked of the lifecycle.
        console: where it is said, once, that there can be no such socket; nothing else depends on it.
    """

    def __init__(self, run: Run, post: Callable[[life.Event], None], console: Console) -> None:
        self._run, self._post, self._console = run, post, console
        self._facts = Facts()
        self._door: Door | None = None
        self._inode: int | None = None
        # Whoever waits for something is told when that is so, the others of each change.
        self._listening: dict[Client, Callable[[Facts], bool] | None] = {}
        self._later: asyncio.TimerHandle | None = None
        self._told = self._facts

    def start(self) -> None:
        """Listen; it is the loop's thread that calls, and the loop runs."""
        try:
            self._door = Door(peers.listen(self._run.path, SOCKET), self._asked)
            self._inode = peers.inode(self._run.path, SOCKET)
        except OSError as error:
            told = f"no control socket: {error.strerror or error}; status, stop and wait work without it"
            self._console.line("note", f"{told}, restart does not")

    def hear(self, news: News) -> None:
        """Something has happened."""
        self._facts = after(self._facts, news, time.time())
        if self._listening and self._facts.differ(self._told):
            self._tell(0.0 if self._facts.state != self._told.state else _PERIOD_S)

    def close(self) -> None:
        """It is over: those who listen hear of it, and the socket goes."""
        if self._later is not None:
            self._later.cancel()
        self._tell_all()
        if self._door is not None:
            self._door.close()
            peers.unlink(self._run.path, SOCKET, self._inode)
        self._door = None

    # --- those who listen ---------------------------------------------------------------------------------------------

    def _tell(self, within_s: float) -> None:
        """What happens at once is told at once, in one line; four lines a second are enough for anybody."""
        due = asyncio.get_running_loop().time() + within_s
        if self._later is not None and self._later.when() > due:
            self._later.cancel()
            self._later = None
        if self._later is None:
            self._later = asyncio.get_running_loop().call_at(due, self._tell_all)

    def _tell_all(self) -> None:
        if self._later is not None:
            self._later.cancel()
        self._later, self._told = None, self._facts
        for client, until in tuple(self._listening.items()):
            if client.gone:
                del self._listening[client]
                client.close()
            else:
                self._tell_one(client, until)

    def _tell_one(self, client: Client, until: Callable[[Facts], bool] | None) -> None:
        last = self._facts.over or (until is not None and until(self._facts))
        if last or until is None:
            client.answer({"ok": True, **self._live()}, last=last)
        if last:
            self._listening.pop(client, None)

    def _listen(self, client: Client, until: Callable[[Facts], bool] | None) -> None:
        self._listening = {other: wants for other, wants in self._listening.items() if not other.gone}
        if len(self._listening) >= _MOST_LISTENING:
            client.refuse(f"{_MOST_LISTENING} clients are listening already")
            return
        self._listening[client] = until
        client.listen()
        self._tell_one(client, until)

    # --- requests -----------------------------------------------------------------------------------------------------

    def _asked(self, client: Client, line: bytes) -> None:
        try:
            self._answer(client, _request(line))
        except _RequestError as error:
            client.refuse(str(error))
        except Exception as error:  # noqa: BLE001 - a server must not end for one who asks
            client.refuse(f"internal error: {type(error).__name__}: {error}")

    def _answer(self, client: Client, asked: dict[str, Any]) -> None:
        match asked["request"]:
            case "status":
                client.answer({"ok": True, **(self._run.read_state() or {}), **self._live()})
            case "watch":
                self._listen(client, None)
            case "wait":
                self._listen(client, _condition(asked.get("until", "over")))
            case "stop":
                # A second one takes away the grace.
                self._do(client, [life.StopAsked(signal.SIGTERM)] * (2 if asked.get("now") is True else 1))
            case "restart":
                self._do(client, [life.RestartAsked()])
            case other:
                raise _RequestError(f"request {other!r}: use status, watch, wait, stop or restart")

    def _do(self, client: Client, events: Sequence[life.Event]) -> None:
        """Whoever has hung up by now, for want of an answer, has tried another way: twice would be once too often."""
        if client.gone:
            client.close()
            return
        for event in events:
            self._post(event)
        client.answer({"ok": True, **self._live()})

    def _live(self) -> dict[str, Any]:
        latest = self._run.latest() if self._facts.attempt is None else None
        facts = self._facts if latest is None else self._facts._replace(attempt=latest.number)
        now = time.time()
        return {"run": self._run.name, **facts.to_data(now), "time": round(now, 3)}


def _condition(until: object) -> Callable[[Facts], bool]:
    if until == "ready":
        return lambda facts: facts.state == "ready"
    if until == "over":
        return lambda facts: facts.over
    raise _RequestError(f"until {until!r}: use ready or over")


def _request(line: bytes) -> dict[str, Any]:
    try:
        asked = json.loads(line)
    except (ValueError, RecursionError):
        asked = None
    if not isinstance(asked, dict) or not isinstance(asked.get("request"), str):
        raise _RequestError('no request: send a line like {"request": "status"}')
    if asked.get("version", VERSION) != VERSION:
        raise _RequestError(f"version {asked['version']!r}: this supervise speaks version {VERSION}")
    return asked
