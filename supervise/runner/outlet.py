"""Bytes on their way to a reader that may be slow, a stopped one, or none."""

from __future__ import annotations

import asyncio
import select
import time
from collections.abc import Callable

from supervise.host import tty

_PATIENCE_MS = 200
_STALLED_S = 0.05


class Outlet:
    """Bytes on their way to a reader that may be slow: some wait here, the rest is dropped and counted.

    Args:
        loop: tells when there is room.
        fd: where they go; a terminal must be a non-blocking description.
        most: bytes that may wait.
        on_room: called when all that waited has gone.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, fd: int, most: int, on_room: Callable[[], None] | None = None
    ) -> None:
        self.dropped = 0
        self._loop, self._fd, self._most, self._on_room = loop, fd, most, on_room
        self._waiting = bytearray()
        self._watched = False
        self._later: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """Bytes that have not gone yet."""
        return len(self._waiting)

    def write(self, data: bytes | bytearray) -> None:
        """Pass on what fits, keep what may wait."""
        self._waiting += data
        self._flush()
        self.dropped += max(0, self.waiting - self._most)
        del self._waiting[self._most :]
        if self._waiting and not self._watched and self._later is None:
            self._watch()

    def close(self, until: float = 0.0) -> None:
        """Drop what still waits, having given it a last chance until then (monotonic) while it moves at all."""
        self._unwatch()
        moving = True
        while moving and time.monotonic() < until and tty.ready(self._fd, select.POLLOUT, _PATIENCE_MS):
            moving = self._flush()
        self.dropped += self.waiting
        self._waiting.clear()

    def _writable(self) -> None:
        moved = self._flush()
        if not self._waiting:
            self._unwatch()
            if self._on_room is not None:
                self._on_room()
        elif not moved:
            # poll(2) calls a terminal writable that has too little room for what write(2) makes of a newline.
            self._unwatch()
            self._later = self._loop.call_later(_STALLED_S, self._watch)

    def _flush(self) -> bool:
        """Pass on what fits; True if anything moved."""
        before = self.waiting
        try:
            tty.pass_on(self._fd, self._waiting)
        except OSError:  # nobody reads any more
            self.dropped += self.waiting
            self._waiting.clear()
        return self.waiting < before

    def _watch(self) -> None:
        self._later = None
        self._loop.add_writer(self._fd, self._writable)
        self._watched = True

    def _unwatch(self) -> None:
        if self._later is not None:
            self._later.cancel()
        if self._watched and not self._loop.is_closed():
            self._loop.remove_writer(self._fd)
        self._watched, self._later = False, None
