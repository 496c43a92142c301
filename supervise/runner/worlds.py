"""The outside as each attempt finds it: what holds its group, its keeper, the clean slate, probes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from supervise.attempts.store import Run, Store
from supervise.group.boot import Booted
from supervise.group.handle import Keeper
from supervise.host import cgroupfs
from supervise.model.probe import Probed
from supervise.model.process import Process
from supervise.model.slate import SlateResult
from supervise.model.tier import Tier, Tiers
from supervise.report.console import Console
from supervise.runner.once import Once
from supervise.runner.packages import record
from supervise.runner.plan import Plan
from supervise.runner.slate import prepare
from supervise.runner.tiers import choose
from supervise.runner.world import World
from supervise.slate.aftermath import look

if TYPE_CHECKING:
    from supervise.model.effort import Look
    from supervise.preflight.edited import Edited
    from supervise.probes import Asker


class Worlds:
    """Makes one world after the other; the run's lock is the same in all of them.

    Args:
        planned: what is to be run.
        store: where attempts are kept.
        target: the run.
        lock: descriptor of its lock.
        console: where people read.
        booted: the first keeper's process, which has been coming up meanwhile.
        once: what may be asked for one attempt alone.

    Raises:
        TierError: a tier that was required cannot be had.
    """

    def __init__(
        self,
        planned: Plan,
        store: Store,
        target: Run,
        lock: int,
        console: Console,
        booted: Booted,
        once: Once | None = None,
    ) -> None:
        self._planned, self._store, self._target = planned, store, target
        self._lock, self._console, self._once = lock, console, once or Once()
        self._refused: frozenset[Tier] = frozenset()
        self._booted: Booted | None = booted
        self._tiers = self._choose()

    def renew(self) -> None:
        """Leave what held the last attempt, and get the same for the next one, whose keeper is booted when it begins.

        Raises:
            TierError: a tier that was required cannot be had a second time.
        """
        self.leave()
        self._booted, self._tiers = None, self._choose()

    def leave(self) -> None:
        """Whoever held the leaf has removed it; one that nobody came to hold is empty."""
        if self._tiers.leaf is not None:
            cgroupfs.remove(self._tiers.leaf)

    def world(self) -> World:
        """The world of the next attempt."""
        planned = self._once.settle(self._planned)
        return _world(planned, self._store, self._target, self._lock, self._booted, self._tiers, self._console)

    def _choose(self) -> Tiers:
        tiers = choose(self._planned.options.wanted, self._target.name, os.urandom(6).hex())
        for tier, why in tiers.refused.items():
            if tier not in self._refused:
                self._console.line("note", f"no {tier} tier: {why}")
        self._refused |= tiers.refused.keys()
        return tiers


def _world(
    planned: Plan, store: Store, target: Run, lock: int, booted: Booted | None, tiers: Tiers, console: Console
) -> World:
    def clean(cancelled: Callable[[], bool], helpers: frozenset[int]) -> SlateResult:
        return prepare(planned, store, target, console, helpers=helpers, cancelled=cancelled)

    asker: Asker | None = None

    def probe(members: Callable[[], Iterable[Process]]) -> Probed:
        nonlocal asker
        # An HTTP client takes as long to import as half an asyncio: it is wanted once the server is on its way.
        from supervise.probes import Asker

        asker = asker or Asker(planned.need, planned.profile.ready)
        return asker.ready(members)

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
        packages=record(planned, store),
        aftermath=lambda gpus, pids: look(planned.need, gpus, pids, within_s=planned.verify_s),
        effort=_effort,
        edited=_edited(planned, target),
    )


def _raised(pid: int) -> tuple[str, ...]:
    from supervise.host import limits

    return limits.raise_soft(pid)


def _effort(root: int, gpus: bool) -> Look:
    from supervise.host import effort

    return effort.look(root, gpus=gpus)


def _edited(planned: Plan, target: Run) -> Callable[[], Edited] | None:
    """None where nobody knows what an engine is. What is left out before the launch is looked at after it."""
    if not planned.profile.packages:
        return None

    def look() -> Edited:
        from supervise.preflight import edited

        watch = planned.options.watch
        return edited.look(planned.need, planned.env, planned.profile.packages, watch, target.path)

    return look
