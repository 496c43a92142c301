"""What a run uses of the outside; tests put stand-ins here."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from supervise.runner.threads import in_thread, in_thread_or_fail

if TYPE_CHECKING:
    from supervise.group.handle import Keeper
    from supervise.model.effort import Look
    from supervise.model.probe import Probed
    from supervise.model.process import Process
    from supervise.model.slate import SlateResult
    from supervise.model.snapshot import Gpus
    from supervise.model.tier import Tiers
    from supervise.preflight.edited import Edited
    from supervise.runner.recording import Recording
    from supervise.slate.aftermath import Aftermath


@dataclass(frozen=True, slots=True)
class World:
    """Sweep, keeper, tiers, probe, second look, clock, and how what blocks is run.

    `raise_limits` raises those of the process that it is given, which starts the server; `packages` reads the code that
    the engine is imported from, None if nobody wants to know. `effort` looks at all that run below a process, and at
    the GPUs if True; None if nobody looks. `edited` finds files of the engine that somebody has edited.
    """

    sweep: Callable[[Callable[[], bool], frozenset[int]], SlateResult]
    start_keeper: Callable[[], Keeper]
    tiers: Tiers
    probe: Callable[[Callable[[], Iterable[Process]]], Probed]
    aftermath: Callable[[Gpus, frozenset[int]], Aftermath]
    raise_limits: Callable[[int], tuple[str, ...]] = lambda _: ()
    packages: Callable[[], Recording] | None = None
    effort: Callable[[int, bool], Look] | None = None
    edited: Callable[[], Edited] | None = None
    clock: Callable[[], float] = time.monotonic
    in_thread: Callable[..., Awaitable[Any]] = in_thread

    @property
    def in_thread_or_fail(self) -> Callable[..., Awaitable[Any]]:
        """The same before a launch."""
        return in_thread_or_fail if self.in_thread is in_thread else self.in_thread
