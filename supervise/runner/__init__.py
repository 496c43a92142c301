"""Runs a server from the clean slate to the verified end, as often as the user's policy has it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

from supervise import lifecycle as life
from supervise.attempts.store import Run, Store
from supervise.group.boot import Booted
from supervise.host import kernel, procfs
from supervise.model.exits import Exit
from supervise.report.console import Console
from supervise.runner import launch, plan
from supervise.runner.holder import take_lock
from supervise.runner.listeners import gather
from supervise.runner.plan import Options
from supervise.runner.service import Service
from supervise.runner.tiers import TierError
from supervise.runner.worlds import Worlds

__all__ = ["Options", "TierError", "run"]


def run(command: Sequence[str], options: Options, store: Store, console: Console, booted: Booted) -> life.Done:
    """Put a server on a clean slate, watch over it, and leave nothing of it behind.

    Args:
        command: the server's command line, passed on unchanged.
        options: the user's.
        store: where attempts are kept.
        console: where people read.
        booted: the keeper's process, which has been coming up meanwhile.

    Returns:
        Exit status, and the signal to re-raise if it was stopped by one.

    Raises:
        NotExecutableError: the command does not exist or cannot be executed; nothing was touched.
        ProfileError: a profile is damaged; nothing was touched.
        TellingError: metrics that were asked for cannot be had; nothing was touched.
        StoreError: the state directory cannot be used; nothing was touched.
        TierError: a tier that was required cannot be had; nothing was touched.
        ForeignProcError: /proc is not ours; nothing was touched.
    """
    program = launch.resolve(command[0], os.environ)
    procfs.self_id()
    planned = plan.make(command, os.environ, options)
    for note in planned.need.notes:
        console.line("note", note)
    target = store.run(planned.need.run)
    target.create()
    lock = (
        _replace(planned, store, target, console) if options.replace else take_lock(target, planned.deadlines, console)
    )
    if lock is None:
        return life.Done(Exit.SLATE)
    for note in target.examine():
        console.error(note)
    company = gather(planned, target, console, os.environ)
    worlds = Worlds(planned, store, target, lock, console, booted, company.once)
    kernel.become_subreaper()
    try:
        return asyncio.run(Service(command, program, planned, target, console, worlds, company).run())
    finally:
        console.close()
        worlds.leave()
        os.close(lock)


def _replace(planned: plan.Plan, store: Store, target: Run, console: Console) -> int | None:
    from supervise.runner.replacing import take

    return take(planned, store, target, console)
