"""What the runner knows of an end and the log does not: who asked, what we sent, what the kernel counted and said."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from supervise import lifecycle as life
from supervise.host import condition, kmsg
from supervise.text import duration, home

if TYPE_CHECKING:
    from collections.abc import Iterable

    from supervise.model.diagnosis import Diagnosis, End
    from supervise.model.process import ProcessId
    from supervise.runner.ended import Ended


_ADVICE = (
    "See evidence/before-stop.json for what each process was doing before anything touched it, the stacks beside it.",
    "See the last lines of its log for where it stood.",
)
_OURS = (life.Cause.NOT_READY, life.Cause.FATAL, life.Cause.HUNG)
_SAID_SO = "it said that it cannot go on, and was still there"
_OOM_KILLS = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What the kernel had counted and said when the attempt began: only what came after it counts.

    The memory controller counts for a cgroup and all below it, so ours stands for the group's (cgroup-v2.rst,
    memory.events).
    """

    moment_s: float = field(default_factory=kmsg.now)
    oom_kills: int | None = field(default_factory=lambda: _oom_kills())

    def end(
        self,
        reason: life.Reason,
        ended: Ended,
        leader: ProcessId | None,
        members: Iterable[ProcessId],
        phase: str | None,
    ) -> End:
        """The end as the diagnosis wants to know it; blocking.

        Args:
            reason: why the attempt ended.
            ended: what those who ended it know.
            leader: the server's first process.
            members: everybody who was seen in its group.
            phase: the phase that start-up was in.
        """
        from supervise.model.diagnosis import End

        status = reason.status
        pids = frozenset([*ended.pids, *(member.pid for member in members), *([leader.pid] if leader else [])])
        now = _oom_kills()
        return End(
            code=status if status is not None and status >= 0 else None,
            signal=-status if status is not None and status < 0 else None,
            requested=reason.cause is life.Cause.ASKED,
            sent=ended.sent_to(leader.pid if leader else 0),
            ready=reason.was_ready,
            phase=phase,
            oom_kills=None if now is None or self.oom_kills is None else max(0, now - self.oom_kills),
            kernel=kmsg.since(self.moment_s, pids) if pids else (),
        )


def explained(
    diagnosis: Diagnosis, reason: life.Reason, ready_timeout_s: float, impostor: str | None, rival: str | None = None
) -> Diagnosis:
    """Where the log has no cause and it was we who ended it, the cause is what made us.

    Args:
        diagnosis: of the log.
        reason: why it was ended.
        ready_timeout_s: how long it had to become ready, in seconds.
        impostor: a sentence on who answers in its place although it says that it is up.
        rival: who else answered on its port at the end.
    """
    if diagnosis.text is not None or reason.cause not in _OURS:
        return diagnosis
    if reason.cause is life.Cause.HUNG:
        from supervise.model.diagnosis import FailureClass

        # FIELD.md B10: what hung may work the next time, and not for ever.
        meaning, transient = f"It hangs: {reason.detail}.", FailureClass.TRANSIENT
        return replace(diagnosis, meaning=meaning, advice=_ADVICE, end="hung", failure=transient)
    if impostor is not None:
        return replace(diagnosis, meaning=impostor, advice=_ADVICE, end="its port is answered by somebody else")
    if reason.cause is life.Cause.FATAL:
        return replace(diagnosis, end=_SAID_SO)
    late = f"not ready after {duration(ready_timeout_s)} (--ready-timeout)"
    if rival is not None and not reason.detail:
        meaning, end = f"{late}: its port is answered by {rival}", "its port is answered by somebody else"
        return replace(diagnosis, meaning=meaning, advice=_ADVICE, end=end)
    return replace(diagnosis, meaning=reason.detail or late, advice=_ADVICE, end="not ready in time")


def unread(diagnosis: Diagnosis, left: int, log: str) -> Diagnosis:
    """Where nobody is known to have printed a cause and not all of the log was read, nothing is said of its content.

    Args:
        diagnosis: of what was read.
        left: bytes that there was no time for.
        log: its path.
    """
    if diagnosis.text is not None or not left:
        return diagnosis
    meaning = f"No cause was found in what could be read of the log; {left / 2**20:.1f} MiB of it were not."
    return replace(diagnosis, meaning=meaning, advice=(f"supervise explain {log} reads all of it.",))


class Lost(NamedTuple):
    """A log on a full disk, in this directory: `whole` if nothing of it could be written."""

    directory: str
    whole: bool


def unwritten(diagnosis: Diagnosis, lost: Lost | None) -> Diagnosis:
    """Where nobody printed a cause and the log could not be written, that is why there is none."""
    if lost is None:
        return diagnosis
    advice = f"Make room for {home(lost.directory)}, or set XDG_STATE_HOME to another place; then start again."
    if not lost.whole:
        meaning = f"{diagnosis.meaning} But the disk of the log is full: its end may be missing."
        return replace(diagnosis, meaning=meaning, advice=(advice, *diagnosis.advice))
    said = "Its log could not be written, the disk is full: whatever the server said is lost."
    kind = diagnosis.end or ""
    bare = kind.startswith(("exited with", "killed by"))
    how = f"The server {'was ' if kind.startswith('killed') else ''}{kind}." if bare else diagnosis.meaning
    return replace(diagnosis, meaning=f"{how} {said}", advice=(advice,) if bare else (advice, *diagnosis.advice))


def _oom_kills() -> int | None:
    found = _OOM_KILLS.search(condition.memory_events(os.getpid()) or "")
    return int(found[1]) if found else None
