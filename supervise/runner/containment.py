"""The group while it is ours to end: by its keeper while that lives, in its place afterwards."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from typing import Protocol

from supervise.group import wire
from supervise.group.ending import Deadlines
from supervise.group.handle import Adoption, Keeper
from supervise.group.leftovers import Leftovers
from supervise.group.members import living_below
from supervise.host import signals
from supervise.model.litter import FileId
from supervise.model.process import Process
from supervise.runner.ended import Ended

# A keeper that does not finish by its own deadlines is stopped or stuck: it is killed, and we take its place.
_SLACK_S = 10.0
# They end within a millisecond of having nothing left to hold; the next start wants the lock that they hold.
_FAREWELL_S = 2.0
_FAREWELL_LOOK_S = 0.001


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
        self._launched = self._escalated = self._lost = False
        self._owned: tuple[str | None, str] = (None, "")
        self._segments: tuple[FileId, ...] = ()
        self._adoption: Adoption | None = None
        self._timers: list[asyncio.TimerHandle] = []

    def listen(self) -> None:
        """From now on hear the keeper."""
        self._io.add_reader(self.keeper.channel, self._on_readable)
        self._io.call_soon(self._on_readable)

    def launch(
        self,
        program: str,
        argv: tuple[str, ...],
        env: dict[str, str],
        *,
        log: str,
        private: str | None,
        owner: str,
        pidns: bool,
        terminal: str | None,
    ) -> None:
        """Have the server launched; see `group.handle.Keeper.spawn`.

        Should its leader end by itself, the others are looked at before they are killed.
        """
        self._launched, self._owned = True, (private, owner)
        if self._lost:
            # It died between the last look and this one; nobody will hear of it again.
            self._listener.lost()
            return
        deadlines = self._deadlines.attended()
        self.keeper.spawn(
            program,
            argv,
            env,
            log=log,
            deadlines=deadlines,
            runtime_dir=private,
            owner=owner,
            pidns=pidns,
            terminal=terminal,
        )

    def members(self) -> list[Process]:
        """Who belongs to it now."""
        return living_below(self.keeper.id.pid)

    def note(self) -> None:
        """Have its members noted, and the shared memory that they use now."""
        self.keeper.note()

    def signal(self, signum: int) -> None:
        """Pass a signal on to the leader."""
        self.keeper.signal(signum)

    def suspend(self) -> None:
        """Stop all members; `suspended` is heard when they are."""
        self.keeper.suspend()

    def resume(self) -> None:
        """Continue them."""
        self.keeper.resume()

    def stop(self, *, attended: bool) -> None:
        """Begin the stop path; `attended` if those that do not obey are to be looked at before they are killed."""
        deadlines = self._deadlines.attended() if attended else self._deadlines
        # Whoever was stopped (kill -STOP) would walk no path at all.
        for helper in (self.keeper.guard, self.keeper.id):
            signals.send(helper, signal.SIGCONT)
        self.keeper.stop(deadlines)
        self._expect_end(deadlines)

    def proceed(self) -> None:
        """They have been looked at."""
        self.keeper.proceed()

    def leader_died(self) -> None:
        """The keeper has begun the stop path by itself."""
        self._expect_end(self._deadlines.attended())

    def escalate(self) -> None:
        """Kill now."""
        self._escalated = True
        if self._adoption is not None:
            self._adoption.escalate()
            return
        self.keeper.escalate()
        self._after(self._deadlines.kill_s + _SLACK_S, self._replace_keeper)

    def adopt(self) -> None:
        """End it in the keeper's place: all that the keeper held is ours now."""
        leftovers = Leftovers(self.keeper.segments_before, *self._owned)
        leftovers.recall(self._segments)
        self._adoption = Adoption(
            self._deadlines,
            leftovers,
            keeper=self.keeper,
            childless=self._childless,
        )
        if self._escalated:
            self._adoption.escalate()
        self._step()

    def release(self) -> None:
        """Let go of it, and see its keeper and guard off; should something of it still run, they end it then."""
        for timer in self._timers:
            timer.cancel()
        self._io.remove_reader(self.keeper.channel)
        self.keeper.close()
        if not self._launched or (self.ended.group_is_over and not self.ended.survivors):
            self._see_off()

    def _see_off(self) -> None:
        """They have nothing left to hold; one that is stopped would hold the lock for ever."""
        until = time.monotonic() + _FAREWELL_S
        while signals.alive(self.keeper.guard) and time.monotonic() < until:
            time.sleep(_FAREWELL_LOOK_S)
        for helper in (self.keeper.guard, self.keeper.id):
            signals.send(helper, signal.SIGKILL)

    def _on_readable(self) -> None:
        messages = self.keeper.events()
        if messages is None:
            self._io.remove_reader(self.keeper.channel)
            self._lost = True
            if not self.ended.group_is_over:
                self._listener.lost()
            return
        for message in messages:
            if message["event"] == "ended":
                self.ended.by_keeper(message)
                self._listener.emptied()
                continue
            if message["event"] == "noted":
                self._segments = tuple(FileId(*file) for file in message["files"])
            self._listener.heard(message)

    def _expect_end(self, deadlines: Deadlines) -> None:
        """Whoever walks the stop path has to come to its end in time."""
        self._after(deadlines.total_s + _SLACK_S, self._replace_keeper)

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
        self.ended.by_adoption(*self._adoption.result(), self._adoption.sent)
        self._listener.emptied()

    def _after(self, delay_s: float, callback: Callable[[], None]) -> None:
        self._timers.append(self._io.call_later(delay_s, callback))
