"""Runs one attempt from the clean slate to the verified end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence

from supervise import lifecycle as life
from supervise.attempts.store import Run, Store
from supervise.group.boot import Booted
from supervise.group.handle import Keeper
from supervise.host import cgroupfs, kernel, procfs
from supervise.model.exits import Exit
from supervise.model.probe import Probed
from supervise.model.process import Process
from supervise.model.slate import SlateResult
from supervise.model.tier import Tiers
from supervise.report.console import Console
from supervise.runner import launch, plan
from supervise.runner.holder import take_lock
from supervise.runner.loop import Loop
from supervise.runner.packages import Examined, examine
from supervise.runner.performer import Performer
from supervise.runner.plan import Options, Plan
from supervise.runner.routing import route
from supervise.runner.slate import prepare
from supervise.runner.tiers import TierError, choose
from supervise.runner.world import World
from supervise.slate.aftermath import look

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
    lock = take_lock(target, planned.deadlines, console)
    if lock is None:
        return life.Done(Exit.SLATE)
    tiers = choose(options.wanted, target.name, os.urandom(6).hex())
    for tier, why in tiers.refused.items():
        console.line("note", f"no {tier} tier: {why}")
    kernel.become_subreaper()
    try:
        world = _world(planned, store, target, lock, booted, tiers, console)
        return asyncio.run(_supervise(command, program, planned, target, world, console))
    finally:
        console.close()
        if tiers.leaf is not None:
            # Whoever held it has removed it; one that nobody came to hold is empty.
            cgroupfs.remove(tiers.leaf)
        os.close(lock)


async def _supervise(
    command: Sequence[str],
    program: str,
    planned: Plan,
    target: Run,
    world: World,
    console: Console,
) -> life.Done:
    loop = Loop(life.Sweeping())
    performer = Performer(loop, planned, command, program, target, console, world)
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: performer.broken(context.get("exception") or RuntimeError(context["message"]))
    )
    restore = route(loop.post, performer.passing, performer.reap)
    try:
        performer.begin()
        done = await loop.run(performer)
        performer.conclude(done)
        return done
    finally:
        performer.release()
        restore()


def _world(
    planned: Plan, store: Store, target: Run, lock: int, booted: Booted, tiers: Tiers, console: Console
) -> World:
    def clean(cancelled: Callable[[], bool], helpers: frozenset[int]) -> SlateResult:
        return prepare(planned, store, target, console, helpers=helpers, cancelled=cancelled)

    def probe(members: Callable[[], Iterable[Process]]) -> Probed:
        # An HTTP client takes as long to import as half an asyncio: it is wanted once the server is on its way.
        from supervise import probes

        return probes.ready(planned.need, planned.profile.ready.http, members)

    return World(
        sweep=clean,
        start_keeper=lambda: Keeper(
            booted,
            keep_open=(lock,),
            log=os.path.join(target.path, "keeper.log"),
            leaf=tiers.leaf,
            record=os.path.join(target.path, "latest", "attempt.json"),
        ),
        tiers=tiers,
        probe=probe,
        raise_limits=_raised,
        packages=_packages(planned, store),
        aftermath=lambda gpus, pids: look(planned.need, gpus, pids),
    )


def _raised(pid: int) -> tuple[str, ...]:
    from supervise.host import limits

    return limits.raise_soft(pid)


def _packages(planned: Plan, store: Store) -> Callable[[], Examined] | None:
    """None where nobody knows of any, or nobody wants to know."""
    if not planned.packages or {"packages", "all"} & planned.options.no_preflight:
        return None
    return lambda: examine(planned, store, thorough=False)
