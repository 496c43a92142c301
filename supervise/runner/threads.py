"""Runs what blocks beside the loop, and notices a thread that never came to life."""

from __future__ import annotations

import _thread
import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

_T = TypeVar("_T")
_A = TypeVar("_A")

_BIRTH_S = 5.0
# Where no thread can be started (RLIMIT_NPROC, pids.max) one can be a moment later, as a rule.
_RETRIES_S = (0.05, 0.2)
_LESS = "the server is not affected, supervise looks less often and answers later"


class Spared(Exception):  # noqa: N818 - what we can do without is no error
    """Something that we can do without; told once, and no reason to end anything."""


def spare(text: str) -> None:
    """Tell whoever hears of the running loop's exceptions that something has to be done without."""
    asyncio.get_running_loop().call_exception_handler({"message": text, "exception": Spared(text)})


async def in_thread(function: Callable[..., _T], *args: object) -> _T:
    """Call a function in a thread of its own, which holds up nobody's exit.

    Where memory is short a new thread may die before it runs a line of ours. `threading.Thread.start` waits for such a
    one for ever, in the caller's thread. A function that no thread can be had for is called in the loop's own: that is
    deaf for as long as it takes, which is better than a server that ends for want of a thread of ours.

    Args:
        function: what blocks, for a time that is bounded.
        args: what it is called with.

    Returns:
        What it returns.

    Raises:
        BaseException: whatever the function raises.
    """
    call = _Call(function, args)
    if not await _started(call.work):
        spare(f"no thread can be started; {_LESS}")
        call.work()
    watch = call.loop.call_later(_BIRTH_S, call.insist)
    try:
        return await call.future
    finally:
        watch.cancel()


async def in_thread_or_fail(function: Callable[..., _T], *args: object) -> _T:
    """The same before anything runs: a launch that cannot have a thread is better refused than begun.

    Args:
        function: what blocks, for a time that is bounded.
        args: what it is called with.

    Returns:
        What it returns.

    Raises:
        MemoryError: the thread did not begin within 5 s.
        RuntimeError: no thread can be started.
        BaseException: whatever the function raises.
    """
    call = _Call(function, args)
    if not await _started(call.work):
        raise RuntimeError("can't start new thread")
    watch = call.loop.call_later(_BIRTH_S, call.give_up)
    try:
        return await call.future
    finally:
        watch.cancel()


class _Call(Generic[_T]):
    """A call that is done once, by whoever comes first: a thread that was given up may still come to life."""

    def __init__(self, function: Callable[..., _T], args: tuple[object, ...]) -> None:
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[_T] = self.loop.create_future()
        self._function, self._args = function, args
        self._claim = _thread.allocate_lock()

    def work(self) -> None:
        """Do it, in whichever thread this is."""
        if not self._claim.acquire(blocking=False):
            return
        try:
            result = self._function(*self._args)
        except BaseException as error:  # noqa: BLE001 - told to whoever waits
            self._tell(self._fail, error)
        else:
            self._tell(self._succeed, result)

    def insist(self) -> None:
        """Its thread has had its time to begin."""
        if not self._claim.locked():
            spare(f"a new thread died before it began; {_LESS}")
            self.work()

    def give_up(self) -> None:
        """Its thread has had its time to begin, and nothing else is to be done about it."""
        if not self._claim.locked():
            self._fail(MemoryError("a new thread died before it began"))

    def _fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)

    def _succeed(self, result: _T) -> None:
        if not self.future.done():
            self.future.set_result(result)

    def _tell(self, deliver: Callable[[_A], None], what: _A) -> None:
        try:
            self.loop.call_soon_threadsafe(deliver, what)
        except RuntimeError:
            # The loop is closed: nobody waits any more.
            return


async def _started(work: Callable[[], None]) -> bool:
    for pause_s in (*_RETRIES_S, None):
        try:
            _thread.start_new_thread(work, ())
        except (RuntimeError, MemoryError):
            if pause_s is not None:
                await asyncio.sleep(pause_s)
        else:
            return True
    return False
