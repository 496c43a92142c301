"""Whether an attempt failed of what an earlier one of its run failed of."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from supervise.attempts.store import Attempt, Run
    from supervise.model.diagnosis import Diagnosis


class Repetition(NamedTuple):
    """What people are told of it, None where there is nothing to compare; the attempt with the same cause."""

    told: str | None = None
    same_as: int | None = None


def repetition(run: Run, attempt: Attempt, failure: Diagnosis | None) -> Repetition:
    """Compare with the failures that are still kept.

    Args:
        run: the run.
        attempt: the one that is over; its own outcome is not looked at.
        failure: what it failed of, None if it did not.
    """
    if failure is None:
        return Repetition()
    earlier = run.recent_failures(attempt.number)
    if not earlier:
        return Repetition()
    from supervise.lifecycle.restart import identity

    cause = identity(failure)
    if not cause.known:
        return Repetition()
    same = next((number for number, failed in earlier if cause.same_as(failed)), None)
    if same is None:
        # Of a cause that nobody printed nobody knows whether it is new.
        return Repetition("new cause" if cause.printed else None)
    return Repetition(f"same cause as attempt {same}", same)
