"""A look at the engine's installed packages while it loads: debug code that a reinstall has left in place."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable

from supervise.attempts.store import Store
from supervise.model.slate import Finding
from supervise.runner.plan import Plan

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
    loop = asyncio.get_running_loop()

    def work() -> None:
        try:
            loop.call_soon_threadsafe(told, *examine())
        except RuntimeError:
            # The loop is closed: it is over.
            pass

    threading.Thread(target=work, daemon=True, name="packages").start()
