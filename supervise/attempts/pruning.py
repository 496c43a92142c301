"""Which old attempts may go. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pruning:
    """How much history a run keeps: at most `attempts` of them, and at most `size` bytes together."""

    attempts: int = 50
    size: int = 10 * 1024**3


@dataclass(frozen=True, slots=True)
class Kept:
    """One kept attempt: its number, the bytes it takes on disk, and whether it began a streak of failures."""

    number: int
    size: int
    first_failure: bool


def to_remove(kept: Sequence[Kept], pruning: Pruning, *, running: int) -> list[int]:
    """Oldest attempts beyond the limits, but never the running one nor the first failure of a streak.

    The first failure names the cause; those that follow it mostly repeat it, or fail from its leftovers.

    Args:
        kept: all attempts, ascending by number.
        pruning: the limits.
        running: number of the attempt that is about to run or runs.

    Returns:
        Numbers to remove, oldest first.
    """
    count, size = len(kept), sum(attempt.size for attempt in kept)
    doomed: list[int] = []
    for attempt in kept:
        if count <= pruning.attempts and size <= pruning.size:
            break
        if attempt.number == running or attempt.first_failure:
            continue
        doomed.append(attempt.number)
        count, size = count - 1, size - attempt.size
    return doomed
