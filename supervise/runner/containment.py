"""The group while it is ours to end: by its keeper while that lives, in its place afterwards."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from dataclasses import asdict
from typing import Protocol

from supervise.group import wire
from supervise.group.ending import Deadlines
from supervise.group.handle import Adoption, Keeper
from supervise.group.leftovers import Leftovers
from supervise.group.members import living_below
from supervise.host import signals
from supervise.model.process import Process
from supervise.runner.ended import Ended

# A keeper that does not finish by its own deadlines is stopped or stuck: it is killed, and we take its place.
_SLACK_S = 10.0


class Listener(Protocol):
    """Who hears of it."""

    def heard(self, message: wire.Message) -> None:
        """The keeper has said something."""

    def lost(self) -> None:
        """The keeper is gone, its group is not."""

    def emptied(self) -> None:
        """The stop path is over; see `ended`."""

    def replacing(self) -> None:
        """The keeper does not answer and is being replaced."""


class Containment:
    """One group.

    Args:
        keeper: its keeper; it has not launched anything yet.
        deadlines: of the stop path.
        listener: who hears of it.
        childless: reaps what can be reaped and tells whether no child of ours is left.

    Attributes:
        ended: how it ended, once it has.
    """

    def __init__(
        self, keeper: Keeper, deadlines: Deadlines, listener: Listener, *, childless: Callable[[], bool]
    ) -> None:
        self.ended = Ended()
        self.keeper = keeper
        self._deadlines, self._listener, self._childless = deadlines, listener, childless
        self._io = asyncio.get_running_loop()
        self._launched = False
        self._owned: tuple[str | None, str] = (None, "")
        self._adoption: Adoption | None = None
        self._timers: list[asyncio.TimerHandle] = []

    def listen(self) -> None:
        """From now on hear the keeper."""
        self._io.add_reader(self.keeper.channel, self._on_readable)

    def launch(
        self,
        program: str,
        argv: tuple[str, ...],
        env: dict[str, str],
        *,
        log: str,
        private: str | None,
        owner: str,
    ) -> None:
        """Have the server launched; see `group.handle.Keeper.spawn`."""
        self._launched, self._owned = True, (private, owner)
        self.keeper.spawn(program, argv, env, log=log, deadlines=self._deadlines, runtime_dir=private, owner=owner)

    def members(self) -> list[Process]:
        """Who belongs to it now."""
        return living_below(self.keeper.id.pid)

    def note(self) -> None:
        """Have the shared memory noted that it uses now."""
        self.keeper.note()

    def stop(self) -> None:
        """Begin the stop path."""
        self.keeper.stop(self._deadlines)
        self.expect_end()

    def expect_end(self) -> None:
        """The stop path is under way: whoever walks it has to come to its end in time."""
        self._after(sum(asdict(self._deadlines).values()) + _SLACK_S, self._replace_keeper)

    def escalate(self) -> None:
        """Kill now."""
        if self._adoption is not None:
            self._adoption.escalate()
            return
        self.keeper.escalate()
        self._after(self._deadlines.kill_s, self._replace_keeper)

    def adopt(self) -> None:
        """End it in the keeper's place: all that the keeper held is ours now."""
        leftovers = Leftovers(self.keeper.segments_before, *self._owned)
        self._adoption = Adoption(self._deadlines, leftovers, childless=self._childless)
        self._step()

    def release(self) -> None:
        """Let go of it; should something of it still run, its keeper ends it then."""
        for timer in self._timers:
            timer.cancel()
        self._io.remove_reader(self.keeper.channel)
        self.keeper.close()

    def _on_readable(self) -> None:
        messages = self.keeper.events()
        if messages is None:
            self._io.remove_reader(self.keeper.channel)
            if self._launched and not self.ended.group_is_over:
                self._listener.lost()
            return
        for message in messages:
            if message["event"] == "ended":
                self.ended.by_keeper(message)
                self._listener.emptied()
            else:
                self._listener.heard(message)

    def _replace_keeper(self) -> None:
        if not self.ended.group_is_over and self._adoption is None:
            self._listener.replacing()
            signals.send(self.keeper.id, signal.SIGKILL)

    def _step(self) -> None:
        if self._adoption is None:
            return
        delay = self._adoption.step()
        if delay is not None:
            self._after(delay, self._step)
            return
        self.ended.by_adoption(*self._adoption.result())
        self._listener.emptied()

    def _after(self, delay_s: float, callback: Callable[[], None]) -> None:
        self._timers.append(self._io.call_later(delay_s, callback))
