"""How an attempt ended: told to people, and written down for the next start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from supervise.host.signals import name as signal_name
from supervise.lifecycle import Cause, Done, Reason, Waiting
from supervise.text import duration, plural

if TYPE_CHECKING:
    from supervise.model.diagnosis import Diagnosis
    from supervise.report.console import Console
    from supervise.runner.ended import Ended
    from supervise.runner.repeating import Repetition

SERVERS_FAULT = (Cause.DIED, Cause.FATAL, Cause.NOT_READY)
"""Ends that are the server's own failure."""


def why(reason: Reason) -> str:
    """Why the stop path begins, in a few words."""
    return {
        Cause.ASKED: signal_name(reason.signum or 0),
        Cause.FATAL: "the log says that it cannot go on, and it is still there",
        Cause.NOT_READY: "not ready in time",
        Cause.BROKEN: "supervise itself failed",
    }.get(reason.cause, reason.cause.value)


def how(status: int) -> str:
    """How the leader ended, in a few words."""
    return f"the leader, killed by {signal_name(-status)}" if status < 0 else f"the leader, with status {status}"


def verification(ended: Ended) -> tuple[list[str], bool]:
    """The sentences of the last line, and whether all of them are good news."""
    processes = plural(len(ended.survivors), "process")
    left = plural(len(ended.left), "leftover")
    sentences = [f"{processes} left", *ended.aftermath.sentences, f"{left} in /dev/shm and /tmp"]
    return sentences, not ended.survivors and not ended.left and ended.aftermath.clean


def tell(
    ended: Ended,
    reason: Reason,
    diagnosis: Diagnosis | None,
    log: str,
    end: Done | Waiting,
    console: Console,
    repeats: Repetition,
) -> None:
    """The end, for people: what became of the group, then the cause if it failed, and what follows."""
    if reason.cause is not Cause.NOT_LAUNCHED:
        console.note(
            f"group empty after {duration(ended.seconds)}" if not ended.survivors else "the group is not empty"
        )
    sentences, clean = verification(ended)
    console.verified(sentences, clean=clean)
    console.survivors(ended.survivors)
    if diagnosis is not None and reason.cause in SERVERS_FAULT:
        console.diagnosis(diagnosis, log)
        if repeats.told is not None:
            console.line("history", repeats.told)
    if isinstance(end, Waiting):
        return
    if end.why is not None:
        console.line("restart", end.why)
    if end.reraise is None:
        console.exit(end.status)


def outcome(
    ended: Ended,
    reason: Reason,
    diagnosis: Diagnosis | None,
    done: Done,
    ready_s: float | None,
    phases: dict[str, float],
) -> dict[str, Any]:
    """The end, for machines: outcome.json, the channel that exit statuses cannot blur."""
    from supervise.report.cause import to_data

    _, clean = verification(ended)
    return {
        "outcome": reason.cause.value,
        "exit_status": int(done.status),
        "signal": done.reraise,
        "leader_status": reason.status,
        "failed": reason.cause is not Cause.ASKED,
        "verified": not ended.survivors,
        "clean": clean,
        "ready_s": ready_s,
        "phases": {name: round(seconds, 1) for name, seconds in phases.items()},
        "cause": None if diagnosis is None or reason.cause not in SERVERS_FAULT else to_data(diagnosis),
        "survivors": ended.survivors,
        "sent": [list(pair) for pair in ended.sent],
        "removed": ended.removed,
        "left": ended.left,
        "checks": list(ended.aftermath.sentences),
        "stop_s": round(ended.seconds, 3),
    }
