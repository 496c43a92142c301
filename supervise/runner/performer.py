"""Connects the lifecycle to the world: every effect is one method here, whatever comes of it is posted as an event."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from supervise import lifecycle as life
from supervise.group.reaping import Reaper
from supervise.host import signals
from supervise.lifecycle import Effect, State
from supervise.model.litter import FileId
from supervise.model.probe import Answer
from supervise.model.process import ProcessId
from supervise.model.slate import SlateResult
from supervise.model.snapshot import NO_GPUS
from supervise.model.tier import Tier
from supervise.runner import cause, launch
from supervise.runner.attempt import Opened
from supervise.runner.containment import Containment
from supervise.runner.journal import Journal
from supervise.runner.packages import look
from supervise.runner.passing import PassThrough
from supervise.runner.readiness import Readiness
from supervise.runner.repeating import repetition
from supervise.runner.report import how, outcome, tell, why
from supervise.runner.tasks import Tasks
from supervise.runner.tiers import TierError
from supervise.runner.timers import Timers
from supervise.runner.witness import Witness

if TYPE_CHECKING:
    from supervise.attempts.store import Run
    from supervise.group import wire
    from supervise.lifecycle.restart import Restarts
    from supervise.model.diagnosis import Diagnosis
    from supervise.model.slate import Finding
    from supervise.report.console import Console
    from supervise.runner.loop import Loop
    from supervise.runner.plan import Plan
    from supervise.runner.restarting import Memory
    from supervise.runner.server_log import ServerLog
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
    ) -> None:
        self.diagnosis: Diagnosis | None = None
        self.slate: SlateResult | None = None
        self._reason: life.Reason | None = None
        self.ready_s: float | None = None
        self.phases: dict[str, float] = {}
        self._loop, self._plan, self._run, self._console, self._world = loop, plan, run, console, world
        self._command, self._program, self._memory = command, program, memory
        self._io = asyncio.get_running_loop()
        self._cancelled = False
        keeper = world.start_keeper()
        self._reaper = Reaper(self._on_child_end)
        self._group = Containment(keeper, plan.deadlines, self, childless=self._reaper.reap)
        self.journal = Journal(run, console, keeper.id, keeper.guard, world.tiers)
        self._log: ServerLog | None = None
        self._witness: Witness | None = None
        self._readiness = Readiness(
            plan.need,
            world.probe,
            expects_line=bool(plan.profile.ready.lines),
            clock=world.clock,
            in_thread=world.in_thread,
        )
        self._impostor: str | None = None
        self._circumstances = cause.Circumstances()
        self._launched_at = self._ended_at = 0.0
        self._restarts: Restarts | None = None
        self._tasks = Tasks(self.broken)
        self._timers = Timers(self._io)
        self.passing = PassThrough(self._group, self._timers)

    @property
    def opened(self) -> Opened | None:
        """The attempt, once it has begun."""
        return self.journal.opened

    def begin(self) -> None:
        """Start with the slate."""
        self._group.listen()
        self._tasks.start(self._sweep())

    def perform(self, effect: Effect) -> None:
        """Start one effect."""
        {
            Effect.CANCEL_SLATE: self._cancel_slate,
            Effect.LAUNCH: self._launch,
            Effect.ARM_LINGER: self._arm_linger,
            Effect.ANNOUNCE_READY: self._announce_ready,
            Effect.CAPTURE: self._capture,
            Effect.STOP_GROUP: self._stop_group,
            Effect.ESCALATE: self._group.escalate,
            Effect.ADOPT_GROUP: self._adopt_group,
            Effect.VERIFY: self._verify,
        }[effect]()

    def entered(self, state: State) -> None:
        """Publish the state; tell people why it is ending."""
        self._publish(state)
        self.journal.append(state)
        begins = self._reason is None
        if isinstance(state, life.Capturing | life.Stopping | life.Killing | life.Verifying):
            if begins:
                self._ended_at = self._world.clock()
            self._reason = state.reason
        if isinstance(state, life.Stopping):
            self._console.stopping(why(state.reason))
        elif begins and isinstance(state, life.Killing) and state.reason.cause is life.Cause.DIED:
            self._console.leader_exited(how(state.reason.status or 0))
            self._group.leader_died()

    def broken(self, error: BaseException) -> None:
        """Something of ours raised: say it in one line, keep the details, and end what was begun."""
        details = self.journal.details(error)
        self._console.error(f"supervise itself failed: {type(error).__name__}: {error}; details in {details}")
        self._loop.post(life.Broken())

    def reap(self) -> None:
        """Reap every child that has ended."""
        self._reaper.reap()

    def conclude(self, end: life.Done | life.Waiting) -> None:
        """Tell and write down how it ended; what is to be followed by another attempt is over all the same."""
        if self.opened is None or self._reason is None:
            return
        attempt, reason = self.opened.attempt, self._reason
        done = end.done if isinstance(end, life.Waiting) else end
        if self._memory is not None and self._restarts is not None and isinstance(end, life.Waiting):
            self._memory.relaunched(self.diagnosis, self._restarts)
        repeats = repetition(self._run, attempt, reason, self.diagnosis)
        phases = self.phases or (self._log.phases(self._world.clock()) if self._log else {})
        result = outcome(self._group.ended, reason, self.diagnosis, done, self.ready_s, phases)
        result["same_as"] = repeats.same_as
        try:
            self._run.close_attempt(attempt, result)
        except OSError as error:
            self._console.error(f"{attempt.path}/outcome.json: {error.strerror}")
        tell(self._group.ended, reason, self.diagnosis, attempt.log, end, self._console, repeats)
        self._run.prune(self._plan.options.pruning, running=attempt.number)

    def release(self) -> None:
        """Let go of everything; a group that should still run is ended by its keeper then."""
        self._timers.cancel()
        if self.passing.terminal is not None:
            self.passing.terminal.finish()
        self._group.release()

    # --- slate --------------------------------------------------------------------------------------------------------

    async def _sweep(self) -> None:
        result = await self._world.in_thread(self._world.sweep, lambda: self._cancelled, self._group.keeper.helpers())
        self.slate = result
        self._console.slate(result)
        if not result.clean:
            self._console.note("nothing was launched")
            self.journal.slate(result)
        self._loop.post(life.SlateCleaned() if result.clean else life.SlateRefused())

    def _cancel_slate(self) -> None:
        self._cancelled = True

    # --- launch and start-up ------------------------------------------------------------------------------------------

    def _launch(self) -> None:
        keeper, tiers = self._group.keeper, self.journal.tiers
        opened = Opened.begin(
            self._run, self._command, self._plan.need, guard=keeper.guard, keeper=keeper.id, tiers=tiers
        )
        self.journal.opened = opened
        opened.limits_raised = self._world.raise_limits(keeper.id.pid)
        self._console.attempt(opened.attempt.number, opened.attempt.log)
        self.journal.slate(self.slate)
        if self._plan.options.tty:
            from supervise.runner.terminal import Terminal

            self.passing.terminal = Terminal.open(opened.attempt.log)
            self.passing.terminal.start(self._io)
        self._witness = Witness(opened.attempt, self._group.members, self._console, self._world.in_thread)
        additions = self._plan.profile.environment
        self._group.launch(
            self._program,
            tuple(self._command),
            launch.environment(os.environ, opened.marker, additions, opened.private),
            log=opened.attempt.log,
            private=opened.private,
            owner=opened.marker.id,
            pidns=tiers.pidns,
            terminal=self.passing.terminal.slave if self.passing.terminal else None,
        )
        if self._world.packages is not None:
            look(self._world.packages, self._on_packages)
        self._launched_at = self._world.clock()
        self._later(self._plan.options.ready_timeout_s, life.StartExpired())

    def _on_packages(self, findings: tuple[Finding, ...], checks: tuple[str, ...]) -> None:
        for finding in findings:
            self._console.remark(finding)
        if self.slate is not None:
            slate = self.slate
            self.slate = replace(slate, remarks=(*slate.remarks, *findings), checks=(*slate.checks, *checks))
            self.journal.slate(self.slate)

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
                self._on_noted(message)

    def _on_child_end(self, pid: int, status: int) -> None:
        """Of a leader that fell to us we hear what its keeper can no longer tell."""
        keeper = self._group.keeper
        if pid == keeper.guard.pid and signals.alive(keeper.id):
            self._console.guard_lost()
        if self.opened and self.opened.leader and pid == self.opened.leader.pid:
            self._leader_exited(os.waitstatus_to_exitcode(status))

    def _leader_exited(self, status: int) -> None:
        """Its last words come first: they were written before it ended."""
        if self._log is not None:
            self._log.catch_up()
        self._loop.post(life.LeaderExited(status))

    def _on_spawned(self, leader: ProcessId) -> None:
        if self.opened is None:
            return
        # Reading the log costs a start-up of its own: it begins once the server has begun.
        from supervise.runner.server_log import ServerLog, known_failures

        self.opened.leader = leader
        self.journal.record()
        self._publish(self._loop.state)
        if self.passing.terminal is not None:
            self.passing.terminal.launched()
        self._log = ServerLog(
            self.opened.attempt,
            self._plan.profile,
            known_failures(self._plan.profile, self._console),
            self._plan.options.bound,
            self._world.clock,
            on_progress=self._on_progress,
            on_ready_line=self._on_ready_line,
            on_fatal=self._on_fatal,
        )
        self._tasks.start(self._watch_readiness())
        self._note_members(_NOTE_FIRST_S)

    def _note_members(self, after_s: float) -> None:
        """Often at first, seldom later: who was seen once can be found again by whoever cleans up after us."""
        self._group.note()
        self._timers.later(after_s, lambda: self._note_members(min(after_s * 2, _NOTE_LAST_S)))

    def _on_noted(self, message: wire.Message) -> None:
        if self.opened is not None:
            self.opened.segments = tuple(FileId(*file) for file in message["files"])
            self.opened.members = tuple(ProcessId(*member) for member in message["members"])
            self.journal.record()

    def _refused(self, tier: Tier, why: str) -> None:
        """A tier that was promised cannot be had after all."""
        self.journal.tiers = self.journal.tiers.without(tier, why)
        self._console.error(f"no {tier} tier: {why}")
        self.journal.record()
        if tier in self._plan.options.wanted.required:
            self.broken(TierError(f"--require-tier {tier}: {why}"))

    def _on_progress(self, new_phase: bool) -> None:
        if self._log is None or self._log.progress is None or not isinstance(self._loop.state, life.Starting):
            return
        self._console.progress(self._log.progress, self._world.clock() - self._launched_at, new=new_phase)
        if new_phase:
            self._group.note()
            self._publish(self._loop.state)

    def _on_ready_line(self) -> None:
        self._readiness.announce()

    def _on_fatal(self, text: str) -> None:
        """Only a server that runs can be fatally wounded: after our own stop, crash-looking lines are no crash."""
        if isinstance(self._loop.state, life.Starting | life.Ready) and not self._loop.state.fatal:
            self._console.fatal(text, self._plan.profile.linger_s)
            self._loop.post(life.FatalSeen())

    async def _watch_readiness(self) -> None:
        probed = await self._readiness.found(self._group.members, lambda: isinstance(self._loop.state, life.Starting))
        if probed is None:
            return
        if probed.answer is Answer.YES:
            self._loop.post(life.Agreed())
            return
        self._impostor = f"the server says it is up, but its port is answered by {probed.detail}"
        self._console.error(self._impostor)
        self._loop.post(life.FatalSeen())

    def _announce_ready(self) -> None:
        now = self._world.clock()
        self.ready_s = now - self._launched_at
        self.phases = self._log.phases(now) if self._log else {}
        self._group.note()
        self._console.ready(self.ready_s, self.phases, self._plan.need)

    def _arm_linger(self) -> None:
        self._later(self._plan.profile.linger_s, life.LingerExpired())

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
        self._mute()
        asked = self._reason is None or self._reason.cause in (life.Cause.ASKED, life.Cause.BROKEN)
        self._group.stop(attended=not asked)

    def _on_stage(self, stage: str) -> None:
        if stage == "evidence":
            self._tasks.start(self._look_at_the_stubborn())
            return
        self._mute()
        self._console.stage(stage)

    def _mute(self) -> None:
        """What is written once somebody has been told to stop is of our own making, and no cause of anything."""
        if self._log is not None:
            self._log.mute()

    async def _look_at_the_stubborn(self) -> None:
        if self._witness is not None and self._reason is not None and self._reason.cause is not life.Cause.ASKED:
            await self._witness.before_kill()
        self._group.proceed()

    def _adopt_group(self) -> None:
        self._console.keeper_lost()
        self._group.adopt()

    def _verify(self) -> None:
        self._tasks.start(self._look_once_more())

    async def _look_once_more(self) -> None:
        gpus = self.slate.gpus if self.slate else NO_GPUS
        aftermath = await self._world.in_thread(self._world.aftermath, gpus, frozenset(self._group.ended.pids))
        self._group.ended.aftermath = aftermath
        if self.passing.terminal is not None:
            self.passing.terminal.finish()
        await self._world.in_thread(self._group.ended.look_closer)
        if self._log is not None:
            self._log.finish()
            self.diagnosis = await self._diagnose(self._log)
        if self._memory is not None and self.opened is not None:
            self._restarts = self._memory.facts(self.opened.attempt.number, self._up_s())
        self._loop.post(life.Verified(self.diagnosis, aftermath.held, self._restarts))

    def _up_s(self) -> float | None:
        """How long it had been ready when it ended."""
        return None if self.ready_s is None else self._ended_at - self._launched_at - self.ready_s

    async def _diagnose(self, log: ServerLog) -> Diagnosis:
        reason = self._reason or life.Reason(life.Cause.ASKED)
        leader, members = (self.opened.leader, self.opened.members) if self.opened else (None, ())
        end = await self._world.in_thread(
            self._circumstances.end, reason, self._group.ended, leader, members, log.phase
        )
        return cause.explained(log.conclude(end), reason, self._plan.options.ready_timeout_s, self._impostor)

    # --- helpers ------------------------------------------------------------------------------------------------------

    def _publish(self, state: State) -> None:
        self.journal.publish(state, self._log.phase if self._log else None)

    def _later(self, delay_s: float, event: life.Event) -> None:
        self._timers.later(delay_s, lambda: self._loop.post(event))
