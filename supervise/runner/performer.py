"""Connects the lifecycle to the world: every effect is one method here, whatever comes of it is posted as an event."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from supervise import lifecycle as life
from supervise.host import procfs
from supervise.lifecycle import Effect, State
from supervise.model.probe import Answer
from supervise.model.process import Process, ProcessId
from supervise.model.slate import FileId, Gpus, GpuStatus, SlateResult
from supervise.runner import launch
from supervise.runner.attempt import Opened, identities
from supervise.runner.containment import Containment
from supervise.runner.readiness import Readiness
from supervise.runner.report import how, outcome, tell, why
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
    from supervise.slate.aftermath import Aftermath


@dataclass(frozen=True, slots=True)
class World:
    """What the performer uses of the outside; tests put stand-ins here."""

    sweep: Callable[[Callable[[], bool]], SlateResult]
    start_keeper: Callable[[], Keeper]
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
        self.opened: Opened | None = None
        self._loop, self._plan, self._run, self._console, self._world = loop, plan, run, console, world
        self._command, self._program = command, program
        self._io = asyncio.get_running_loop()
        self._cancelled = self._write_failed = False
        self._group = Containment(world.start_keeper(), plan.deadlines, self, childless=self.reap)
        self._log: ServerLog | None = None
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
        self._timers: list[asyncio.TimerHandle] = []

    def begin(self) -> None:
        """Start with the slate; the keeper starts up meanwhile."""
        self._group.listen()
        self._spawn_task(self._sweep())

    def perform(self, effect: Effect) -> None:
        """Start one effect."""
        {
            Effect.CANCEL_SLATE: self._cancel_slate,
            Effect.LAUNCH: self._launch,
            Effect.ARM_LINGER: self._arm_linger,
            Effect.ANNOUNCE_READY: self._announce_ready,
            Effect.STOP_GROUP: self._group.stop,
            Effect.ESCALATE: self._group.escalate,
            Effect.ADOPT_GROUP: self._adopt_group,
            Effect.VERIFY: self._verify,
        }[effect]()

    def entered(self, state: State) -> None:
        """Publish the state; tell people why it is ending."""
        self._publish(state)
        number = self.opened.attempt.number if self.opened else None
        self._run.append_event({"state": type(state).__name__.lower(), "attempt": number})
        if isinstance(state, life.Stopping | life.Killing | life.Verifying):
            self._reason = state.reason
        if isinstance(state, life.Stopping):
            self._console.stopping(why(state.reason))
        elif isinstance(state, life.Killing) and state.reason.cause is life.Cause.DIED:
            self._console.leader_exited(how(state.reason.status or 0))
            self._group.expect_end()

    def broken(self, error: BaseException) -> None:
        """Something of ours raised: say it in one line, keep the details, and end what was begun."""
        details = os.path.join(self._run.path, "supervise.log")
        with contextlib.suppress(OSError), open(details, "a", encoding="utf-8") as file:
            traceback.print_exception(error, file=file)
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
        for timer in self._timers:
            timer.cancel()
        self._group.release()

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
        self.opened = opened = Opened.begin(self._run, self._command, self._plan.need, self._group.keeper.id)
        self._console.attempt(opened.attempt.number, opened.attempt.log)
        if self.slate is not None:
            self._write(opened.attempt.write, "slate", to_json(self.slate))
        additions = self._plan.profile.environment
        self._group.launch(
            self._program,
            tuple(self._command),
            launch.environment(os.environ, opened.marker, additions, opened.private),
            log=opened.attempt.log,
            private=opened.private,
            owner=opened.marker.id,
        )
        self._launched_at = self._world.clock()
        self._later(self._plan.options.ready_timeout_s, life.StartExpired())

    def heard(self, message: wire.Message) -> None:
        """What the keeper says."""
        match message["event"]:
            case "spawned":
                self._on_spawned(ProcessId(message["pid"], message["ticks"]))
            case "failed":
                self._console.error(launch.explain_errno(self._command[0], message["errno"]))
                self._loop.post(life.LaunchFailed(message["errno"]))
            case "leader":
                self._loop.post(life.LeaderExited(message["status"]))
            case "stage":
                self._console.stage(message["stage"])
            case "segments":
                self._on_segments(tuple(FileId(*file) for file in message["files"]))

    def _on_spawned(self, leader: ProcessId) -> None:
        if self.opened is None:
            return
        # Reading the log costs a start-up of its own: it begins once the server has begun.
        from supervise.runner.server_log import ServerLog

        self.opened.leader = leader
        self._write(self.opened.record)
        self._publish(self._loop.state)
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

    def _on_segments(self, files: tuple[FileId, ...]) -> None:
        if self.opened is not None:
            self.opened.segments = files
            self._write(self.opened.record)

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

    def _adopt_group(self) -> None:
        self._console.keeper_lost()
        self._group.adopt()

    def _verify(self) -> None:
        self._spawn_task(self._look_once_more())

    async def _look_once_more(self) -> None:
        gpus = self.slate.gpus if self.slate else Gpus(GpuStatus.ABSENT)
        aftermath = await self._world.in_thread(self._world.aftermath, gpus, frozenset(self._group.ended.pids))
        self._group.ended.aftermath = aftermath
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
        opened = self.opened
        self._write(
            self._run.write_state,
            {
                "run": self._run.name,
                "state": type(state).__name__.lower(),
                "attempt": opened.attempt.number if opened else None,
                "phase": self._log.phase if self._log else None,
                **identities(procfs.self_id(), self._group.keeper.id, opened.leader if opened else None),
            },
        )

    def _write(self, write: Callable[..., None], *arguments: object) -> None:
        """Write something down; a full disk is said once and never ends a server that runs."""
        try:
            write(*arguments)
        except OSError as error:
            if not self._write_failed:
                self._console.error(f"{self._run.path}: {error.strerror}; the server is not affected, its records are")
            self._write_failed = True

    def _later(self, delay_s: float, event: life.Event) -> None:
        self._timers.append(self._io.call_later(delay_s, self._loop.post, event))

    def _spawn_task(self, coroutine: Coroutine[object, object, None]) -> None:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.broken(error)
