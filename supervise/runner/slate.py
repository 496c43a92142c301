"""Book-keeping of the clean slate: attempts whose supervise was killed get the outcome that nobody wrote."""

from __future__ import annotations

from contextlib import suppress

from supervise.attempts.store import Run
from supervise.host import cgroupfs
from supervise.model.slate import SlateResult


def settle(run: Run, result: SlateResult) -> None:
    """Close the attempts of this run that never got an outcome, once the slate has proven that nothing of them is left.

    Call it with the run's lock held; an outcome that cannot be written is written by the next clean slate.
    """
    if not result.clean:
        return
    with suppress(OSError, cgroupfs.NoCgroupError):
        cgroupfs.remove_forgotten(run.name)
    for number in run.numbers():
        attempt = run.attempt(number)
        if attempt.read("outcome") is None:
            with suppress(OSError):
                run.close_attempt(attempt, {"outcome": "lost", "failed": True, "verified": True, "cause": None})
