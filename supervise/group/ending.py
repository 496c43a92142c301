"""The one stop path, as a stepper: the same for a stop, Ctrl-C, a crash, a hang, and the clean slate.

leader SIGTERM, repeated -> grace -> everybody SIGTERM -> SIGKILL all but the resource tracker -> SIGKILL the rest.
It escalates until the *group* is empty; that the leader has exited proves nothing (a vLLM API server that is killed
leaves its engine running for ever).
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise

from supervise.host import signals
from supervise.model.process import Process, ProcessId

# A vLLM that initialises its engine swallows one SIGTERM and goes on loading: it has to be told again.
_REPEAT_S = 2.0
_SETTLE_S = 1.0
_SENT_KEPT = 256


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How long each step of the stop path may take, in seconds.

    `grace_s` from the leader's first SIGTERM, `term_s` from everybody's, `tracker_s` for resource trackers once all
    others are dead, `kill_s` from the first SIGKILL until survivors are given up and named.
    """

    grace_s: float = 30.0
    term_s: float = 10.0
    tracker_s: float = 1.0
    kill_s: float = 15.0

    @classmethod
    def for_stale(cls) -> Deadlines:
        """For orphans: nobody is served by them any more, so there is nothing to drain."""
        return cls(grace_s=0.0, term_s=5.0)


class Stage(IntEnum):
    """Where the stop path is."""

    LEADER = 0
    GROUP = 1
    KILL = 2
    OVER = 3


class Ending:
    """Ends a group step by step; every step returns at once, so that no loop ever blocks in it.

    Args:
        members: a fresh reading of all members that still run, leader included, with their command lines.
        leader: who is asked first; None when it has already gone.
        deadlines: how long each step may take.
        empty: a cheaper test for an empty group, where there is one.
        before_kill: called once with all members just before the first SIGKILL: the last chance to look at them.
    """

    def __init__(
        self,
        members: Callable[[], Sequence[Process]],
        leader: ProcessId | None,
        deadlines: Deadlines,
        *,
        empty: Callable[[], bool] | None = None,
        before_kill: Callable[[Sequence[Process]], object] = lambda _members: None,
    ) -> None:
        self.stage = Stage.LEADER
        self.survivors: tuple[Process, ...] = ()
        self.sent: list[tuple[ProcessId, int]] = []
        self._members = members
        self._leader = leader
        self._deadlines = deadlines
        self._empty = empty or (lambda: not members())
        self._before_kill = before_kill
        self._deadline: float | None = None
        self._repeat_at = 0.0
        self._tracker_deadline: float | None = None

    @property
    def over(self) -> bool:
        """Whether the group is empty, or its survivors have been given up and named."""
        return self.stage is Stage.OVER

    def escalate(self) -> None:
        """Stop being patient: the next step kills."""
        if self.stage < Stage.KILL:
            self._enter(Stage.KILL)

    def step(self, now: float) -> float | None:
        """Send what is due.

        Args:
            now: monotonic seconds.

        Returns:
            Seconds until the next step is due, None when over.
        """
        if not self.over and self._empty():
            self._enter(Stage.OVER)
        while True:
            before = self.stage
            delay = (self._step_leader, self._step_group, self._step_kill, self._step_over)[before](now)
            if self.stage is before:
                return delay

    def _step_leader(self, now: float) -> float | None:
        if self._leader is None or not signals.alive(self._leader):
            return self._settle(now)
        if self._due(now, self._deadlines.grace_s):
            self._enter(Stage.GROUP)
        elif now >= self._repeat_at:
            self._send(self._leader, signal.SIGTERM)
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
            self._enter(Stage.KILL)
        elif now >= self._repeat_at:
            for member in self._members():
                self._send(member.id, signal.SIGTERM)
                if member.state == "T":
                    self._send(member.id, signal.SIGCONT)
            self._repeat_at = now + _REPEAT_S
        return 0.05

    def _step_kill(self, now: float) -> float | None:
        members = self._members()
        if self._deadline is None:
            self._before_kill(members)
        overdue = self._due(now, self._deadlines.kill_s)
        trackers = [member for member in members if is_resource_tracker(member)]
        others = [member for member in members if member not in trackers]
        if others:
            self._tracker_deadline = None
        elif self._tracker_deadline is None:
            self._tracker_deadline = now + self._deadlines.tracker_s
        doomed = members if self._tracker_deadline is not None and now >= self._tracker_deadline else others
        for member in doomed:
            self._send(member.id, signal.SIGKILL)
        if overdue:
            self.survivors = tuple(self._members())
            self._enter(Stage.OVER)
        return 0.02

    def _step_over(self, _now: float) -> float | None:
        return None

    def _due(self, now: float, allowed_s: float) -> bool:
        if self._deadline is None:
            self._deadline = now + allowed_s
        return now >= self._deadline

    def _enter(self, stage: Stage) -> None:
        self.stage, self._deadline, self._repeat_at = stage, None, 0.0

    def _send(self, target: ProcessId, signum: int) -> None:
        delivered = signals.send(target, signum) is signals.Sent.DELIVERED
        if delivered and len(self.sent) < _SENT_KEPT:
            self.sent.append((target, signum))


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
