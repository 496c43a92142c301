"""The one loop: an event comes off the queue, `lifecycle.step` decides, the performer acts."""

from __future__ import annotations

import asyncio
from typing import Protocol

from supervise import lifecycle
from supervise.lifecycle import Broken, Done, Effect, Event, RestartAsked, State, StopAsked, Sweeping, Waiting

# Each of these begins a part of a run's life that has a performer, and a loop, of its own.
Turn = Sweeping | Waiting


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

    async def run(self, performer: Performer) -> Done | Turn:
        """Turn events into effects until it is over, or until something begins that is another performer's.

        Returns:
            How it ended, or what begins: that state has not been entered yet.
        """
        performer.entered(self.state)
        while not isinstance(self.state, Done):
            step = lifecycle.step(self.state, await self._queue.get())
            if step.state != self.state:
                self.state = step.state
                if isinstance(step.state, Turn):
                    return step.state
                performer.entered(step.state)
            for effect in step.effects:
                performer.perform(effect)
        return self.state

    def next(self) -> Loop:
        """The loop of what begins: of all that is still to be read only what we are asked, or fail in, goes along.

        Whatever else the old performer has yet to say then goes into this one, which nobody reads any more.
        """
        following = Loop(self.state)
        while not self._queue.empty():
            event = self._queue.get_nowait()
            if isinstance(event, StopAsked | RestartAsked | Broken):
                following.post(event)
        return following
