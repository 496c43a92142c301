"""Follows the server's log: every line that may matter goes once through progress and diagnosis."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Protocol

from supervise.attempts.log import LogFile
from supervise.diagnosis.scanner import SparseReader
from supervise.host import kernel
from supervise.model.diagnosis import Line

# Where inotify has no instance left for us (128 per user by default), a look per second finds everything a bit later.
_FALLBACK_S = 1.0
_PAUSE_S = 0.01
# So long the loop is held at most, more or less: whoever asks for a stop has to wait for it.
_TURN_S = 0.03
# What is left at the end is read for so long; then its lines are counted for so long, up to the last bytes.
_REST_S = 8.0
_COUNT_S = 2.0
_LAST_BYTES = 256 * 1024
# A log that is too long when its server is gone does no harm any more.
_TRIM_S = 1.0
# A log that was removed is put back for so long.
_RESCUE_S = 5.0


class Sink(Protocol):
    """Takes the lines."""

    def __call__(self, line: Line) -> None:
        """One line, in order."""


class LogWatch:
    """Reads a log as it grows: at once what comes after silence, within 10 ms what comes in a flow.

    Args:
        log: the log.
        reader: makes lines of it.
        sink: takes each line.
        on_fault: told once why the log cannot be read, or not be bounded.
    """

    def __init__(
        self,
        log: LogFile,
        reader: SparseReader,
        sink: Sink,
        on_fault: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._on_fault, self._told = on_fault, False
        self._log = log
        self._sink = sink
        self._reader = reader
        self._lines: Iterator[Line] = iter(())
        self._loop = asyncio.get_running_loop()
        self._notifier: int | None = None
        self._settled = self._dropped = False
        self._again: asyncio.Handle | None = self._loop.call_soon(self._read)

    def end_here(self) -> None:
        """Take no line of what is written from now on."""
        self._log.end_here()

    def drop(self) -> None:
        """Take no line any more."""
        self._lines, self._dropped = iter(()), True
        self._log.drop()

    async def finish(self) -> int:
        """Read what is left, an unfinished last line included, and let go of the log.

        Returns:
            How many bytes were not read, because that would have taken too long.
        """
        if self._again is not None:
            self._again.cancel()
        self._unsubscribe()
        unread = 0
        if not await self._read_within(_REST_S):
            unread = await self._skip_within(_COUNT_S)
            unread += 0 if await self._read_within(_COUNT_S) else self._log.drop()
        until = self._loop.time() + _TRIM_S
        while self._log.trim() and self._loop.time() < until:
            await asyncio.sleep(0)
        for line in [] if self._dropped else self._reader.close():
            self._sink(line)
        await self._rescue_within(_RESCUE_S)
        self._log.close()
        return unread

    async def _rescue_within(self, seconds: float) -> None:
        until = self._loop.time() + seconds
        with contextlib.suppress(OSError):
            for _ in self._log.rescue():
                if self._loop.time() > until:
                    return
                await asyncio.sleep(0)

    def catch_up(self, within_s: float) -> bool:
        """Read what has been written until now; False if that was too much for the time."""
        until = self._loop.time() + within_s
        while self._take(until):
            data = self._log.read()
            if not data:
                return True
            self._lines = self._reader.feed(data)
        return False

    def _take(self, until: float) -> bool:
        """Take lines of what has been read; False if there was no time for all of them."""
        for line in self._lines:
            self._sink(line)
            if self._loop.time() > until:
                return False
        return self._loop.time() <= until

    async def _read_within(self, seconds: float) -> bool:
        until = self._loop.time() + seconds
        while not self.catch_up(_TURN_S):
            if self._loop.time() > until:
                return False
            self._log.trim()
            await asyncio.sleep(0)
        return True

    async def _skip_within(self, seconds: float) -> int:
        """Only count lines, up to the last bytes: there the cause may be."""
        while not self._take(self._loop.time() + _TURN_S):
            await asyncio.sleep(0)
        until = self._loop.time() + seconds
        passed = 0
        while self._log.left > _LAST_BYTES and self._loop.time() < until:
            data = self._log.read(self._log.left - _LAST_BYTES)
            self._reader.pass_over(data)
            passed += len(data)
            await asyncio.sleep(0)
        return passed if self._log.left <= _LAST_BYTES else passed + self._log.drop()

    def _read(self) -> None:
        """Read for a turn and give the loop one before the next: a flood must not starve a stop request."""
        self._again = None
        before = self._log.left
        done = self.catch_up(_TURN_S)
        if self._log.fault is not None and not self._told:
            self._told = True
            self._on_fault(self._log.fault)
        if before or not done:
            self._unsubscribe()
        if self._log.trim() or not done:
            self._settled = False
            self._again = self._loop.call_soon(self._read)
        elif self._log.unreadable:
            self._again = self._loop.call_later(_FALLBACK_S, self._read)
        elif before:
            self._pause()
        elif self._notifier is None:
            self._rest()

    def _rest(self) -> None:
        """Nothing to read: look once more soon, then have the kernel tell.

        Being told costs the writer up to a microsecond for each of its writes, half as much again as a short one takes:
        while it writes, we look by ourselves.
        """
        if not self._settled:
            self._pause()
        elif self._subscribe():
            # What was written between the last look and the subscription is not told.
            self._again = self._loop.call_soon(self._read)
        else:
            self._again = self._loop.call_later(_FALLBACK_S, self._read)

    def _pause(self) -> None:
        self._settled = True
        self._again = self._loop.call_later(_PAUSE_S, self._read)

    def _subscribe(self) -> bool:
        try:
            self._notifier = kernel.watch_modifications(self._log.here)
            self._loop.add_reader(self._notifier, self._on_notification)
        except OSError:
            self._unsubscribe()
            return False
        return True

    def _unsubscribe(self) -> None:
        if self._notifier is not None:
            self._loop.remove_reader(self._notifier)
            os.close(self._notifier)
            self._notifier = None

    def _on_notification(self) -> None:
        self._unsubscribe()
        if self._again is not None:
            self._again.cancel()
        self._settled = False
        self._read()
