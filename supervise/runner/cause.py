"""What the runner knows of an end and the log does not: who asked, what we sent, and what made us end it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from supervise import lifecycle as life
from supervise.text import duration

if TYPE_CHECKING:
    from supervise.model.diagnosis import Diagnosis, End
    from supervise.model.process import ProcessId
    from supervise.runner.ended import Ended


_ADVICE = (
    "See evidence/before-stop.json for what each process was doing before anything touched it, the stacks beside it.",
    "See the last lines of its log for where it stood.",
)


def end(reason: life.Reason, ended: Ended, leader: ProcessId | None, phase: str | None) -> End:
    """The end as the diagnosis wants to know it."""
    from supervise.model.diagnosis import End

    status = reason.status
    return End(
        code=status if status is not None and status >= 0 else None,
        signal=-status if status is not None and status < 0 else None,
        requested=reason.cause is life.Cause.ASKED,
        sent=ended.sent_to(leader.pid if leader else 0),
        ready=reason.was_ready,
        phase=phase,
    )


def explained(diagnosis: Diagnosis, reason: life.Reason, ready_timeout_s: float, impostor: str | None) -> Diagnosis:
    """Where the log has no cause and it was we who ended it, the cause is what made us."""
    if diagnosis.text is not None or reason.cause not in (life.Cause.NOT_READY, life.Cause.FATAL):
        return diagnosis
    meaning = impostor or f"not ready after {duration(ready_timeout_s)} (--ready-timeout)"
    return replace(diagnosis, meaning=meaning, advice=_ADVICE)
