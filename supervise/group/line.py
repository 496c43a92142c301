"""A helper's end of its line to supervise, be it keeper or porter: what it says goes out as soon as there is room."""

from __future__ import annotations

import select
import socket

from supervise.group import wire


class Line:
    """Never waits for supervise, which may be stopped: a helper has deadlines of its own.

    Args:
        channel: not blocking.
        splitter: with what has come already; a new one if nothing has.
    """

    def __init__(self, channel: socket.socket, splitter: wire.Splitter | None = None) -> None:
        self._channel: socket.socket | None = channel
        self._splitter = splitter or wire.Splitter()
        self._outgoing = b""

    @property
    def is_open(self) -> bool:
        """Whether supervise has not been seen to be gone."""
        return self._channel is not None

    def fds(self) -> tuple[int, ...]:
        """Its descriptor, while it is open."""
        return (self._channel.fileno(),) if self._channel is not None else ()

    def register(self, poller: select.poll) -> None:
        """Have it watched: for what comes, and for room if something is to go out."""
        for fd in self.fds():
            poller.register(fd, select.POLLIN | (select.POLLOUT if self._outgoing else 0))

    def tell(self, message: wire.Message) -> None:
        """Say it, now or when there is room."""
        if self._channel is not None:
            self._outgoing += wire.encode(message)
            self.flush()

    def flush(self) -> None:
        """Send what the peer will take now."""
        while self._outgoing and self._channel is not None:
            try:
                sent = self._channel.send(self._outgoing)
            except (BlockingIOError, TimeoutError):
                return
            except OSError:
                self._outgoing = b""
                return
            self._outgoing = self._outgoing[sent:]

    def flush_within(self, seconds: float) -> None:
        """The last words: each piece may take so long."""
        if self._channel is not None:
            self._channel.setblocking(True)
            self._channel.settimeout(seconds)
            self.flush()

    def messages(self) -> list[wire.Message] | None:
        """What has come; None if supervise turns out to be gone, with which the line is closed."""
        if self._channel is None:
            return []
        try:
            data, _ = wire.receive(self._channel)
        except BlockingIOError:
            return []
        if data:
            return self._splitter.feed(data)
        self._channel.close()
        self._channel = None
        return None
