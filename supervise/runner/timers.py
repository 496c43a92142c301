"""Deadlines on the loop's clock that stand still while we are stopped."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator


class Timers:
    """The pending deadlines of one attempt.

    Args:
        io: the loop whose clock counts.
    """

    def __init__(self, io: asyncio.AbstractEventLoop) -> None:
        self._io = io
        self._pending: dict[asyncio.TimerHandle, Callable[[], None]] = {}

    def later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call back in so many seconds."""

        def due() -> None:
            self._pending.pop(handle, None)
            callback()

        handle = self._io.call_later(delay_s, due)
        self._pending[handle] = callback

    def cancel(self) -> None:
        """Forget all of them."""
        for handle in self._pending:
            handle.cancel()
        self._pending.clear()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Whatever time is spent inside of this does not count."""
        began = self._io.time()
        pending = dict(self._pending)
        self.cancel()
        yield
        for handle, callback in pending.items():
            self.later(max(0.0, handle.when() - began), callback)
