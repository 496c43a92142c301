"""The live view of a run, and the keys that go with it: kept from the news, drawn when something has changed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from supervise import lifecycle as life
from supervise.diagnosis.prefixes import parse
from supervise.host import nvml
from supervise.model.news import Launched, Progressed
from supervise.model.snapshot import Gpus, GpuStatus
from supervise.report.scene import Card, Story
from supervise.runner.keys import Keys
from supervise.runner.threads import in_thread
from supervise.text import url

if TYPE_CHECKING:
    from supervise.attempts.store import Run
    from supervise.model.news import News
    from supervise.report.live import Terminal
    from supervise.runner.once import Once
    from supervise.runner.plan import Plan

# A phase's bar moves at most so often; where nothing but time goes on, and for a look at the window, once a second.
_QUICK_S, _TICK_S = 0.25, 1.0
# Whoever draws a window larger or smaller makes many signals of it.
_RESIZED_S = 0.05
# The driver takes its time for an answer: of a processor it gets 5 % at most.
_GPUS_S, _GPUS_READY_S, _GPUS_SHARE = 2.0, 10.0, 20
# Whoever has not been stopped by then is not going to be.
_SUSPENDED_S = 5.0
_LINES, _LINES_BYTES = 5, 8 * 1024


class Showing:
    """Belongs to a run.

    Args:
        planned: what is run.
        target: the run.
        screen: where it is shown.
        post: takes what keys ask for.
        once: takes what is asked for the next slate.
        refusal: says why a relaunch is sure to be refused, None if it is not; in a thread.
        read_gpus: reads their memory; blocking.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        planned: Plan,
        target: Run,
        screen: Terminal,
        post: Callable[[life.Event], None],
        once: Once,
        refusal: Callable[[], Awaitable[str | None]],
        *,
        read_gpus: Callable[[], Gpus] = nvml.read,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._planned, self._target, self._screen = planned, target, screen
        self._post, self._once, self._refusal = post, once, refusal
        self._read_gpus, self._clock = read_gpus, clock
        self._loop = asyncio.get_running_loop()
        self._story = Story(target.name, url(planned.need))
        self._log = ""
        self._help = self._suspended = self._seen = False
        self._next: asyncio.TimerHandle | None = None
        self._continuing: asyncio.TimerHandle | None = None
        self._drawn_at = float("-inf")
        self._tasks: set[asyncio.Task[None]] = set()
        self._known = _keys(planned)
        self._keys = Keys.of(self._loop, self._press, self._known)
        screen.on_suspend = self._suspend
        self._loop.add_signal_handler(signal.SIGCONT, self._continue)
        screen.on_resize = lambda: self._soon(_RESIZED_S)
        self._begin(self._measure())

    def hear(self, news: News) -> None:
        """Something has happened."""
        self._story.hear(news, self._clock())
        if isinstance(news, Launched):
            self._log = news.log
            self._begin(self._remember(news.attempt))
        self._attend()
        if not self._story.begun:
            # Whoever has to be asked about the slate is asked on a terminal like any other.
            self._screen.show(None)
        else:
            self._soon(_QUICK_S if isinstance(news, Progressed) and not news.new else 0.0)

    def close(self) -> None:
        """It is over: nothing of it remains."""
        for handle in (self._next, self._continuing):
            if handle is not None:
                handle.cancel()
        for task in self._tasks:
            task.cancel()
        self._suspended = True
        self._screen.on_suspend = self._screen.on_resize = None
        self._loop.remove_signal_handler(signal.SIGCONT)
        self._screen.show(None)
        if self._keys is not None:
            self._keys.close()

    # --- drawing ------------------------------------------------------------------------------------------------------

    def _soon(self, pause_s: float) -> None:
        """Draw, but not before the last drawing has been there for so long."""
        at = max(self._loop.time(), self._drawn_at + pause_s)
        if self._next is not None:
            if not self._next.cancelled() and self._next.when() <= at:
                return
            self._next.cancel()
        self._next = self._loop.call_at(at, self._draw)

    def _draw(self) -> None:
        self._next = None
        self._drawn_at = self._loop.time()
        if self._suspended or not self._story.begun:
            return
        scene = self._story.scene(self._clock())
        if scene is not None:
            keys = self._known if self._keys is not None and self._keys.listening else ""
            log = last_lines(self._log) if scene.state == "starting" and self._screen.live else ()
            scene = replace(scene, log=log, keys=keys, help=self._help)
        self._seen = self._screen.show(scene)
        self._soon(_TICK_S)

    # --- what is looked at --------------------------------------------------------------------------------------------

    async def _remember(self, number: int) -> None:
        from supervise.attempts import eta

        before = await in_thread(eta.history, self._target.attempt(number), self._planned.profile)
        self._story.remember(number, before)
        self._soon(_QUICK_S)

    async def _measure(self) -> None:
        """Read the GPUs' memory for as long as there are any and somebody sees it, or is about to."""
        first = True
        while True:
            took_s = 0.0
            if (self._seen or first) and not self._suspended:
                began = self._clock()
                gpus = await in_thread(self._read_gpus)
                took_s = self._clock() - began
                if gpus.status is GpuStatus.ABSENT:
                    return
                self._story.cards = cards(gpus)
                if first:
                    self._soon(0.0)
                first = False
            pause_s = _GPUS_READY_S if self._story.state == "ready" else _GPUS_S
            await asyncio.sleep(max(pause_s, _GPUS_SHARE * took_s))

    def _begin(self, work: Any) -> None:
        task = self._loop.create_task(self._spared(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _spared(self, work: Awaitable[None]) -> None:
        """What is only shown may fail: then it is not shown."""
        with contextlib.suppress(OSError, MemoryError, RuntimeError):
            await work

    # --- keys ---------------------------------------------------------------------------------------------------------

    def _attend(self) -> None:
        if self._keys is None:
            return
        if self._story.begun and not self._suspended:
            self._keys.attend()
        else:
            self._keys.pause()

    def _press(self, key: str) -> None:
        match key:
            case "q":
                self._post(life.StopAsked(signal.SIGINT, why="key q"))
            case "?":
                self._help = not self._help
                self._soon(0.0)
            case _:
                self._begin(self._relaunch(key))

    async def _relaunch(self, key: str) -> None:
        """Not where it is sure that there would be an end, and no other beginning."""
        if (why := await self._refusal()) is not None:
            self._screen.error(f"key {key}: not relaunched, that is sure to be refused: {why}")
            return
        if key == "c":
            self._once.purge()
        self._post(life.RestartAsked(f"key {key}"))

    # --- Ctrl-Z -------------------------------------------------------------------------------------------------------

    def _suspend(self) -> None:
        """We are about to be stopped, and the terminal is the shell's meanwhile."""
        self._suspended = True
        self._attend()
        self._continuing = self._loop.call_later(_SUSPENDED_S, self._continue)

    def _continue(self) -> None:
        """SIGCONT. The shell may have changed the terminal, also where we had no warning."""
        if self._continuing is not None:
            self._continuing.cancel()
        self._suspended = False
        if self._keys is not None:
            self._keys.pause()
        self._attend()
        self._soon(0.0)


def last_lines(path: str) -> tuple[str, ...]:
    """The last lines of a log without what its loggers put in front of each.

    Args:
        path: the log, which somebody writes to. Without it there are none.
    """
    try:
        with open(path, "rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - _LINES_BYTES))
            data = log.read(_LINES_BYTES)
    except OSError:
        return ()
    # A progress bar is drawn over itself.
    lines = [line.rpartition("\r")[2] for raw in data.decode(errors="replace").split("\n") if (line := raw.rstrip())]
    return tuple(map(_told, lines[-_LINES:]))


def _told(raw: str) -> str:
    line = parse(raw, 1)
    process = f"({line.process}) " if line.process else ""
    level = f"{line.level} " if line.level and line.level not in ("INFO", "DEBUG") else ""
    return f"{process}{level}{line.text}"


def cards(gpus: Gpus) -> tuple[Card, ...]:
    """Those whose memory is known; of one that is divided, its instances."""
    return tuple(
        Card(device.label, device.total - device.free, device.total)
        for device in gpus.devices
        if device.total and not device.error and not device.mig
    )


def _keys(planned: Plan) -> str:
    """What begins anew would be another attempt than the one that is tried."""
    if planned.options.trial is not None:
        return "q?"
    return "qrc?" if _has_caches(planned) else "qr?"


def _has_caches(planned: Plan) -> bool:
    from supervise.profiles.leftovers import load_rules
    from supervise.profiles.load import GENERIC

    profile = planned.profile
    return profile.name != GENERIC and bool(load_rules(profile.leftovers).caches.get("compile"))
