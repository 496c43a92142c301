"""How an attempt ended: told to people, and written down for the next start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from supervise.host.signals import name as signal_name
from supervise.lifecycle import Cause, Done, Reason, Waiting
from supervise.model.exits import Exit
from supervise.runner.repeating import Repetition, repetition
from supervise.text import duration, plural

if TYPE_CHECKING:
    from collections.abc import Callable

    from supervise.attempts.store import Attempt, Run
    from supervise.model.diagnosis import Diagnosis
    from supervise.report.console import Console
    from supervise.runner.ended import Ended

_MIB = 1024 * 1024
# Ends that are the server's own failure.
_SERVERS_FAULT = (Cause.DIED, Cause.FATAL, Cause.NOT_READY, Cause.HUNG)


@dataclass(frozen=True, slots=True)
class Account:
    """What there is to tell of an attempt that is over.

    `diagnosis` is what its log says, `ready_s` the seconds until it was ready if it ever was, `phases` maps each phase
    of its start-up to the seconds that it took. `effect` is what Startup.effect says.
    """

    reason: Reason
    ended: Ended
    diagnosis: Diagnosis | None
    ready_s: float | None
    phases: dict[str, float]
    effect: dict[str, Any] | None = None

    @property
    def failure(self) -> Diagnosis | None:
        """What the server failed of, None if its end was no failure of its own."""
        if self.reason.cause in _SERVERS_FAULT:
            return self.diagnosis
        # Whoever asked may have asked because of it.
        broken = self.reason.cause is Cause.ASKED and self.diagnosis is not None and self.diagnosis.fatal
        return self.diagnosis if broken else None


def why(reason: Reason) -> str:
    """Why the stop path begins, in a few words."""
    return {
        Cause.ASKED: (reason.anew or "restart") if reason.again else reason.detail or signal_name(reason.signum or 0),
        Cause.FATAL: "the log says that it cannot go on, and it is still there",
        Cause.NOT_READY: reason.detail or "not ready in time",
        Cause.HUNG: f"it hangs: {reason.detail}",
        Cause.BROKEN: "supervise itself failed",
    }.get(reason.cause, reason.cause.value)


def answer(before: Reason, now: Reason) -> str:
    """What people are told who ask for something of an attempt that is ending already; nothing if they know."""
    if now.signum is not None and (now.restarts, now.anew) != (before.restarts, before.anew):
        return f"{now.anew or 'restart'}: it is being stopped, and does not begin again"
    if now.signum is not None and before.again:
        return f"{now.detail if now.cause is Cause.ASKED and now.detail else signal_name(now.signum)}: nothing follows"
    if now.again and now.anew != before.anew:
        return f"{now.anew}: it is being stopped already, and begins again"
    return ""


def unlaunched(done: Done, what: str, *, waited: bool = False) -> dict[str, Any]:
    """The end of a run that is not the end of an attempt, as run.json has it.

    Args:
        done: the end.
        what: what was about to follow: "the launch", "the relaunch".
        waited: whether that was still to be waited for.
    """
    if done.reraise is not None:
        told = f"stopped by {signal_name(done.reraise)} {'while it waited for' if waited else 'before'} {what}"
    elif done.status == Exit.SLATE:
        told = f"{what} was refused, the slate is not clean"
    else:
        told = f"supervise itself failed before {what}"
    return {"ended": {"exit_status": int(done.status), "why": told}}


def how(status: int) -> str:
    """How the leader ended, in a few words."""
    return f"the leader, killed by {signal_name(-status)}" if status < 0 else f"the leader, with status {status}"


def _verification(ended: Ended) -> tuple[list[str], bool]:
    """The sentences of the last line, and whether all of them are good news."""
    processes = plural(len(ended.survivors), "process")
    left = plural(len(ended.left), "leftover")
    sentences = [f"{processes} left", *ended.aftermath.sentences, f"{left} in /dev/shm and /tmp"]
    return sentences, not ended.survivors and not ended.left and ended.aftermath.clean


def conclude(
    run: Run,
    attempt: Attempt,
    told: Account,
    end: Done | Waiting,
    console: Console,
    write: Callable[..., None],
) -> None:
    """Write down how an attempt ended, and tell people.

    Args:
        run: the run; its lock is held.
        attempt: the one that is over.
        told: what there is to tell of it.
        end: what follows: nothing, or another attempt.
        console: where people read.
        write: writes it down, and says it once if that is not possible.
    """
    done = end.done if isinstance(end, Waiting) else end
    repeats = repetition(run, attempt, told.failure)
    outcome = {**_outcome(told, done), "same_as": repeats.same_as}
    write(run.close_attempt, attempt, outcome)
    _tell(told, attempt.log, end, console, repeats, _since(run, attempt, outcome))


def _since(run: Run, attempt: Attempt, outcome: dict[str, Any]) -> tuple[str, ...]:
    """What differs from the attempt before, in at most two lines; the first one has nothing to be compared with."""
    if run.numbers()[:1] in ([], [attempt.number]):
        return ()
    try:
        from supervise.report.since import since

        return since(run, attempt, outcome)
    except Exception:  # noqa: BLE001 - for want of memory modules cannot be loaded; the end is told without them
        return ()


def _tell(
    told: Account, log: str, end: Done | Waiting, console: Console, repeats: Repetition, since: tuple[str, ...]
) -> None:
    """The end, for people: what became of the group, then the cause if it failed, and what follows."""
    ended = told.ended
    if told.reason.cause is not Cause.NOT_LAUNCHED:
        console.note(
            f"group empty after {duration(ended.seconds)}" if not ended.survivors else "the group is not empty"
        )
    sentences, clean = _verification(ended)
    console.verified(sentences, clean=clean)
    console.survivors(ended.survivors)
    if told.failure is not None:
        console.diagnosis(told.failure, log)
        if ended.log_unread:
            size = f"{ended.log_unread / _MIB:.1f} MiB"
            console.note(f"{size} of the log were not read, there was too much of it; `supervise explain` reads it all")
        if repeats.told is not None:
            console.line("history", repeats.told)
    console.compared(since)
    if isinstance(end, Waiting):
        return
    if end.why is not None:
        console.line("restart", end.why)
    if end.reraise is None:
        console.exit(end.status)


def _outcome(told: Account, done: Done) -> dict[str, Any]:
    """The end, for machines: outcome.json, the channel that exit statuses cannot blur."""
    from supervise.report.cause import to_data

    reason, ended = told.reason, told.ended
    _, clean = _verification(ended)
    return {
        "outcome": reason.cause.value,
        "exit_status": int(done.status),
        "signal": done.reraise,
        "leader_status": reason.status,
        "failed": reason.cause is not Cause.ASKED or told.failure is not None,
        "verified": not ended.survivors,
        "clean": clean,
        "ready_s": told.ready_s,
        "phases": {name: round(seconds, 1) for name, seconds in told.phases.items()},
        "cause": None if told.failure is None else to_data(told.failure),
        "survivors": ended.survivors,
        "sent": [list(pair) for pair in ended.sent],
        "removed": ended.removed,
        "left": ended.left,
        "checks": list(ended.aftermath.sentences),
        **({"effect": told.effect} if told.effect is not None else {}),
        **({"log_unread_bytes": ended.log_unread} if ended.log_unread else {}),
        "stop_s": round(ended.seconds, 3),
    }
