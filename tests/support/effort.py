"""How effort grows with size: a ratio of two measurements in the same run, never a time."""

from __future__ import annotations

import time
from collections.abc import Callable


def seconds(work: Callable[[], object]) -> float:
    """CPU time of this thread."""
    began = time.thread_time()
    work()
    return time.thread_time() - began


def is_slow(work: Callable[[int], object], size: int, least: float = 0.003) -> bool:
    """Whether four times as much takes much more than four times as long, or than `least` seconds.

    What seems to be so is measured again, because anything may have come in between.
    """
    return all(
        (long := seconds(lambda: work(4 * size))) > least and long > 8 * seconds(lambda: work(size)) for _ in range(5)
    )
