"""The door to what may never answer: a file system whose server is gone blocks whoever looks, in every call."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from supervise.host.beside import Beside

_T = TypeVar("_T")


def within(timeout_s: float, read: Callable[[], _T]) -> _T:
    """What `read` returns, if it returns in time.

    It runs in a thread of its own that is left behind if it does not: a call into a dead mount cannot be interrupted
    (nfs(5), hard).

    Args:
        timeout_s: how long it may take, in seconds.
        read: looks, and changes nothing.

    Returns:
        Its answer.

    Raises:
        TimeoutError: there is none yet.
        OSError: it raised that.
        ValueError: likewise.
    """
    reading = Beside(read)
    if not reading.wait(timeout_s):
        raise TimeoutError(f"no answer in {timeout_s:g} s")
    return reading.result()
