"""Commands of the user's that are run when something happens to a run.

They are told, and nothing more: the server waits for none of them, and what becomes of them changes nothing. The porter
(group/porter.py) runs them, one after the other in the order of the events.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from supervise.group import wire
from supervise.group.boot import boot
from supervise.host import procfs, signals
from supervise.model.telling import Hook, Occasion
from supervise.report.occasions import Occasions
from supervise.report.private import private
from supervise.text import plural, printable, shorten

if TYPE_CHECKING:
    from supervise.model.news import News
    from supervise.report.console import Console

# What was meant for supervise alone (see launch.environment), and the marker: a hook is no member of the group.
_NOT_THEIRS = ("NOTIFY_SOCKET", "WATCHDOG_", "LISTEN_", "SUPERVISE_")
_VARIABLES = {
    "event": "EVENT",
    "run": "RUN_NAME",
    "engine": "ENGINE",
    "attempt": "ATTEMPT_NUMBER",
    "state": "STATE",
    "log": "LOG",
    "exit_status": "EXIT_STATUS",
    "cause": "CAUSE",
    "class": "CLASS",
    "signature": "SIGNATURE",
}
_MOST_WAITING = 64
_TITLE_WIDTH = 160
# The porter's own way out, once a hook's time is over: SIGTERM, SIGKILL, and a reading of who is left.
_LEAVING_S = 10.0
_BIRTH_S = 10.0


class Hooks:
    """Listens, and has hooks run.

    Args:
        hooks: the user's.
        timeout_s: how long each may take, and all that are not over when supervise wants to leave.
        run: name of the run.
        engine: name of its profile.
        directory: the run's; hooks.log is kept in it.
        console: where people read of what went wrong.
        env: our environment.
        now: seconds since the epoch.

    Raises:
        OSError: the porter cannot be started.
    """

    def __init__(
        self,
        hooks: tuple[Hook, ...],
        timeout_s: float,
        run: str,
        engine: str,
        directory: str,
        console: Console,
        *,
        env: Mapping[str, str] = os.environ,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._hooks, self._timeout_s, self._console, self._now = hooks, timeout_s, console, now
        self._occasions = Occasions(run, engine)
        self._log = os.path.join(directory, "hooks.log")
        self._pid, self._channel = boot("porter", self._log)
        self._splitter = wire.Splitter()
        self._outgoing = b""
        self._listening = self._finishing = False
        self._waiting = self._dropped = 0
        self._running: int | None = None
        self._failed: set[int] = set()
        self._too_many = False
        self._over: asyncio.Future[None] | None = None
        base = {name: value for name, value in env.items() if not name.startswith(_NOT_THEIRS)}
        self._channel.settimeout(_BIRTH_S)
        self._channel.sendall(wire.encode({"request": "hold", "env": base}))
        self._channel.setblocking(False)

    def hear(self, news: News) -> None:
        """Something has happened."""
        self._listen()
        happening = self._occasions.hear(news, self._now())
        if happening is None:
            return
        for number, hook in enumerate(self._hooks):
            if hook.on in (happening.occasion, Occasion.ANY):
                self._run(number, hook, happening.told)

    def close(self) -> None:
        """Nothing more will happen: what has begun may still be finished, see `finished`."""
        self._finishing = True
        self._ask({"request": "finish", "within_s": self._timeout_s if self._waiting else 0.0})

    async def finished(self, most_s: float | None = None) -> None:
        """Wait until nothing of any hook runs, for as long as one may take; whoever asks us to stop cuts that short.

        Args:
            most_s: no longer than so many seconds.

        Call it after `close`, with our signals still taken over, and nothing to do for them but this.
        """
        self._listen()
        if self._over is None:
            return
        if not self._finishing:
            self.close()
        most_s = self._timeout_s if most_s is None else min(most_s, self._timeout_s)
        if self._waiting:
            self._ask({"request": "finish", "within_s": most_s})
        io = asyncio.get_running_loop()
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            if signal.getsignal(signum) is not signal.SIG_IGN:
                io.add_signal_handler(signum, self.hurry)
        if self._waiting:
            self._console.line("hooks", f"waiting for {plural(self._waiting, 'hook')}, at most {round(most_s, 1):g} s")
        try:
            await asyncio.wait_for(asyncio.shield(self._over), most_s + _LEAVING_S)
        except TimeoutError:
            # It sees the end of file, and is on its own: a hook that cannot be killed must not hold us.
            self._console.error(f"hooks: something of them cannot be ended; see {self._log}")
        finally:
            self._leave()

    def hurry(self) -> None:
        """End what runs now."""
        self._ask({"request": "hurry"})

    # --- what is asked of the porter ----------------------------------------------------------------------------------

    def _run(self, number: int, hook: Hook, told: dict[str, Any]) -> None:
        if self._waiting >= _MOST_WAITING:
            if not self._too_many:
                self._console.error(f"hooks: {_MOST_WAITING} wait for those before them; more are left out meanwhile")
            self._too_many = True
            return
        self._too_many = False
        self._waiting += 1
        attempt = told["attempt"]
        about = told["event"] if attempt is None else f"{told['event']} (attempt {attempt})"
        self._ask(
            {
                "request": "run",
                "hook": number,
                "title": f"{about}: {_title(hook)}",
                "command": hook.command,
                "env": _variables(told),
                "told": json.dumps(told) + "\n",
                "timeout_s": self._timeout_s,
            }
        )

    def _ask(self, message: wire.Message) -> None:
        self._outgoing += wire.encode(message)
        self._flush()

    def _flush(self) -> None:
        """Send what the porter takes now, the rest when it takes more."""
        if self._channel.fileno() < 0:
            self._outgoing = b""
            return
        try:
            while self._outgoing:
                self._outgoing = self._outgoing[self._channel.send(self._outgoing) :]
        except BlockingIOError:
            asyncio.get_running_loop().add_writer(self._channel, self._flush)
            return
        except OSError:
            # It is gone: heard of by its end of file.
            self._outgoing = b""
        if self._listening:
            asyncio.get_running_loop().remove_writer(self._channel)

    # --- what is heard of it ------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        if not self._listening and self._channel.fileno() >= 0:
            self._listening = True
            self._over = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().add_reader(self._channel, self._receive)

    def _receive(self) -> None:
        try:
            data, _ = wire.receive(self._channel)
        except BlockingIOError:
            return
        if not data:
            self._gone()
            return
        for message in self._splitter.feed(data):
            self._heard(message)

    def _heard(self, message: wire.Message) -> None:
        match message["event"]:
            case "began":
                self._running = message["pid"]
            case "dropped":
                self._waiting -= 1
                self._dropped += 1
            case "over":
                self._waiting -= 1
                self._running = None
                self._ended(message["hook"], message["failure"])

    def _ended(self, number: int, failure: str | None) -> None:
        """One is over; what is wrong with it is said once."""
        if failure and number not in self._failed:
            self._failed.add(number)
            hook = self._hooks[number]
            self._console.error(f"hook --on {hook.on} {_title(hook)}: {failure}; see {self._log}")

    def _gone(self) -> None:
        """It has left, or was killed: then nobody but us ends the hook that ran."""
        self._leave()
        if self._running is not None:
            _kill_session(self._running)
        if not self._finishing:
            self._console.error("hooks are not run any more: what runs them was killed")

    def _leave(self) -> None:
        if self._channel.fileno() >= 0:
            io = asyncio.get_running_loop()
            io.remove_reader(self._channel)
            io.remove_writer(self._channel)
            self._channel.close()
        if self._dropped:
            self._console.error(f"{plural(self._dropped, 'hook')} not run any more, supervise leaves")
        self._waiting = self._dropped = 0
        if self._over is not None and not self._over.done():
            self._over.set_result(None)


def _kill_session(leader: int) -> None:
    for process in procfs.scan(cmdline=False, environ=False).values():
        if process.sid == leader:
            signals.send(process.id, signal.SIGKILL)


def _title(hook: Hook) -> str:
    return shorten(printable(private(hook.command)), _TITLE_WIDTH)


def _variables(told: Mapping[str, Any]) -> dict[str, str]:
    return {
        f"SUPERVISE_{name}": printable(str(told[key])) for key, name in _VARIABLES.items() if told.get(key) is not None
    }
