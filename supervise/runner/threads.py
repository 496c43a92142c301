"""Runs what blocks beside the loop, and notices a thread that never came to life."""

from __future__ import annotations

import _thread
import asyncio
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")
_A = TypeVar("_A")

_BIRTH_S = 5.0


async def in_thread(function: Callable[..., _T], *args: object) -> _T:
    """Call a function in a thread of its own, which holds up nobody's exit.

    Where memory is short a new thread may die before it runs a line of ours. `threading.Thread.start` waits for such a
    one for ever, in the caller's thread.

    Args:
        function: what blocks.
        args: what it is called with.

    Returns:
        What it returns.

    Raises:
        MemoryError: the thread did not begin within 5 s.
        RuntimeError: no thread can be started (RLIMIT_NPROC, pids.max).
        BaseException: whatever the function raises.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_T] = loop.create_future()
    began = False

    def fail(error: BaseException) -> None:
        if not future.done():
            future.set_exception(error)

    def succeed(result: _T) -> None:
        if not future.done():
            future.set_result(result)

    def work() -> None:
        nonlocal began
        began = True
        try:
            result = function(*args)
        except BaseException as error:  # noqa: BLE001 - told to whoever waits
            _tell(loop, fail, error)
        else:
            _tell(loop, succeed, result)

    def look() -> None:
        if not began:
            fail(MemoryError("a new thread died before it began"))

    _thread.start_new_thread(work, ())
    watch = loop.call_later(_BIRTH_S, look)
    try:
        return await future
    finally:
        watch.cancel()


def _tell(loop: asyncio.AbstractEventLoop, deliver: Callable[[_A], None], what: _A) -> None:
    try:
        loop.call_soon_threadsafe(deliver, what)
    except RuntimeError:
        # The loop is closed: nobody waits any more.
        return
