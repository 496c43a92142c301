"""A server under supervision: one attempt, or one after the other, each with a keeper and a loop of its own."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from supervise import lifecycle as life
from supervise.attempts.store import Run
from supervise.model.exits import Exit
from supervise.model.news import Over
from supervise.report.console import Console
from supervise.runner.audience import Audience
from supervise.runner.listeners import Company
from supervise.runner.loop import Loop
from supervise.runner.performer import Performer
from supervise.runner.plan import Plan
from supervise.runner.routing import Passing, route
from supervise.runner.threads import Spared
from supervise.runner.world import World

if TYPE_CHECKING:
    from supervise.runner.restarting import Memory
    from supervise.runner.watchlist import Watchlist


# A callback that fails in each turn of the loop, for want of memory, say, keeps all others from theirs.
_MOST_BREAKAGES = 50


class Outside(Protocol):
    """Where each attempt gets its world."""

    def world(self) -> World:
        """The next one's."""

    def renew(self) -> None:
        """The last one is over, another one begins."""


class Acting(Protocol):
    """Whoever performs at the moment: an attempt, or the wait for the next one."""

    @property
    def passing(self) -> Passing:
        """Takes signals that mean the server."""

    def reap(self) -> None:
        """A child has ended."""

    def broken(self, error: BaseException) -> None:
        """Something of ours raised."""


class Service:
    """One command line, launched as often as the policy has it.

    Args:
        command: the server's command line, unchanged.
        program: path of its executable.
        planned: what is to be run.
        target: the run; its lock is held until the last attempt is over.
        console: where people read.
        outside: each attempt's world.
        company: who listens, from the first attempt to the last.
    """

    def __init__(
        self,
        command: Sequence[str],
        program: str,
        planned: Plan,
        target: Run,
        console: Console,
        outside: Outside,
        company: Company | None = None,
    ) -> None:
        self._command, self._program, self._planned = command, program, planned
        self._target, self._console, self._outside = target, console, outside
        self._company = company or Company(Audience((), console))
        self._audience = self._company.audience
        self._memory = _memory(planned, target, self._company.watchlist)
        self._loop = Loop(life.Sweeping())
        self._acting: Acting | None = None
        self._spared: set[str] = set()
        self._breakages = 0

    async def run(self) -> life.Done:
        """Attempt after attempt, until there is to be no other.

        Raises:
            TierError: a tier that was required cannot be had a second time.
            OSError: no further keeper could be started.
        """
        performer = self._performer()
        # For good: a signal that has been taken and not been told yet must find whoever acts by then.
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: self._raised(context.get("exception") or RuntimeError(context["message"]))
        )
        restore = route(self.post, self, self._reap)
        self._company.begin(self.post)
        try:
            while True:
                end = await self._attempt(performer)
                if isinstance(end, life.Done):
                    return self._over(end, performer)
                if (stopped := await self._wait(end, performer)) is not None:
                    return self._over(stopped, performer)
                self._outside.renew()
                performer = self._performer()
        except Exception as error:
            performer.journal.gone(error, self._memory.next if self._memory else "the launch")
            self._audience.tell(Over(int(Exit.INTERNAL), str(error), None))
            raise
        finally:
            self._acting = None
            await self._company.end()
            restore()

    def _over(self, end: life.Done, last: Performer) -> life.Done:
        found = last.diagnosis
        cause = (found.text or found.meaning) if found and found.fatal else None
        self._audience.tell(Over(int(end.status), end.why, cause))
        return end

    def post(self, event: life.Event) -> None:
        """Tell whoever acts of an event."""
        if isinstance(event, life.StopAsked):
            self._company.asked(event.signum)
        self._loop.post(event)

    def signal(self, signum: int) -> None:
        """One that means the server; a window that has changed means our view as well."""
        if signum == signal.SIGWINCH:
            self._console.resized()
        if self._acting is not None:
            self._acting.passing.signal(signum)

    def suspend(self) -> None:
        """Ctrl-Z."""
        self._console.suspend()
        if self._acting is not None:
            self._acting.passing.suspend()

    def _reap(self) -> None:
        if self._acting is not None:
            self._acting.reap()

    def _raised(self, error: BaseException) -> None:
        if isinstance(error, Spared):
            if str(error) not in self._spared:
                self._spared.add(str(error))
                self._console.error(str(error))
            return
        self._breakages += 1
        if self._breakages > _MOST_BREAKAGES:
            self._console.error("supervise fails again and again, and leaves; its keeper ends what runs")
            self._audience.close()
            os._exit(Exit.INTERNAL)
        if self._acting is not None:
            self._acting.broken(error)

    def _performer(self) -> Performer:
        performer = Performer(
            self._loop,
            self._planned,
            self._command,
            self._program,
            self._target,
            self._console,
            self._outside.world(),
            self._memory,
            self._audience,
        )
        self._acting = performer
        return performer

    async def _attempt(self, performer: Performer) -> life.Done | life.Waiting:
        try:
            performer.begin()
            end = await self._loop.run(performer)
            # From a sweep there is no way back to one but through a wait.
            assert not isinstance(end, life.Sweeping)
            performer.conclude(end)
            return end
        finally:
            performer.release()
            self._loop = self._loop.next()

    async def _wait(self, waiting: life.Waiting, over: Performer) -> life.Done | None:
        """Wait for the next attempt; None if it is to begin now."""
        from supervise.runner.restarting import Pause

        self._acting = pause = Pause(self._loop, waiting, over.journal, self._console, over.diagnosis, self._audience)
        try:
            pause.begin()
            end = await self._loop.run(pause)
            return end if isinstance(end, life.Done) else None
        finally:
            pause.release()
            self._loop = self._loop.next()


def _memory(planned: Plan, target: Run, watchlist: Watchlist | None) -> Memory | None:
    options = planned.options
    if options.restart is None and not options.watch:
        return None
    from supervise.runner.restarting import Memory

    if watchlist is None and options.watch:
        from supervise.runner.watchlist import Watchlist

        watchlist = Watchlist(options.watch, but=os.path.dirname(target.path))
    return Memory(options.restart, watchlist)
