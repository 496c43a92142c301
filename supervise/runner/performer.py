"""Connects the lifecycle to the world: every effect is one method here, whatever comes of it is posted as an event."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from supervise import lifecycle as life
from supervise.group.reaping import Reaper
from supervise.host import signals
from supervise.lifecycle import Effect, State
from supervise.model import news
from supervise.model.litter import FileId
from supervise.model.process import ProcessId
from supervise.model.tier import Tier
from supervise.runner import launch
from supervise.runner.attempt import Opened
from supervise.runner.audience import Audience
from supervise.runner.chronicle import Chronicle
from supervise.runner.containment import Containment
from supervise.runner.inquest import Inquest
from supervise.runner.journal import Journal
from supervise.runner.passing import PassThrough
from supervise.runner.serving import Serving
from supervise.runner.startup import Startup
from supervise.runner.sweeping import Sweeping
from supervise.runner.tasks import Tasks
from supervise.runner.tiers import TierError
from supervise.runner.timers import Timers
from supervise.runner.upkeep import Upkeep
from supervise.runner.witness import Witness

if TYPE_CHECKING:
    from supervise.attempts.store import Run
    from supervise.group import wire
    from supervise.lifecycle.restart import Restarts
    from supervise.model.diagnosis import Diagnosis
    from supervise.report.console import Console
    from supervise.runner.loop import Loop
    from supervise.runner.plan import Plan
    from supervise.runner.restarting import Memory
    from supervise.runner.world import World


# When members are noted: after this many seconds, and then at twice the distance, up to the last.
_NOTE_FIRST_S, _NOTE_LAST_S = 0.25, 64.0


class Performer:
    """Performs the effects of one attempt.

    Args:
        loop: where events are posted.
        plan: what is to be run.
        command: the server's command line, unchanged.
        program: path of its executable.
        run: the run it belongs to; its lock is held.
        console: where people read.
        world: the outside.
        memory: of the attempts before it, None if there is to be none after it.
        audience: who else listens.

    Attributes:
        diagnosis: what its log says, once it is over.
    """

    def __init__(
        self,
        loop: Loop,
        plan: Plan,
        command: Sequence[str],
        program: str,
        run: Run,
        console: Console,
        world: World,
        memory: Memory | None = None,
        audience: Audience | None = None,
    ) -> None:
        self._loop, self._plan, self._run, self._console, self._world = loop, plan, run, console, world
        self._audience = audience or Audience((), console)
        self._command, self._program, self._memory = command, program, memory
        keeper = world.start_keeper()
        self._reaper = Reaper(self._on_child_end)
        self._group = Containment(keeper, plan.deadlines, self, childless=self._reaper.reap)
        self.journal = Journal(run, console, keeper.id, keeper.guard, world.tiers, memory.next if memory else None)
        self._startup = Startup(loop, plan, self._group, self.journal, console, world, self._audience.tell)
        self._serving = Serving(loop, plan, self._startup, console, self._audience, world)
        self._sweeping = Sweeping(loop, self.journal, console, world, memory, self._audience.tell)
        self._inquest = Inquest(self._group.ended, self._startup, plan.options.ready_timeout_s, world)
        self._chronicle = Chronicle(self.journal, self._startup, plan, console, self._audience, world)
        self._witness: Witness | None = None
        self.diagnosis: Diagnosis | None = None
        self._restarts: Restarts | None = None
        self._tasks = Tasks(self.broken)
        self._upkeep = Upkeep(self.journal, {"keeper": keeper.id, "guard": keeper.guard}, console)
        self._timers = Timers(asyncio.get_running_loop(), self._upkeep.stood_still)
        self.passing = PassThrough(self._group, self._timers)

    @property
    def opened(self) -> Opened | None:
        """The attempt, once it has begun."""
        return self.journal.opened

    def begin(self) -> None:
        """Start with the slate."""
        self._group.listen()
        self._tasks.start(self._startup.prepare(), self._sweeping.sweep(self._group.keeper.helpers()))

    def perform(self, effect: Effect) -> None:
        """Start one effect."""
        {
            Effect.CANCEL_SLATE: self._sweeping.cancel,
            Effect.LAUNCH: self._launch,
            Effect.ARM_LINGER: lambda: self._later(self._plan.profile.linger_s, life.LingerExpired()),
            Effect.ANNOUNCE_READY: lambda: self._serving.begin(self.opened),
            Effect.CAPTURE: self._capture,
            Effect.STOP_GROUP: self._stop_group,
            Effect.ESCALATE: self._group.escalate,
            Effect.ADOPT_GROUP: self._adopt_group,
            Effect.VERIFY: self._verify,
        }[effect]()

    def entered(self, state: State) -> None:
        """Publish the state; tell people why it is ending."""
        self._upkeep.entered(state)
        self._serving.entered(state)
        if self._chronicle.entered(state):
            self._group.leader_died()

    def broken(self, error: BaseException) -> None:
        """Something of ours raised: what was begun is ended."""
        self.journal.broken(error)
        self._loop.post(life.Broken())

    def reap(self) -> None:
        """Reap every child that has ended."""
        self._reaper.reap()

    def conclude(self, end: life.Done | life.Waiting) -> None:
        """Tell and write down how it ended; what is to be followed by another attempt is over all the same."""
        if self.opened is None:
            return
        if self._memory and self._restarts and isinstance(end, life.Waiting) and end.goes_on:
            self._memory.relaunched(self.diagnosis, self._restarts)
        self._chronicle.conclude(self._run, self._group.ended, self.diagnosis, end)
        self._run.prune(self._plan.options.pruning, running=self.opened.attempt.number)

    def release(self) -> None:
        """Let go of everything; a group that should still run is ended by its keeper then."""
        self._timers.cancel()
        self._upkeep.release()
        self.passing.finish()
        self._group.release()

    # --- the launch, and what is heard of it --------------------------------------------------------------------------

    def _launch(self) -> None:
        keeper, tiers, gpus = self._group.keeper, self.journal.tiers, self._sweeping.gpus
        opened = Opened.begin(self._run, self._command, self._plan, gpus, keeper=keeper, tiers=tiers)
        self.journal.opened = opened
        self._chronicle.entered(self._loop.state)
        opened.limits_raised = self._world.raise_limits(keeper.id.pid)
        self._console.attempt(opened.attempt.number, opened.attempt.log)
        self._sweeping.record()
        terminal = self.passing.open_terminal(opened.attempt.log) if self._plan.options.tty else None
        self._witness = Witness(opened.attempt, self._group.members, self._console, self._world.in_thread)
        additions = self._plan.profile.environment
        self._startup.launched()
        self._group.launch(
            self._program,
            tuple(self._command),
            launch.environment(os.environ, opened.marker, additions, opened.private),
            log=opened.attempt.log,
            private=opened.private,
            owner=opened.marker.id,
            pidns=tiers.pidns,
            terminal=terminal,
        )
        self._sweeping.look_at_packages()
        self._later(self._plan.options.ready_timeout_s, life.StartExpired())

    def heard(self, message: wire.Message) -> None:
        """What the keeper says."""
        match message["event"]:
            case "spawned":
                self._on_spawned(ProcessId(message["pid"], message["ticks"]))
            case "refused":
                self._refused(Tier(message["tier"]), message["why"])
            case "suspended":
                self.passing.stop_ourselves()
            case "failed":
                self._console.error(launch.explain_errno(self._command[0], message["errno"]))
                self._loop.post(life.LaunchFailed(message["errno"]))
            case "leader":
                self._leader_exited(message["status"])
            case "stage":
                self._on_stage(message["stage"])
            case "noted":
                members, segments = message["members"], message["files"]
                self.journal.noted((ProcessId(*each) for each in members), (FileId(*each) for each in segments))

    def _on_child_end(self, pid: int, status: int) -> None:
        """Of a leader that fell to us we hear what its keeper can no longer tell."""
        keeper = self._group.keeper
        if pid == keeper.guard.pid and signals.alive(keeper.id):
            self._console.guard_lost()
        if self.opened and self.opened.leader and pid == self.opened.leader.pid:
            self._leader_exited(os.waitstatus_to_exitcode(status))

    def _leader_exited(self, status: int) -> None:
        """Its last words come first: they were written before it ended."""
        self._startup.catch_up()
        self._loop.post(life.LeaderExited(status))

    def _on_spawned(self, leader: ProcessId) -> None:
        if self.opened is None:
            return
        self.journal.launched(leader)
        self.journal.publish(self._loop.state, self._startup.phase, self._startup.fatal)
        self.passing.launched()
        self._audience.tell(news.Launched(self.opened.attempt.number, self.opened.attempt.log, leader.pid))
        self._startup.follow(self.opened.attempt)
        self._tasks.start(self._startup.watch())
        self._note_members(_NOTE_FIRST_S)

    def _note_members(self, after_s: float) -> None:
        """Often at first, seldom later: who was seen once can be found again by whoever cleans up after us."""
        self._group.note()
        self._upkeep.look()
        self._timers.later(after_s, lambda: self._note_members(min(after_s * 2, _NOTE_LAST_S)))

    def _refused(self, tier: Tier, why: str) -> None:
        self.journal.refused(tier, why)
        if tier in self._plan.options.wanted.required:
            self.broken(TierError(f"--require-tier {tier}: {why}"))

    # --- the end ------------------------------------------------------------------------------------------------------

    def lost(self) -> None:
        """The keeper is gone, its group perhaps not."""
        if isinstance(self._loop.state, life.Sweeping):
            self._console.error("the keeper was killed before the launch; nothing was launched")
        self._loop.post(life.KeeperLost())

    def emptied(self) -> None:
        """The stop path is over."""
        self._loop.post(life.GroupEnded(len(self._group.ended.survivors)))

    def replacing(self) -> None:
        """The keeper does not answer."""
        self._console.error("the keeper does not answer; ending the group in its place")

    def _capture(self) -> None:
        self._tasks.start(self._take_evidence())

    async def _take_evidence(self) -> None:
        if self._witness is not None:
            await self._witness.before_stop()
        self._loop.post(life.EvidenceTaken())

    def _stop_group(self) -> None:
        self._startup.mute()
        self._group.stop(attended=not self._chronicle.unblamed)

    def _on_stage(self, stage: str) -> None:
        if stage == "evidence":
            self._tasks.start(self._look_at_the_stubborn())
            return
        self._startup.mute()
        self._console.stage(stage)

    async def _look_at_the_stubborn(self) -> None:
        if self._witness is not None and not self._chronicle.unblamed:
            await self._witness.before_kill()
        self._group.proceed()

    def _adopt_group(self) -> None:
        self._console.keeper_lost()
        self._group.adopt()

    def _verify(self) -> None:
        self._tasks.start(self._look_once_more())

    async def _look_once_more(self) -> None:
        await self._inquest.verify(self._sweeping.gpus)
        await self._sweeping.recorded()
        self.passing.finish()
        reason = self._chronicle.reason or life.Reason(life.Cause.ASKED)
        self.diagnosis = await self._inquest.diagnose(reason, self.opened)
        attempt = self.opened.attempt.number if self.opened else 0
        if self._memory is not None and attempt:
            up_s = self._startup.up_s(self._chronicle.ended_at)
            self._restarts = await self._memory.facts(attempt, up_s, self._world.in_thread)
        self._loop.post(life.Verified(self.diagnosis, self._group.ended.aftermath.held, self._restarts, attempt))

    def _later(self, delay_s: float, event: life.Event) -> None:
        self._timers.later(delay_s, lambda: self._loop.post(event))
