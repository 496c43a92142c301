"""An HTTP endpoint for metrics, in a thread of its own, that no client can make anybody wait with.

http.server gives each client a thread, or lets each wait for the one before. Here one thread polls them all: few at a
time, each for a few seconds, and a supervise without descriptors goes on without it.
"""

from __future__ import annotations

import _thread
import contextlib
import errno
import os
import select
import socket
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from supervise.host import sockets
from supervise.model.exits import Exit
from supervise.model.snapshot import PortState
from supervise.model.telling import Address, TellingError

if TYPE_CHECKING:
    from supervise.model.need import Port

_MOST_CLIENTS = 16
_CLIENT_S = 5.0
_LONGEST_REQUEST = 16 * 1024
_BACKLOG = 16
_PAUSE_S = 1.0
_PATHS = ("/", "/metrics")


def listen(address: Address, own: Iterable[Port]) -> socket.socket:
    """Take the endpoint's port.

    Args:
        address: the user's.
        own: ports that the server is going to bind.

    Returns:
        A listening socket, which no child inherits.

    Raises:
        TellingError: it cannot be had; the text says why.
    """
    for port in own:
        if port.number == address.port:
            said = f"--metrics {address}: the server itself wants port {port.number} ({port.role}); use another one"
            raise TellingError(Exit.USAGE, said)
    remedy = "free it, or use another port or no --metrics; nothing was launched"
    if sockets.probe_port(address.host, address.port).state is PortState.HELD:
        raise TellingError(Exit.INTERNAL, f"--metrics {address}: somebody has the port; {remedy}")
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener: socket.socket | None = None
    try:
        listener = socket.socket(family, socket.SOCK_STREAM)
        # What is left of the connections of an earlier supervise must not keep the port (tcp(7), TIME_WAIT).
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family is socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((address.host, address.port))
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        if listener is not None:
            listener.close()
        raise TellingError(Exit.INTERNAL, f"--metrics {address}: {error.strerror}; {remedy}") from None
    return listener


class _Client:
    """One connection: what it has asked so far, and what is still to be sent."""

    def __init__(self, connection: socket.socket, until: float) -> None:
        self.connection, self.until = connection, until
        self.asked, self.answer = b"", b""

    def go_on(self, text: Callable[[], bytes], kind: str) -> bool:
        """Read or write what can be; False when it is done with.

        Raises:
            OSError: it is gone.
        """
        if not self.answer:
            data = self.connection.recv(_LONGEST_REQUEST)
            self.asked += data
            if b"\r\n\r\n" not in self.asked and b"\n\n" not in self.asked:
                return bool(data) and len(self.asked) < _LONGEST_REQUEST
            self.answer = _answer(self.asked, text, kind)
        self.answer = self.answer[self.connection.send(self.answer) :]
        if not self.answer:
            self.connection.shutdown(socket.SHUT_WR)
        return bool(self.answer)


def _answer(asked: bytes, text: Callable[[], bytes], kind: str) -> bytes:
    method, _, rest = asked.partition(b" ")
    path = rest.split(b" ", 1)[0].split(b"?", 1)[0].decode("latin-1")
    if method not in (b"GET", b"HEAD"):
        return _response("405 Method Not Allowed", b"only GET\n", "text/plain")
    if path not in _PATHS:
        return _response("404 Not Found", b"see /metrics\n", "text/plain")
    return _response("200 OK", text(), kind, head=method == b"HEAD")


def _response(status: str, body: bytes, kind: str, *, head: bool = False) -> bytes:
    lines = (f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}", "Connection: close", "", "")
    return "\r\n".join(lines).encode("latin-1") + (b"" if head else body)


class Endpoint:
    """Answers on a listening socket until it is closed.

    Args:
        listener: where.
        text: makes the answer; called in a thread.
        kind: its content type.
        client_s: how long each client may take, in seconds.

    Raises:
        RuntimeError: there can be no thread.
    """

    def __init__(
        self, listener: socket.socket, text: Callable[[], bytes], kind: str, *, client_s: float = _CLIENT_S
    ) -> None:
        self._listener, self._text, self._kind, self._client_s = listener, text, kind, client_s
        self._clients: dict[int, _Client] = {}
        self._leaving, self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._closed = False
        # Not threading's: its start waits for ever for one that dies at birth.
        _thread.start_new_thread(self._serve, ())

    def close(self) -> None:
        """Answer no more."""
        if not self._closed:
            self._closed = True
            os.close(self._wake)

    def _serve(self) -> None:
        while True:
            try:
                if not self._turn():
                    break
            except Exception:  # noqa: BLE001 - out of memory or descriptors: it is to answer again when there are some
                self._drop_all()
                time.sleep(_PAUSE_S)
        self._drop_all()
        self._listener.close()
        os.close(self._leaving)

    def _turn(self) -> bool:
        """Wait for whoever wants something, and serve them; False when it is over."""
        poller = select.poll()
        poller.register(self._leaving, select.POLLIN)
        if len(self._clients) < _MOST_CLIENTS:
            poller.register(self._listener, select.POLLIN)
        for fd, client in self._clients.items():
            poller.register(fd, select.POLLOUT if client.answer else select.POLLIN)
        for fd, _ in poller.poll(min(_PAUSE_S, self._client_s) * 1000 if self._clients else None):
            if fd == self._leaving:
                return False
            if fd == self._listener.fileno():
                self._accept()
            else:
                self._serve_one(fd)
        now = time.monotonic()
        for fd in [fd for fd, client in self._clients.items() if now >= client.until]:
            self._drop(fd)
        return True

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                time.sleep(_PAUSE_S)
            return
        connection.setblocking(False)
        self._clients[connection.fileno()] = _Client(connection, time.monotonic() + self._client_s)

    def _serve_one(self, fd: int) -> None:
        try:
            goes_on = self._clients[fd].go_on(self._text, self._kind)
        except BlockingIOError:
            return
        except OSError:
            goes_on = False
        if not goes_on:
            self._drop(fd)

    def _drop(self, fd: int) -> None:
        with contextlib.suppress(OSError):
            self._clients.pop(fd).connection.close()

    def _drop_all(self) -> None:
        for fd in tuple(self._clients):
            self._drop(fd)
