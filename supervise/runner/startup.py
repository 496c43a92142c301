"""The start-up of one server, as its log and its port tell it: followed from the launch until both say it is up."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from supervise import lifecycle as life
from supervise.model.news import News, Progressed
from supervise.model.probe import Answer
from supervise.runner.readiness import Readiness
from supervise.text import duration

if TYPE_CHECKING:
    from supervise.attempts.eta import Eta
    from supervise.attempts.store import Attempt
    from supervise.model.diagnosis import Fatal
    from supervise.preflight.edited import Edited
    from supervise.report.console import Console
    from supervise.runner.containment import Containment
    from supervise.runner.effect import Effect
    from supervise.runner.journal import Journal
    from supervise.runner.loop import Loop
    from supervise.runner.plan import Plan
    from supervise.runner.server_log import ServerLog
    from supervise.runner.world import World


class Startup:
    """Posts what becomes of it.

    Args:
        loop: where events are posted.
        plan: what is run.
        group: the server's.
        journal: where phases are published.
        console: where people read.
        world: the outside.
        tell: hears of what goes on.

    Attributes:
        log: the server's, once it has begun.
        impostor: who answers on its port instead of it, as people read it.
        fatal: what its log said when it said that it cannot go on, None while it has not.
        ready_s: seconds from the launch until it was ready, None if it never was.
    """

    def __init__(
        self,
        loop: Loop,
        plan: Plan,
        group: Containment,
        journal: Journal,
        console: Console,
        world: World,
        tell: Callable[[News], None] = lambda _: None,
    ) -> None:
        self.log: ServerLog | None = None
        self.impostor: str | None = None
        self.fatal: Fatal | None = None
        self.ready_s: float | None = None
        self._loop, self._plan, self._group = loop, plan, group
        self._journal, self._console, self._world, self._tell = journal, console, world, tell
        self._attempt: Attempt | None = None
        self._steps = 0
        self._before: Sequence[Mapping[str, float]] = ()
        self._phases: dict[str, float] = {}
        self._launched_at = 0.0
        self._effect: Effect | None = None
        self._readiness = Readiness(
            plan.need,
            world.probe,
            expects_line=bool(plan.profile.ready.lines),
            clock=world.clock,
            in_thread=world.in_thread,
            blind=journal.blind,
        )

    @property
    def phase(self) -> str | None:
        """The phase that it is in."""
        return self.log.phase if self.log else None

    @property
    def rival(self) -> str | None:
        """Who answered on its port when it was looked at last, None if that was nobody else."""
        last = self._readiness.last
        return last.detail if last is not None and last.answer is Answer.NOT_OURS else None

    @property
    def phases(self) -> dict[str, float]:
        """Seconds that each phase took: up to readiness, or until now if it never was ready."""
        return self._phases or (self.log.phases(self._world.clock()) if self.log else {})

    def up_s(self, until: float) -> float | None:
        """How long it has been ready at this moment (monotonic), None if it never was."""
        return None if self.ready_s is None else until - self._launched_at - self.ready_s

    async def prepare(self) -> None:
        """While the slate is swept: see to it that it can be told later what took effect."""
        if self._world.edited is not None:
            self._effect = await self._world.in_thread(self._make_effect, self._world.edited)
            await self._effect.prepare()

    def _make_effect(self, edited: Callable[[], Edited]) -> Effect:
        # Imported in a thread: the sweep goes on meanwhile.
        from supervise.runner.effect import Effect

        return Effect(self._plan, edited, self._group.members, self._console, self._world.in_thread, self._tell)

    def effect(self) -> dict[str, Any] | None:
        """Who listened, which edited files were imported, whether the flags arrived; None if nothing is known."""
        served = self.ready_s is not None and (self._plan.need.doors or self._plan.need.uds)
        listener = self.impostor or ("ours" if served else self.rival)
        if self._effect is None:
            return {"listener": listener} if listener not in (None, "ours") else None
        return self._effect.record(listener)

    def launched(self) -> None:
        """The clock runs from here."""
        if self._effect is not None:
            self._effect.launching()
        self._launched_at = self._world.clock()

    def follow(self, attempt: Attempt) -> None:
        """The server has begun: read what it writes."""
        # Reading the log costs a start-up of its own: it begins once the server has begun.
        from supervise.runner.server_log import ServerLog, known_failures

        watch = self._plan.options.watch
        self._attempt = attempt
        if self._effect is not None:
            self._effect.follow(attempt.log)
        self.log = ServerLog(
            attempt,
            self._plan.profile,
            known_failures(self._plan.profile, self._console),
            self._plan.options.bound,
            self._world.clock,
            on_progress=self._on_progress,
            on_ready_line=self._readiness.announce,
            on_fatal=self._on_fatal,
            user=(*watch, *map(os.path.realpath, watch)),
            on_fault=self._console.error,
        )

    def catch_up(self) -> None:
        """Read what has been written until now."""
        if self.log is not None:
            self.log.catch_up()

    def mute(self) -> None:
        """What is written once somebody has been told to stop is of our own making, and no cause of anything."""
        if self.log is not None:
            state = self._loop.state
            asked = isinstance(state, life.Stopping | life.Killing) and state.reason.cause is life.Cause.ASKED
            # Of one that was dying already, what it died of is still told.
            self.log.mute(asked=asked and self.fatal is None)

    async def watch(self) -> None:
        """Look until it is ready, until another server turns out to answer in its place, or until it stands still."""
        await asyncio.gather(self._probe(), self._remember(), self._be_patient(), self._see_effect())

    async def _see_effect(self) -> None:
        if self._effect is not None:
            await self._effect.watch(self._starting)

    async def _probe(self) -> None:
        probed = await self._readiness.found(self._group.members, self._starting)
        if probed is None:
            return
        if probed.answer is Answer.YES:
            if probed.note:
                self._console.line("note", probed.note)
            self._loop.post(life.Agreed())
            return
        self.impostor = f"the server says it is up, but its port is answered by {probed.detail}"
        self._console.error(self.impostor)
        if self.fatal is None:
            self._console.note(f"it is ended in {duration(self._plan.profile.linger_s)}")
        self._loop.post(life.FatalSeen())

    def forgive(self) -> None:
        """It serves: a line that was called fatal was not."""
        if self.fatal is not None and self.log is not None:
            self._console.line("note", f"it serves all the same, so that line was not fatal: {self.fatal.text}")
            self.fatal = None
            self.log.forgive()

    def announce_ready(self) -> None:
        """It is up: all proofs agree."""
        now = self._world.clock()
        self.ready_s = now - self._launched_at
        self._phases = self.log.phases(now) if self.log else {}
        self._group.note()
        if self._effect is not None:
            self._effect.ready()
        self._console.ready(self.ready_s, self._phases, self._plan.need)

    async def _remember(self) -> None:
        """How long it took before."""
        if self._attempt is None:
            return
        from supervise.attempts import eta

        with contextlib.suppress(OSError, MemoryError, RuntimeError):
            self._before = await self._world.in_thread(eta.history, self._attempt, self._plan.profile)
        if self._before and self._starting():
            self._publish(self._eta(None))

    async def _be_patient(self) -> None:
        """Not for ever."""
        if self._world.effort is None or self._attempt is None:
            return
        from supervise.runner.patience import Patience

        effort, root = self._world.effort, self._group.keeper.id.pid
        patience = Patience(
            self._plan.profile,
            self._plan.options.stall_timeout_s,
            self._plan.options.ready_timeout_s,
            self._attempt.log,
            look=lambda gpus: effort(root, gpus),
            clock=self._world.clock,
            in_thread=self._world.in_thread,
            console=self._console,
            tell=self._tell,
            post=self._loop.post,
        )
        await patience.watch(self._starting, lambda: self.phase, lambda: self._steps)

    def _eta(self, percent: float | None) -> Eta | None:
        if not self._before:
            return None
        from supervise.attempts import eta

        return eta.remaining(self._before, self.phases, percent)

    def _publish(self, eta: Eta | None) -> None:
        """The phase, and when it should be ready, in seconds since the epoch."""
        known = {} if eta is None or eta.seconds is None else {"ready_eta": round(time.time() + eta.seconds)}
        self._journal.publish(self._loop.state, self.phase, self.fatal, **known)

    def _starting(self) -> bool:
        return isinstance(self._loop.state, life.Starting)

    def _on_progress(self, new_phase: bool) -> None:
        if self.log is None or self.log.progress is None or not self._starting():
            return
        self._steps += 1
        progress, elapsed_s = self.log.progress, self._world.clock() - self._launched_at
        eta = self._eta(progress.percent)
        self._console.progress(progress, elapsed_s, new=new_phase, eta=_told(eta, elapsed_s))
        self._tell(
            Progressed(
                progress.phase,
                progress.percent,
                progress.done,
                progress.total,
                elapsed_s,
                None if eta is None else eta.seconds,
                new_phase,
            )
        )
        if new_phase:
            self._group.note()
            self._publish(eta)

    def _on_fatal(self, fatal: Fatal) -> None:
        """Only a server that runs can be fatally wounded: after our own stop, crash-looking lines are no crash."""
        if isinstance(self._loop.state, life.Starting | life.Ready) and not self._loop.state.fatal:
            self.fatal = fatal
            self._console.fatal(fatal.text, fatal.meaning, self._plan.profile.linger_s)
            self._loop.post(life.FatalSeen())


def _told(eta: Eta | None, elapsed_s: float) -> str:
    told = "" if eta is None else eta.told(elapsed_s)
    return f"  {told}" if told else ""
