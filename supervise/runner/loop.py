"""The one loop: an event comes off the queue, `lifecycle.step` decides, the performer acts."""

from __future__ import annotations

import asyncio
from typing import Protocol

from supervise import lifecycle
from supervise.lifecycle import Done, Effect, Event, State


class Performer(Protocol):
    """Does what the lifecycle decides."""

    def perform(self, effect: Effect) -> None:
        """Start one effect; whatever comes of it is posted as an event."""

    def entered(self, state: State) -> None:
        """A new state has been entered; its effects follow."""


class Loop:
    """Owns the queue and the state.

    Args:
        first: the state to begin in.
    """

    def __init__(self, first: State) -> None:
        self.state = first
        self._queue: asyncio.Queue[Event] = asyncio.Queue()

    def post(self, event: Event) -> None:
        """Add an event; from the loop's own thread only."""
        self._queue.put_nowait(event)

    async def run(self, performer: Performer) -> Done:
        """Turn events into effects until it is over.

        Returns:
            How it ended.
        """
        performer.entered(self.state)
        while not isinstance(self.state, Done):
            step = lifecycle.step(self.state, await self._queue.get())
            if step.state != self.state:
                self.state = step.state
                performer.entered(step.state)
            for effect in step.effects:
                performer.perform(effect)
        return self.state
