"""Those who connect to a run's control socket: one line each, few at a time, and none of them can hold up anything.

Not asyncio's streams: a client that is in trouble must reach nobody, and theirs tell the loop of a lack of descriptors
as of a failure of ours.
"""

from __future__ import annotations

import asyncio
import json
import select
import socket
from collections.abc import Callable
from typing import Any

from supervise.host import peers, tty
from supervise.runner.outlet import Outlet

VERSION = 1
LARGEST_REQUEST = 4096
MOST = 32
_MOST_UNREAD = 64 * 1024
_PATIENCE_S = 5.0
_REST_S = 1.0


class Client:
    """One that has connected.

    Args:
        loop: tells when something may be read or written.
        connected: its socket, which never blocks.
        ask: called with its request, which is one line.
        left: called once, when it has gone or was sent away.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connected: socket.socket,
        ask: Callable[[Client, bytes], None],
        left: Callable[[Client], None],
    ) -> None:
        self._loop, self._socket, self._ask, self._left = loop, connected, ask, left
        self._outlet = Outlet(loop, connected.fileno(), _MOST_UNREAD, on_room=self._emptied)
        self._said = bytearray()
        self._last = False
        self._closed = self._asked = False
        self._patience = loop.call_later(_PATIENCE_S, self.close)
        loop.add_reader(connected.fileno(), self._hear)

    @property
    def gone(self) -> bool:
        """Whether it has hung up by now: what it has asked for it does not want any more."""
        return self._closed or tty.ready(self._socket.fileno(), 0)

    def listen(self) -> None:
        """It may be silent from now on, and stay for as long as it likes."""
        self._patience.cancel()

    def answer(self, said: dict[str, Any], *, last: bool = True) -> None:
        """Send one object; whoever does not read is sent away.

        Args:
            said: what is sent.
            last: nothing follows.
        """
        if self._closed:
            return
        if last:
            self._patience.cancel()
            self._patience = self._loop.call_later(_PATIENCE_S, self.close)
        self._last = self._last or last
        self._outlet.write(json.dumps({"version": VERSION, **said}).encode() + b"\n")
        if self._outlet.dropped or (last and not self._outlet.waiting):
            self.close()

    def refuse(self, why: str, status: int | None = None) -> None:
        """The one line for a request that cannot be met; `status` is the exit status that a verb has then, if any."""
        self.answer({"ok": False, "error": why, **({} if status is None else {"exit_status": status})})

    def close(self) -> None:
        """Send it away."""
        if self._closed:
            return
        self._closed = True
        self._patience.cancel()
        if not self._loop.is_closed():
            self._loop.remove_reader(self._socket.fileno())
        self._outlet.close()
        self._socket.close()
        self._left(self)

    def _hear(self) -> None:
        try:
            data = self._socket.recv(LARGEST_REQUEST)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
        elif not self._asked:
            self._said += data
            self._look_for_a_line()

    def _look_for_a_line(self) -> None:
        line, newline, _ = self._said.partition(b"\n")
        if len(line) > LARGEST_REQUEST:
            self.refuse(f"a request has at most {LARGEST_REQUEST} bytes")
        elif newline:
            self._asked = True
            self._ask(self, bytes(line))

    def _emptied(self) -> None:
        if self._last:
            self.close()


class Door:
    """Lets clients in, a few at a time, and only those who may ask.

    Args:
        listener: where they connect; it never blocks.
        ask: called with each client and its request.
    """

    def __init__(self, listener: socket.socket, ask: Callable[[Client, bytes], None]) -> None:
        self._listener, self._ask = listener, ask
        self._loop = asyncio.get_running_loop()
        self._inside: set[Client] = set()
        self._rest: asyncio.TimerHandle | None = None
        self._open()

    def close(self) -> None:
        """Nobody comes in any more, and everybody leaves."""
        if self._rest is not None:
            self._rest.cancel()
        elif not self._loop.is_closed():
            self._loop.remove_reader(self._listener.fileno())
        for client in tuple(self._inside):
            client.close()
        self._listener.close()

    def _open(self) -> None:
        self._rest = None
        self._loop.add_reader(self._listener.fileno(), self._let_in)

    def _let_in(self) -> None:
        try:
            connected, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError:
            # No descriptor is left, or no memory: whoever waits at the door waits until there is.
            self._loop.remove_reader(self._listener.fileno())
            self._rest = self._loop.call_later(_REST_S, self._open)
            return
        try:
            self._admit(connected)
        except OSError:
            connected.close()

    def _admit(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        asking = peers.peer(connected)
        if not asking.trusted:
            _turn_away(connected, f"uid {asking.uid} may not ask: this run is another user's")
        elif len(self._inside) >= MOST:
            _turn_away(connected, f"{MOST} clients are connected already")
        else:
            self._inside.add(Client(self._loop, connected, self._ask, self._inside.discard))


def _turn_away(connected: socket.socket, why: str) -> None:
    if tty.ready(connected.fileno(), select.POLLOUT):
        connected.send(json.dumps({"version": VERSION, "ok": False, "error": why}).encode() + b"\n")
    connected.close()
