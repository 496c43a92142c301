"""A run's control socket: whoever may ask is told what it does, and may stop it or have it begin again.

One request per connection, a line of JSON: `{"request": "status"}`. The answer is one line of JSON, or, to `watch`, one
for each change until the run is over. Each has a `version` and `ok`; where that is false, `error` says why.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from supervise import lifecycle as life
from supervise.attempts.elsewhere import SOCKET
from supervise.host import peers
from supervise.model.exits import Exit
from supervise.model.news import Ending
from supervise.runner.clients import VERSION, Client, Door
from supervise.runner.facts import Facts, after
from supervise.runner.tasks import Tasks

if TYPE_CHECKING:
    from supervise.attempts.store import Run
    from supervise.model.news import News
    from supervise.report.console import Console

# Whoever may wait for long leaves room for somebody who wants to stop it.
_MOST_LISTENING = 24
_PERIOD_S = 0.25
# What was not told of the next launch by then is not sure.
_FORESIGHT_S = 15.0
# There is something to lose: a server, or what it has loaded by now.
_PRECIOUS = ("starting", "ready")
_NOT_RUNNING = 3
_ENDS = "it is being stopped, and does not begin again; launch it anew once it has ended"

Foresight = Callable[[], Awaitable[str | None]]
"""Why the next launch is sure to be refused, as far as that can be told while the server runs; None if it is not."""


class _RequestError(Exception):
    """It cannot be met; the text is the answer."""


class Control:
    """Serves a run's control socket, and hears what it has to tell.

    Args:
        run: the run; its lock is held.
        post: takes what is asked of the lifecycle.
        console: where it is said, once, that there can be no such socket; nothing else depends on it.
        foresee: asked before a server that may be well is ended for a restart; None for nobody.
    """

    def __init__(
        self, run: Run, post: Callable[[life.Event], None], console: Console, foresee: Foresight | None = None
    ) -> None:
        self._run, self._post, self._console, self._foresee = run, post, console, foresee
        self._facts = Facts()
        self._door: Door | None = None
        self._inode: int | None = None
        # Whoever waits for something is told when that is so, the others of each change.
        self._listening: dict[Client, Callable[[Facts], bool] | None] = {}
        self._later: asyncio.TimerHandle | None = None
        self._told = self._facts
        # Somebody wants the end: nothing follows, whatever is asked for then.
        self._ends = False
        self._tasks = Tasks(lambda error: self._console.error(f"control socket: {type(error).__name__}: {error}"))

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
        self._ends = self._ends or self._facts.over or self._facts.state == "done"
        self._ends = self._ends or (isinstance(news, Ending) and news.asked and not news.restarts)
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
                self._stop(client, now=asked.get("now") is True)
            case "restart":
                self._tasks.start(self._restart(client))
            case other:
                raise _RequestError(f"request {other!r}: use status, watch, wait, stop or restart")

    def _stop(self, client: Client, *, now: bool) -> None:
        """Two that are not patient take away the grace."""
        events = [life.StopAsked(signal.SIGTERM)] * 2 if now else [life.StopAsked(signal.SIGTERM, patient=True)]
        self._ends = self._do(client, events) or self._ends

    async def _restart(self, client: Client) -> None:
        """What is sure to come to nothing ends no server that runs."""
        # Whoever asked waits for it, in silence.
        client.listen()
        if not self._ends and self._facts.state in _PRECIOUS and (why := await self._foreseen()):
            client.refuse(f"the next launch would be refused, so nothing was ended: {why}", int(Exit.SLATE))
        elif self._ends:
            client.refuse(_ENDS, _NOT_RUNNING)
        else:
            self._do(client, [life.RestartAsked()])

    async def _foreseen(self) -> str | None:
        if self._foresee is None:
            return None
        try:
            return await asyncio.wait_for(self._foresee(), _FORESIGHT_S)
        except Exception:  # noqa: BLE001 - that it could not be looked at proves nothing
            return None

    def _do(self, client: Client, events: Sequence[life.Event]) -> bool:
        """Whoever has hung up by now, for want of an answer, has tried another way: twice would be once too often.

        Returns:
            Whether it was done.
        """
        if client.gone:
            client.close()
            return False
        for event in events:
            self._post(event)
        client.answer({"ok": True, **self._live()})
        return True

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
