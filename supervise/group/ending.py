"""The one stop path, as a stepper: the same for a stop, Ctrl-C, a crash, a hang, and the clean slate.

leader SIGTERM, repeated -> grace -> everybody SIGTERM -> evidence, if wanted -> SIGKILL all but the resource tracker ->
SIGKILL the rest.
It escalates until the *group* is empty; that the leader has exited proves nothing (a vLLM API server that is killed
leaves its engine running for ever).
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import islice, pairwise

from supervise.group.members import Members
from supervise.host import procfs, signals
from supervise.model.process import Process, ProcessId

# A vLLM that initialises its engine swallows one SIGTERM and goes on loading: it has to be told again.
_REPEAT_S = 2.0
_SETTLE_S = 1.0
# Most of those who are told go within milliseconds.
_LOOK_FIRST_S = 0.01
_EVIDENCE_S = 12.0
_SENT_KEPT = 256
# Where a zombie stays that somebody else must reap (a tracer, say) there is no other proof than to see nobody alive
# while nobody ends, and that more than once: one reading of /proc can be outrun by a fork.
_EMPTY_READINGS = 10


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How long each step of the stop path may take, in seconds.

    `grace_s` from the leader's first SIGTERM, `term_s` from everybody's, `tracker_s` for resource trackers once all
    others are dead, `kill_s` from the first SIGKILL until survivors are given up and named. `evidence_s` is for looking
    at those that did not obey, before they are killed.
    """

    grace_s: float = 30.0
    term_s: float = 10.0
    tracker_s: float = 1.0
    kill_s: float = 15.0
    evidence_s: float = 0.0

    @classmethod
    def for_stale(cls, within_s: float = 100.0) -> Deadlines:
        """For orphans: nobody is served by them any more, so there is nothing to drain.

        Args:
            within_s: how long it may take in all; each step gets a second in any case.
        """
        return cls(grace_s=0.0, term_s=max(1.0, min(5.0, within_s / 4)), kill_s=max(1.0, min(15.0, within_s / 2)))

    @property
    def total_s(self) -> float:
        """How long the whole path may take; the second look comes after it."""
        return self.grace_s + self.term_s + self.tracker_s + self.kill_s + self.evidence_s

    def attended(self) -> Deadlines:
        """The same with time to look at those that did not obey."""
        return replace(self, evidence_s=_EVIDENCE_S)

    def unattended(self) -> Deadlines:
        """The same without supervise: nobody is there to take evidence."""
        return replace(self, evidence_s=0.0)


class Stage(IntEnum):
    """Where the stop path is."""

    LEADER = 0
    GROUP = 1
    EVIDENCE = 2
    KILL = 3
    OVER = 4


class Ending:
    """Ends a group step by step; every step returns at once, so that no loop ever blocks in it.

    Args:
        members: who belongs to it.
        leader: who is asked first; None when it has already gone.
        deadlines: how long each step may take.
        before_kill: called once with all members just before the first SIGKILL: the last chance to look at them.
    """

    def __init__(
        self,
        members: Members,
        leader: ProcessId | None,
        deadlines: Deadlines,
        *,
        before_kill: Callable[[Sequence[Process]], object] = lambda _members: None,
    ) -> None:
        self.stage = Stage.LEADER
        self.survivors: tuple[Process, ...] = ()
        self.sent: list[tuple[ProcessId, int]] = []
        self._members = members
        self._leader = leader
        self._deadlines = deadlines
        self._before_kill = before_kill
        self._deadline: float | None = None
        self._repeat_at = 0.0
        self._tracker_deadline: float | None = None
        self._struck: set[ProcessId] = set()
        self._killed: set[ProcessId] = set()
        self._refusing_since: float | None = None
        self._empty_readings = 0

    @property
    def over(self) -> bool:
        """Whether the group is empty, or its survivors have been given up and named."""
        return self.stage is Stage.OVER

    def escalate(self) -> None:
        """Stop being patient: the next step kills."""
        if self.stage < Stage.KILL:
            self._enter(Stage.KILL)

    def proceed(self) -> None:
        """The evidence has been taken."""
        if self.stage is Stage.EVIDENCE:
            self._enter(Stage.KILL)

    def step(self, now: float) -> float | None:
        """Send what is due.

        Args:
            now: monotonic seconds.

        Returns:
            Seconds until the next step is due, None when over.
        """
        if not self.over and self._members.empty():
            self._enter(Stage.OVER)
        while True:
            before = self.stage
            delay = self._steps[before](now)
            if self.stage is before:
                return delay

    def _step_leader(self, now: float) -> float | None:
        if self._leader is None or not signals.alive(self._leader):
            return self._settle(now)
        if self._due(now, self._deadlines.grace_s):
            self._enter(Stage.GROUP)
        elif now >= self._repeat_at:
            self._ask(self._leader)
            self._repeat_at = now + _REPEAT_S
        return 0.1

    def _settle(self, now: float) -> float | None:
        """The leader is gone: members of one that was asked to stop mostly follow by themselves within a second."""
        if self._deadline is None:
            self._enter(Stage.GROUP)
            return None
        self._deadline = min(self._deadline, now + _SETTLE_S)
        if now >= self._deadline:
            self._enter(Stage.GROUP)
        return 0.05

    def _step_group(self, now: float) -> float | None:
        if self._due(now, self._deadlines.term_s):
            self._enter(Stage.EVIDENCE)
        elif now >= self._repeat_at:
            for member in self._members.living():
                self._ask(member.id)
            self._repeat_at = now + _REPEAT_S
            return _LOOK_FIRST_S
        return 0.05

    def _step_evidence(self, now: float) -> float | None:
        if self._due(now, self._deadlines.evidence_s) or not self._members.living():
            self._enter(Stage.KILL)
        return 0.05

    def _step_kill(self, now: float) -> float | None:
        members = self._members.living()
        if self._deadline is None:
            self._before_kill(members)
            if self._members.hold_still():
                members = self._members.living()
        overdue = self._due(now, self._deadlines.kill_s)
        doomed = self._doomed(members, now)
        storm = self._is_storm(doomed)
        if not (doomed and (storm or len(doomed) == len(members)) and self._strike_all(members)):
            for member in doomed:
                self._send(member.id, signal.SIGKILL)
        settled = self._members.settled()
        if storm or not (members or settled):
            self._members.chase()
        self._struck.update(member.id for member in doomed)
        if overdue or self._all_refuse(members, now) or self._nobody_seen(members, settled=settled):
            self.survivors = (*self._members.living(), *self._members.unseen())
            self._enter(Stage.OVER)
        # Whoever forks faster than we read is read again at once.
        return 0.0 if storm else 0.02

    def _doomed(self, members: Sequence[Process], now: float) -> Sequence[Process]:
        """Whom to kill now: resource trackers and our own helpers only once nobody else is left, and a bit later."""
        others = [member for member in members if not self._goes_last(member)]
        if others:
            self._tracker_deadline = None
        elif self._tracker_deadline is None:
            self._tracker_deadline = now + self._deadlines.tracker_s
        return members if self._tracker_deadline is not None and now >= self._tracker_deadline else others

    def _goes_last(self, member: Process) -> bool:
        return member.id in self._members.last or is_resource_tracker(member)

    def _is_storm(self, doomed: Sequence[Process]) -> bool:
        """Whether new ones have come since the first blow: then sparing anybody costs more than it brings."""
        return bool(self._struck) and any(
            member.id not in self._struck and not self._goes_last(member) for member in doomed
        )

    def _strike_all(self, members: Sequence[Process]) -> bool:
        if not self._members.strike():
            return False
        self._note_sent(member.id for member in members)
        return True

    def _all_refuse(self, members: Sequence[Process], now: float) -> bool:
        """Members of another user cannot be ended by us, and waiting for it would not help (a setuid program)."""
        if not members or any(signals.send(member.id, 0) is not signals.Sent.REFUSED for member in members):
            self._refusing_since = None
            return False
        if self._refusing_since is None:
            self._refusing_since = now
        return now - self._refusing_since >= self._deadlines.tracker_s

    def _nobody_seen(self, members: Sequence[Process], *, settled: bool) -> bool:
        self._empty_readings = 0 if members or not settled else self._empty_readings + 1
        return self._empty_readings >= _EMPTY_READINGS

    def _step_over(self, _now: float) -> float | None:
        return None

    @property
    def _steps(self) -> tuple[Callable[[float], float | None], ...]:
        return (self._step_leader, self._step_group, self._step_evidence, self._step_kill, self._step_over)

    def _due(self, now: float, allowed_s: float) -> bool:
        if self._deadline is None:
            self._deadline = now + allowed_s
        return now >= self._deadline

    def _enter(self, stage: Stage) -> None:
        self.stage, self._deadline, self._repeat_at = stage, None, 0.0

    def _ask(self, target: ProcessId) -> None:
        """SIGTERM; one that is stopped cannot hear it until it is continued."""
        self._send(target, signal.SIGTERM)
        process = procfs.read(target.pid, cmdline=False, environ=False)
        if process is not None and process.state == "T":
            self._send(target, signal.SIGCONT)

    def _send(self, target: ProcessId, signum: int) -> None:
        if signals.send(target, signum) is signals.Sent.DELIVERED:
            self._note_sent([target], signum)

    def _note_sent(self, targets: Iterable[ProcessId], signum: int = signal.SIGKILL) -> None:
        """What is repeated until it helps is noted once; of SIGTERM it matters how often."""
        room = _SENT_KEPT - len(self.sent)
        fresh = (target for target in targets if signum != signal.SIGKILL or target not in self._killed)
        for target in islice(fresh, max(room, 0)):
            self.sent.append((target, signum))
            if signum == signal.SIGKILL:
                self._killed.add(target)


def is_resource_tracker(process: Process) -> bool:
    """Whether this is Python's resource tracker, which unlinks the /dev/shm segments of its dead family.

    It ignores SIGTERM and leaves by itself once all its clients are gone; killed together with them it leaves every
    segment behind (FIELD.md A4).
    """
    return any(
        flag == "-c" and code.startswith("from multiprocessing.resource_tracker import main")
        for flag, code in pairwise(process.argv or ())
    )


def run(ending: Ending, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
    """Step an ending to its end, blocking; its deadlines bound the time.

    Args:
        ending: the stop path to walk.
        clock: monotonic seconds.
        sleep: waits that many seconds.
    """
    while (delay := ending.step(clock())) is not None:
        sleep(delay)
