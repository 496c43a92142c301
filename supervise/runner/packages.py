"""A look at the engine's installed packages while it loads: debug code that a reinstall has left in place."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from supervise.attempts.store import Store
from supervise.model.slate import Finding
from supervise.runner.plan import Plan
from supervise.runner.threads import in_thread, spare

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


def look(examine: Callable[[], Examined], told: Callable[[tuple[Finding, ...], tuple[str, ...]], None]) -> None:
    """Examine them in a thread of its own, which nobody waits for: not even the end of a server that dies at once.

    Args:
        examine: the remarks, and the sentences about what is as it should be; blocking.
        told: called with both in the running loop, if that still runs then.
    """

    async def work() -> None:
        try:
            told(*await in_thread(examine))
        except Exception as error:  # noqa: BLE001 - what nobody waits for ends nothing
            spare(f"the engine's packages could not be examined: {type(error).__name__}: {error}")

    task = asyncio.ensure_future(work())
    _looking.add(task)
    task.add_done_callback(_looking.discard)
