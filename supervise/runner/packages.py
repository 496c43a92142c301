"""A look at the engine's installed packages while it loads: debug code that a reinstall has left in place."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from supervise.attempts.store import Attempt, Store
from supervise.model.slate import Finding
from supervise.runner.plan import Plan
from supervise.runner.threads import in_thread, spare

if TYPE_CHECKING:
    from supervise.runner.recording import Recording

# What was seen before is read in a tenth of it; a server that dies at once shall not be the longer for it.
_PATIENCE_S = 0.4

# The loop keeps no reference to its tasks (asyncio.create_task).
_looking: set[asyncio.Task[None]] = set()

Examined = tuple[tuple[Finding, ...], tuple[str, ...]]


def examine(planned: Plan, store: Store, *, thorough: bool) -> Examined:
    """Compare the engine's packages, and those that the user has named, with their wheels.

    Args:
        planned: says which, and in which Python.
        store: where digests are remembered.
        thorough: whether large files are read, too.

    Returns:
        Remarks, and sentences about what is as it should be; blocking.
    """
    from supervise.slate import packages

    need, names = planned.need, planned.packages
    remembered = os.path.join(store.root, ".packages.json")
    return packages.examine(need.program, planned.env, names, remembered, thorough=thorough, before=need.wrappers)


def record(planned: Plan, store: Store) -> Callable[[], Recording] | None:
    """What reads the code of an attempt, in a thread; None where there is none, or nobody wants to know.

    Args:
        planned: says which packages, in which Python, and what is watched.
        store: where digests are remembered.
    """
    unwanted = bool({"packages", "all"} & planned.options.no_preflight)
    if not planned.options.watch and (unwanted or not planned.packages):
        return None

    def work() -> Recording:
        from supervise.runner import recording

        return recording.record(planned, store, unwanted=unwanted)

    return work


class Recorder:
    """Reads the code of an attempt, once, in a thread of its own which nobody waits for longer than for a moment.

    Args:
        attempt: whose code it is.
        read: reads it; blocking.
        told: called in the running loop with what there is to be said, if that still runs then.
        failed: called there with what could not be written.
    """

    def __init__(
        self,
        attempt: Attempt,
        read: Callable[[], Recording],
        told: Callable[[Recording], None],
        failed: Callable[[OSError], None],
    ) -> None:
        self._attempt, self._read, self._told, self._failed = attempt, read, told, failed
        self._began, self._late = time.monotonic(), False
        self._kept = asyncio.Event()
        task = asyncio.ensure_future(self._work())
        _looking.add(task)
        task.add_done_callback(_looking.discard)

    async def finish(self) -> bool:
        """The attempt is over: wait for a moment, if it is still being read.

        Returns:
            Whether all has been read; else nothing is written down any more.
        """
        try:
            await asyncio.wait_for(self._kept.wait(), _PATIENCE_S)
        except TimeoutError:
            self._late = True
        return not self._late

    async def _work(self) -> None:
        try:
            recording, error = await in_thread(self._keep)
            self._told(recording)
            if error is not None:
                self._failed(error)
            self._kept.set()
            await in_thread(recording.keep_originals)
        except Exception as error:  # noqa: BLE001 - what nobody waits for ends nothing
            spare(f"the engine's packages could not be examined: {type(error).__name__}: {error}")
        finally:
            self._kept.set()

    def _keep(self) -> tuple[Recording, OSError | None]:
        recording = self._read()
        try:
            if not self._late:
                recording.keep(self._attempt, time.monotonic() - self._began)
        except OSError as error:
            return recording, error
        return recording, None
