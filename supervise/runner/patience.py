"""Looks at a server that starts every few seconds: says when it stands still, and asks for its end when that lasts."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from supervise.lifecycle import StartExpired
from supervise.lifecycle.patience import Limits, Verdict, Watch, limits, look_again
from supervise.model.news import News, Stalled, Working
from supervise.model.profile import BEFORE_PHASES
from supervise.text import roughly

if TYPE_CHECKING:
    from supervise.model.effort import Look
    from supervise.model.profile import Profile
    from supervise.report.console import Console

EVERY_S = 5.0
"""Between two looks; for a short patience a tenth of that."""
_LEAST_S = 0.2
# A look that takes so long is not waited for: /proc answers in milliseconds, the driver has a deadline of its own.
_LOOK_S = 20.0
# As long as something is seen to move, the driver is left alone.
_ASK_GPUS_S = 20.0


class Patience:
    """One server's.

    Args:
        profile: how long its phases may stand still.
        chosen_s: the user's choice for all of them, 0 to say it and do nothing, None for none.
        total_s: the whole start-up's deadline: that is what counts where nothing else is acted upon.
        log: path of the server's log.
        look: looks at the group, and at the GPUs if True; blocking.
        clock: monotonic seconds.
        in_thread: runs what blocks.
        console: where people read.
        tell: hears of each look.
        post: takes the end of patience.
    """

    def __init__(
        self,
        profile: Profile,
        chosen_s: float | None,
        total_s: float,
        log: str,
        *,
        look: Callable[[bool], Look],
        clock: Callable[[], float],
        in_thread: Callable[..., Awaitable[Any]],
        console: Console,
        tell: Callable[[News], None],
        post: Callable[[StartExpired], None],
    ) -> None:
        self._profile, self._chosen_s, self._total_s, self._log = profile, chosen_s, total_s, log
        self._look, self._clock, self._in_thread = look, clock, in_thread
        self._console, self._tell, self._post = console, tell, post
        self._late: asyncio.Future[Look] | None = None
        self._began = 0.0

    async def watch(
        self, starting: Callable[[], bool], phase: Callable[[], str | None], steps: Callable[[], int]
    ) -> None:
        """Look until it starts no more, or until it has stood still for too long.

        Args:
            starting: whether there is still something to look at.
            phase: where it is, None before the first phase.
            steps: how often its log has told of progress.
        """
        watch: Watch | None = None
        self._began = looked_at = self._clock()
        while starting():
            name = phase() or BEFORE_PHASES
            allowed = limits(name, self._profile.patience, self._chosen_s)
            period_s = max(_LEAST_S, min(EVERY_S, allowed.patience_s / 10))
            still = watch is not None and watch.stuck_s >= min(_ASK_GPUS_S, allowed.patience_s / 5)
            look = await self._once(gpus=still)
            if look is not None and starting():
                now, look = self._clock(), self._with_log(look, steps())
                if watch is None:
                    watch = Watch(look)
                else:
                    seconds = now - looked_at
                    watch, verdict = look_again(watch, look, name, allowed, seconds=seconds, period_s=period_s)
                    self._report(verdict, phase(), allowed)
                    if verdict.expired and verdict.text is not None:
                        self._post(StartExpired(f"{verdict.text} (--stall-timeout)"))
                        return
                looked_at = now
            await asyncio.sleep(period_s)

    async def _once(self, *, gpus: bool) -> Look | None:
        """None where it cannot be told: then this time counts for nothing."""
        if self._late is None:
            self._late = asyncio.ensure_future(self._in_thread(self._look, gpus))
        done, _ = await asyncio.wait((self._late,), timeout=_LOOK_S)
        if not done:
            return None
        asked, self._late = self._late, None
        try:
            return asked.result()
        except (OSError, MemoryError, RuntimeError):
            # No descriptor, no thread, no memory left for us: that says nothing about the server.
            return None

    def _with_log(self, look: Look, steps: int) -> Look:
        """What the log has told; where nobody knows what its lines mean, each of them may mean progress."""
        try:
            written = os.stat(self._log).st_size
        except OSError:
            written = 0
        return look._replace(steps=steps if self._profile.phases else written, written=written)

    def _report(self, verdict: Verdict, phase: str | None, allowed: Limits) -> None:
        acts = allowed.acts
        patience_s = verdict.patience_s if acts else self._total_s
        self._tell(Working(phase, verdict.clock_s, patience_s, verdict.text))
        if verdict.resumed_s is not None:
            self._console.line("loading", f"goes on again after {roughly(verdict.resumed_s)}")
        if verdict.news and verdict.text is not None:
            self._console.line("stalled", verdict.text)
            if acts:
                left_s, of = min((verdict.left_s, "--stall-timeout"), (self._rest_s, "--ready-timeout"))
                unless = " unless something moves" if of == "--stall-timeout" else ""
                self._console.note(f"it is ended in {roughly(left_s)}{unless} ({of})")
            self._tell(Stalled(phase, verdict.text))

    @property
    def _rest_s(self) -> float:
        """Of the whole start-up's deadline."""
        return self._total_s - (self._clock() - self._began)
