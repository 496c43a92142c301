"""Whether a server that failed is launched again, and when: FIELD.md B10 as a pure function.

A failure that would come back is not tried again, one that may pass is, after a wait that doubles. Chance is an
argument, and so is the time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from supervise.lifecycle.states import Done, Waiting
from supervise.model.diagnosis import FailureClass
from supervise.model.exits import Exit
from supervise.model.restart import Identity, Policy, When
from supervise.text import duration, shorten

if TYPE_CHECKING:
    from supervise.model.diagnosis import Diagnosis

# Nothing of the server's: a slate, survivors, a mistake of ours, a command line that cannot be run.
_NEVER = (
    Exit.USAGE,
    Exit.SLATE,
    Exit.SURVIVORS,
    Exit.INTERNAL,
    Exit.CANNOT_EXECUTE,
    Exit.NOT_FOUND,
)
# Under load it comes back with the load, which takes longer to go away than a port.
_LOAD_FACTOR = 4
# Two runs that failed of the same thing on the same host must not try again in the same moment for ever.
_JITTER = 0.25
_DOUBLINGS = 32
_NAME_WIDTH = 60
_NO_CAUSE = "no cause printed"


@dataclass(frozen=True, slots=True)
class Failure:
    """One attempt that failed: its number, when it was over (monotonic seconds), of what, and what is known of that.

    `healthy` is True if it had served for so long that what went before it does not count any more.
    """

    attempt: int
    at_s: float
    cause: Identity
    failure: FailureClass
    healthy: bool = False

    @property
    def name(self) -> str:
        """What it failed of, in a few words."""
        return self.cause.signature or shorten(self.cause.text or self.cause.end or _NO_CAUSE, _NAME_WIDTH)


@dataclass(frozen=True, slots=True)
class Ended:
    """An attempt that is over.

    `status` is the exit status that it would end supervise with, `asked` whether somebody asked it to stop, `changed`
    whether a watched file has changed since it began. `jitter` is a random number from 0 to 1.
    """

    status: int
    asked: bool
    failure: Failure
    changed: bool = False
    jitter: float = 0.0


@dataclass(frozen=True, slots=True)
class Relaunch:
    """Try again after so many seconds; `why` is for people."""

    after_s: float
    why: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Do not, although there is something to try again: the exit status that says so, and why, for people."""

    status: int
    why: str


@dataclass(frozen=True, slots=True)
class End:
    """There is nothing to try again: it ended as asked, or it is not the server that failed."""


Decision = Relaunch | GiveUp | End


def decide(policy: Policy, history: Sequence[Failure], ended: Ended) -> Decision:
    """Decide about one more attempt.

    Args:
        policy: the user's.
        history: the failures that were followed by a relaunch, oldest first.
        ended: the attempt that is over.

    Returns:
        What is to be done.
    """
    if policy.when is When.NO or ended.asked or ended.status in _NEVER:
        return End()
    row = _row(history, ended.failure)
    if not ended.changed and (pointless := _pointless(policy, row, ended.failure)):
        return pointless
    recent = [failure for failure in history if failure.at_s > ended.failure.at_s - policy.window_s]
    if len(recent) >= policy.most:
        restarts = f"{len(recent)} restart{'' if len(recent) == 1 else 's'} in {_span(policy.window_s)}"
        return GiveUp(Exit.GAVE_UP, f"gave up after {restarts}: {_summary((*recent, ended.failure))}")
    why = "a file has changed" if ended.changed else ended.failure.failure.value
    return Relaunch(_wait_s(policy, row, ended), f"{why}, {len(recent) + 1} of {policy.most}")


def remembered(policy: Policy, history: Sequence[Failure]) -> tuple[Failure, ...]:
    """As much of a history as any decision depends on, so that a server which fails for years costs no memory."""
    return tuple(history)[-max(policy.most, _DOUBLINGS) :]


def _row(history: Sequence[Failure], failure: Failure) -> tuple[Failure, ...]:
    """The failures since the server last was healthy; the one that ended its health is the first of them."""
    if failure.healthy:
        return ()
    row: list[Failure] = []
    for earlier in reversed(history):
        row.append(earlier)
        if earlier.healthy:
            break
    return tuple(reversed(row))


def _pointless(policy: Policy, row: Sequence[Failure], failure: Failure) -> GiveUp | None:
    if failure.failure is FailureClass.DETERMINISTIC:
        return GiveUp(Exit.DETERMINISTIC, "no relaunch: it would fail the same way (deterministic)")
    same = bool(row) and failure.cause.same_as(row[-1].cause)
    if same and failure.cause.printed:
        return GiveUp(Exit.DETERMINISTIC, f"no relaunch: the same cause as attempt {row[-1].attempt} at the same phase")
    if policy.when is When.ALWAYS:
        return None
    if same and failure.failure is not FailureClass.TRANSIENT:
        # Alike is not the same: many things end a server with SIGKILL, and it may be another one the third time.
        return GiveUp(
            Exit.GAVE_UP, f"gave up: {failure.name}, like attempt {row[-1].attempt}, and nobody printed a cause"
        )
    unknown = FailureClass.UNKNOWN
    before = next((earlier for earlier in row if earlier.failure is unknown), None)
    if failure.failure is unknown and before is not None:
        once = f"what is of unknown class is tried again once, and was after attempt {before.attempt} ({before.name})"
        return GiveUp(Exit.GAVE_UP, f"gave up: {failure.name}; {once}")
    return None


def _wait_s(policy: Policy, row: Sequence[Failure], ended: Ended) -> float:
    """What doubles is the wait within a row; a change of the code begins a new one."""
    doublings = 0 if ended.changed else min(len(row), _DOUBLINGS)
    factor = _LOAD_FACTOR if ended.failure.failure is FailureClass.LOAD else 1
    wait = min(policy.cap_s, policy.backoff_s * factor * 2.0**doublings)
    return wait * (1 + _JITTER * ended.jitter)


def _summary(failures: Sequence[Failure]) -> str:
    counted = Counter(failure.name for failure in failures)
    return ", ".join(f"{count} x {name}" for name, count in counted.most_common())


def _span(seconds: float) -> str:
    """A span of time as it was given: `1 h`, where a duration would be told as 60 min."""
    for unit, name in ((3600, "h"), (60, "min")):
        if seconds >= unit and seconds % unit == 0:
            return f"{seconds / unit:.0f} {name}"
    return duration(seconds)


# --- where the lifecycle asks -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Restarts:
    """What a relaunch depends on beside the end itself.

    `up_s` is how long it had been ready, in seconds, None if it never was. `waits` is True where watched files are
    waited for rather than to give a failure up. For the others see Failure and Ended.
    """

    policy: Policy
    history: tuple[Failure, ...]
    attempt: int
    at_s: float
    up_s: float | None = None
    changed: bool = False
    jitter: float = 0.0
    waits: bool = False


def identity(diagnosis: Diagnosis | None) -> Identity:
    """What tells the failure apart from others."""
    if diagnosis is None:
        return Identity()
    return Identity(diagnosis.fingerprint, diagnosis.signature, diagnosis.text, diagnosis.phase, diagnosis.end)


def failure_of(diagnosis: Diagnosis | None, restarts: Restarts) -> Failure:
    """The failure as the history keeps it."""
    return Failure(
        restarts.attempt,
        restarts.at_s,
        identity(diagnosis),
        diagnosis.failure if diagnosis else FailureClass.UNKNOWN,
        healthy=restarts.up_s is not None and restarts.up_s >= restarts.policy.healthy_s,
    )


def settle(done: Done, diagnosis: Diagnosis | None, restarts: Restarts) -> Waiting | Done:
    """What follows an attempt that is over: the wait for the next one, or the end.

    Args:
        done: how it ends if nothing follows.
        diagnosis: what it failed of.
        restarts: what else the decision depends on.

    Returns:
        The next state.
    """
    failure = failure_of(diagnosis, restarts)
    ended = Ended(done.status, done.reraise is not None, failure, restarts.changed, restarts.jitter)
    decision = decide(restarts.policy, restarts.history, ended)
    if isinstance(decision, Relaunch):
        return Waiting(done, decision.after_s, restarts.attempt, failure.name, decision.why)
    if restarts.waits and not ended.asked and done.status not in _NEVER:
        why = decision.why if isinstance(decision, GiveUp) else ""
        return Waiting(done, None, restarts.attempt, failure.name, why)
    return Done(decision.status, why=decision.why) if isinstance(decision, GiveUp) else done
