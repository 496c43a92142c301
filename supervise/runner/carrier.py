"""Our side of a porter: its process, the channel with it, and what of its hooks we have to end if it is killed."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping

from supervise.group import wire
from supervise.group.boot import boot
from supervise.host import procfs, signals
from supervise.model.process import ProcessId

_BIRTH_S = 10.0
# What was meant for supervise alone (see launch.environment), and the marker: a hook is no member of the group.
_NOT_THEIRS = ("NOTIFY_SOCKET", "WATCHDOG_", "LISTEN_", "SUPERVISE_")


class Carrier:
    """Starts a porter; the loop's thread does everything else.

    Args:
        log: path of the file that takes what hooks write.
        env: our environment; hooks get it without what is not theirs.
        heard: told of each event of it.
        killed: called if it is gone and we had not let it go.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(
        self, log: str, env: Mapping[str, str], heard: Callable[[wire.Message], None], killed: Callable[[], None]
    ) -> None:
        self.pid, self._channel = boot("porter", log)
        self._porter = procfs.identify(self.pid) or ProcessId(self.pid, 0)
        self._heard, self._killed = heard, killed
        self._splitter = wire.Splitter()
        self._outgoing = b""
        self._listening = self._finishing = False
        self._running: dict[int, int] = {}
        self._gone: asyncio.Future[None] | None = None
        self._channel.settimeout(_BIRTH_S)
        theirs = {name: value for name, value in env.items() if not name.startswith(_NOT_THEIRS)}
        self._channel.sendall(wire.encode({"request": "hold", "env": theirs}))
        self._channel.setblocking(False)

    def listen(self) -> None:
        """The loop runs."""
        if not self._listening and self._channel.fileno() >= 0:
            self._listening = True
            self._gone = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().add_reader(self._channel, self._receive)

    @property
    def is_gone(self) -> bool:
        """Whether nothing can be asked of it any more."""
        return self._channel.fileno() < 0

    def run(self, message: wire.Message) -> None:
        """Have a hook run after those before it."""
        self._ask({"request": "run", **message})

    def skip(self) -> None:
        """Give back what has not begun: it tells which in `skipped`."""
        self._ask({"request": "skip"})

    def finish(self, within_s: float, term_s: float) -> None:
        """Leave when nothing runs: SIGTERM to what runs `within_s` seconds from now, SIGKILL `term_s` later."""
        self._finishing = True
        # One that somebody stopped (kill -STOP) would hear nothing, and be left.
        signals.send(self._porter, signal.SIGCONT)
        self._ask({"request": "finish", "within_s": within_s, "term_s": term_s})

    def hurry(self) -> None:
        """End what runs now."""
        self._finishing = True
        self._ask({"request": "hurry"})

    async def gone(self) -> None:
        """Wait until it has left."""
        if self._gone is not None:
            await asyncio.shield(self._gone)

    def leave(self) -> None:
        """Let it go: it sees the end of file, ends what runs, and is on its own. More than once is no harm."""
        if self._channel.fileno() >= 0:
            if self._listening:
                io = asyncio.get_running_loop()
                io.remove_reader(self._channel)
                io.remove_writer(self._channel)
            self._channel.close()
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

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

    def _receive(self) -> None:
        try:
            data, _ = wire.receive(self._channel)
        except BlockingIOError:
            return
        if not data:
            self._lost()
            return
        for message in self._splitter.feed(data):
            match message["event"]:
                case "began":
                    self._running[message["id"]] = message["pid"]
                case "over":
                    self._running.pop(message["id"], None)
            self._heard(message)

    def _lost(self) -> None:
        """It has left, or was killed: then nobody but us ends the hook that ran."""
        self.leave()
        for pid in self._running.values():
            _kill_session(pid)
        if not self._finishing:
            self._killed()


def _kill_session(leader: int) -> None:
    for process in procfs.scan(cmdline=False, environ=False).values():
        if process.sid == leader:
            signals.send(process.id, signal.SIGKILL)
