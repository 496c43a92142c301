"""Connects the lifecycle to the world: every effect is one method here, whatever comes of it is posted as an event."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from supervise import lifecycle as life
from supervise.lifecycle import Effect, State
from supervise.model.probe import Answer
from supervise.model.process import Process, ProcessId
from supervise.model.slate import FileId, Gpus, GpuStatus, SlateResult
from supervise.model.tier import Tier, Tiers
from supervise.runner import launch
from supervise.runner.attempt import Opened
from supervise.runner.containment import Containment
from supervise.runner.journal import Journal
from supervise.runner.readiness import Readiness
from supervise.runner.report import how, outcome, tell, why
from supervise.runner.tiers import TierError
from supervise.runner.timers import Timers
from supervise.runner.witness import Witness
from supervise.slate import to_json
from supervise.text import duration

if TYPE_CHECKING:
    from supervise.attempts.store import Run
    from supervise.group import wire
    from supervise.group.handle import Keeper
    from supervise.model.diagnosis import Diagnosis, End, SignatureSet
    from supervise.model.probe import Probed
    from supervise.report.console import Console
    from supervise.runner.loop import Loop
    from supervise.runner.plan import Plan
    from supervise.runner.server_log import ServerLog
    from supervise.runner.terminal import Terminal
    from supervise.slate.aftermath import Aftermath


# When members are noted: after this many seconds, and then at twice the distance, up to the last.
_NOTE_FIRST_S, _NOTE_LAST_S = 0.25, 64.0


@dataclass(frozen=True, slots=True)
class World:
    """What the performer uses of the outside; tests put stand-ins here."""

    sweep: Callable[[Callable[[], bool]], SlateResult]
    start_keeper: Callable[[], Keeper]
    tiers: Tiers
    probe: Callable[[Callable[[], Iterable[Process]]], Probed]
    aftermath: Callable[[Gpus, frozenset[int]], Aftermath]
    clock: Callable[[], float] = time.monotonic
    in_thread: Callable[..., Awaitable[Any]] = asyncio.to_thread


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
    ) -> None:
        self.diagnosis: Diagnosis | None = None
        self.slate: SlateResult | None = None
        self._reason: life.Reason | None = None
        self.ready_s: float | None = None
        self.phases: dict[str, float] = {}
        self._loop, self._plan, self._run, self._console, self._world = loop, plan, run, console, world
        self._command, self._program = command, program
        self._io = asyncio.get_running_loop()
        self._cancelled = False
        keeper = world.start_keeper()
        self._group = Containment(keeper, plan.deadlines, self, childless=self.reap)
        self._journal = Journal(run, console, keeper.id, keeper.guard, world.tiers)
        self._log: ServerLog | None = None
        self._witness: Witness | None = None
        self._terminal: Terminal | None = None
        self._readiness = Readiness(
            plan.need,
            world.probe,
            expects_line=bool(plan.profile.ready.lines),
            clock=world.clock,
            in_thread=world.in_thread,
        )
        self._impostor: str | None = None
        self._launched_at = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._timers = Timers(self._io)

    @property
    def opened(self) -> Opened | None:
        """The attempt, once it has begun."""
        return self._journal.opened

    def begin(self) -> None:
        """Start with the slate."""
        self._group.listen()
        self._spawn_task(self._sweep())

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
        self._journal.append(state)
        if isinstance(state, life.Capturing | life.Stopping | life.Killing | life.Verifying):
            self._reason = state.reason
        if isinstance(state, life.Stopping):
            self._console.stopping(why(state.reason))
        elif isinstance(state, life.Killing) and state.reason.cause is life.Cause.DIED:
            self._console.leader_exited(how(state.reason.status or 0))
            self._group.leader_died()

    def broken(self, error: BaseException) -> None:
        """Something of ours raised: say it in one line, keep the details, and end what was begun."""
        details = self._journal.details(error)
        self._console.error(f"supervise itself failed: {type(error).__name__}: {error}; details in {details}")
        self._loop.post(life.Broken())

    def reap(self) -> bool:
        """Reap every child that has ended; True if none is left (waitpid(2), ECHILD)."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            if self.opened and self.opened.leader and pid == self.opened.leader.pid:
                self._loop.post(life.LeaderExited(os.waitstatus_to_exitcode(status)))

    def conclude(self, done: life.Done) -> None:
        """Tell and write down how it ended."""
        if self.opened is None or self._reason is None:
            return
        attempt, reason = self.opened.attempt, self._reason
        result = outcome(self._group.ended, reason, self.diagnosis, done, self.ready_s, self.phases)
        try:
            self._run.close_attempt(attempt, result)
        except OSError as error:
            self._console.error(f"{attempt.path}/outcome.json: {error.strerror}")
        tell(self._group.ended, reason, self.diagnosis, attempt.log, done, self._console)
        self._run.prune(self._plan.options.pruning, running=attempt.number)

    def release(self) -> None:
        """Let go of everything; a group that should still run is ended by its keeper then."""
        self._timers.cancel()
        if self._terminal is not None:
            self._terminal.finish()
        self._group.release()

    # --- signals that pass through ------------------------------------------------------------------------------------

    def pass_on(self, signum: int) -> None:
        """A signal that means the server, not us; a change of the window is the terminal's to tell if there is one."""
        if signum == signal.SIGWINCH and self._terminal is not None:
            self._terminal.resize()
        else:
            self._group.signal(signum)

    def suspend(self) -> None:
        """Ctrl-Z: the whole group is stopped, then we are."""
        self._group.suspend()

    def _stop_ourselves(self) -> None:
        """Sleeps in here until somebody continues us; what had a deadline before has as much time left after."""
        if self._terminal is not None:
            self._terminal.suspend()
        with self._timers.paused():
            os.kill(os.getpid(), signal.SIGSTOP)
        self._group.resume()
        if self._terminal is not None:
            self._terminal.resume()

    # --- slate --------------------------------------------------------------------------------------------------------

    async def _sweep(self) -> None:
        result = await self._world.in_thread(self._world.sweep, lambda: self._cancelled)
        self.slate = result
        self._console.slate(result)
        if not result.clean:
            self._console.note("nothing was launched")
        self._loop.post(life.SlateCleaned() if result.clean else life.SlateRefused())

    def _cancel_slate(self) -> None:
        self._cancelled = True

    # --- launch and start-up ------------------------------------------------------------------------------------------

    def _launch(self) -> None:
        keeper, tiers = self._group.keeper, self._journal.tiers
        opened = Opened.begin(
            self._run, self._command, self._plan.need, guard=keeper.guard, keeper=keeper.id, tiers=tiers
        )
        self._journal.opened = opened
        self._console.attempt(opened.attempt.number, opened.attempt.log)
        if self.slate is not None:
            self._journal.write(opened.attempt.write, "slate", to_json(self.slate))
        if self._plan.options.tty:
            from supervise.runner.terminal import Terminal

            self._terminal = Terminal.open(opened.attempt.log)
            self._terminal.start(self._io)
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
            terminal=self._terminal.slave if self._terminal else None,
        )
        self._launched_at = self._world.clock()
        self._later(self._plan.options.ready_timeout_s, life.StartExpired())

    def heard(self, message: wire.Message) -> None:
        """What the keeper says."""
        match message["event"]:
            case "spawned":
                self._on_spawned(ProcessId(message["pid"], message["ticks"]))
            case "refused":
                self._refused(Tier(message["tier"]), message["why"])
            case "suspended":
                self._stop_ourselves()
            case "failed":
                self._console.error(launch.explain_errno(self._command[0], message["errno"]))
                self._loop.post(life.LaunchFailed(message["errno"]))
            case "leader":
                self._loop.post(life.LeaderExited(message["status"]))
            case "stage":
                self._on_stage(message["stage"])
            case "noted":
                self._on_noted(message)

    def _on_spawned(self, leader: ProcessId) -> None:
        if self.opened is None:
            return
        # Reading the log costs a start-up of its own: it begins once the server has begun.
        from supervise.runner.server_log import ServerLog

        self.opened.leader = leader
        self._journal.record()
        self._publish(self._loop.state)
        if self._terminal is not None:
            self._terminal.launched()
        self._log = ServerLog(
            self.opened.attempt,
            self._plan.profile,
            self._signatures(),
            self._plan.options.bound,
            self._world.clock,
            on_progress=self._on_progress,
            on_ready_line=self._on_ready_line,
            on_fatal=self._on_fatal,
        )
        self._spawn_task(self._watch_readiness())
        self._note_members(_NOTE_FIRST_S)

    def _note_members(self, after_s: float) -> None:
        """Often at first, seldom later: who was seen once can be found again by whoever cleans up after us."""
        self._group.note()
        self._timers.later(after_s, lambda: self._note_members(min(after_s * 2, _NOTE_LAST_S)))

    def _signatures(self) -> SignatureSet:
        """Known failures; a damaged file costs their names, never the server."""
        from supervise.model.diagnosis import SignatureSet
        from supervise.profiles.errors import ProfileError
        from supervise.profiles.signatures import load_signatures

        try:
            return load_signatures(self._plan.profile.signatures)
        except ProfileError as error:
            self._console.error(f"{error}; causes will be named from tracebacks only")
            return SignatureSet()

    def _on_noted(self, message: wire.Message) -> None:
        if self.opened is not None:
            self.opened.segments = tuple(FileId(*file) for file in message["files"])
            self.opened.members = tuple(ProcessId(*member) for member in message["members"])
            self._journal.record()

    def _refused(self, tier: Tier, why: str) -> None:
        """A tier that was promised cannot be had after all."""
        self._journal.tiers = self._journal.tiers.without(tier, why)
        self._console.error(f"no {tier} tier: {why}")
        self._journal.record()
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
        """The keeper is gone, its group is not."""
        self._loop.post(life.KeeperLost())

    def emptied(self) -> None:
        """The stop path is over."""
        self._loop.post(life.GroupEnded(len(self._group.ended.survivors)))

    def replacing(self) -> None:
        """The keeper does not answer."""
        self._console.error("the keeper does not answer; ending the group in its place")

    def _capture(self) -> None:
        self._spawn_task(self._take_evidence())

    async def _take_evidence(self) -> None:
        if self._witness is not None:
            await self._witness.before_stop()
        self._loop.post(life.EvidenceTaken())

    def _stop_group(self) -> None:
        asked = self._reason is None or self._reason.cause in (life.Cause.ASKED, life.Cause.BROKEN)
        self._group.stop(attended=not asked)

    def _on_stage(self, stage: str) -> None:
        if stage == "evidence":
            self._spawn_task(self._look_at_the_stubborn())
        else:
            self._console.stage(stage)

    async def _look_at_the_stubborn(self) -> None:
        if self._witness is not None and self._reason is not None and self._reason.cause is not life.Cause.ASKED:
            await self._witness.before_kill(self._log.mute if self._log else lambda: None)
        self._group.proceed()

    def _adopt_group(self) -> None:
        self._console.keeper_lost()
        self._group.adopt()

    def _verify(self) -> None:
        self._spawn_task(self._look_once_more())

    async def _look_once_more(self) -> None:
        gpus = self.slate.gpus if self.slate else Gpus(GpuStatus.ABSENT)
        aftermath = await self._world.in_thread(self._world.aftermath, gpus, frozenset(self._group.ended.pids))
        self._group.ended.aftermath = aftermath
        if self._terminal is not None:
            self._terminal.finish()
        await self._world.in_thread(self._group.ended.look_closer)
        if self._log is not None:
            self._log.finish()
            self.diagnosis = self._explained(self._log.conclude(self._end()))
        self._loop.post(life.Verified(self.diagnosis, aftermath.held))

    def _explained(self, diagnosis: Diagnosis) -> Diagnosis:
        """Where the log has no cause and it was we who ended it, the cause is what made us."""
        cause = self._reason.cause if self._reason else None
        if diagnosis.text is not None or cause not in (life.Cause.NOT_READY, life.Cause.FATAL):
            return diagnosis
        waited = f"not ready after {duration(self._plan.options.ready_timeout_s)} (--ready-timeout)"
        meaning = self._impostor or waited
        return replace(diagnosis, meaning=meaning, advice=("See the last lines of its log for where it stood.",))

    def _end(self) -> End:
        from supervise.model.diagnosis import End

        reason = self._reason or life.Reason(life.Cause.ASKED)
        status = reason.status
        return End(
            code=status if status is not None and status >= 0 else None,
            signal=-status if status is not None and status < 0 else None,
            requested=reason.cause is life.Cause.ASKED,
            sent=self._group.ended.sent_to(self.opened.leader.pid if self.opened and self.opened.leader else 0),
            ready=reason.was_ready,
            phase=self._log.phase if self._log else None,
        )

    # --- helpers ------------------------------------------------------------------------------------------------------

    def _publish(self, state: State) -> None:
        self._journal.publish(state, self._log.phase if self._log else None)

    def _later(self, delay_s: float, event: life.Event) -> None:
        self._timers.later(delay_s, lambda: self._loop.post(event))

    def _spawn_task(self, coroutine: Coroutine[object, object, None]) -> None:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.broken(error)
