"""An asyncio loop whose clock jumps to the next timer as soon as nothing else is due: an hour passes in no time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any


class Stalled(AssertionError):  # noqa: N818 - what happened to a history, as AssertionError itself
    """Nothing is due and nothing ever will be."""


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise Stalled("no timer, no readable descriptor: this history has no end")
        self.now += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop; `time()` is the virtual clock."""

    def __init__(self) -> None:
        self.jumping = _JumpingSelector()
        super().__init__(self.jumping)

    def time(self) -> float:
        return self.jumping.now


def play(history: Coroutine[Any, Any, Any]) -> Any:
    """Run one history to its end in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(history)
