"""Work that goes on beside the loop's events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine


class Tasks:
    """Starts coroutines, and hears of it when one of them fails.

    Args:
        on_error: told what one has raised.
    """

    def __init__(self, on_error: Callable[[BaseException], None]) -> None:
        self._on_error = on_error
        self._running: set[asyncio.Task[None]] = set()

    def start(self, *coroutines: Coroutine[object, object, None]) -> None:
        """Run them, side by side."""
        for coroutine in coroutines:
            task = asyncio.ensure_future(coroutine)
            self._running.add(task)
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_error(error)
