"""Follows the server's log: every line that may matter goes once through progress and diagnosis."""

from __future__ import annotations

import asyncio
import os
from typing import Protocol

from supervise.attempts.log import LogFile
from supervise.diagnosis.scanner import SparseReader
from supervise.host import kernel
from supervise.model.diagnosis import Line

# Where inotify has no instance left for us (128 per user by default), a look per second finds everything a bit later.
_FALLBACK_S = 1.0
_PAUSE_S = 0.01
# So much in one bite is a flood: there is more.
_FLOOD = 512 * 1024
_CATCH_UP_S = 10.0
_LAST_BYTES = 4 * 1024 * 1024


class Sink(Protocol):
    """Takes the lines."""

    def __call__(self, line: Line) -> None:
        """One line, in order."""


class LogWatch:
    """Reads a log as it grows: at once what comes after silence, within 10 ms what comes in a flow.

    Args:
        log: the log.
        path: its path, for the kernel's notification.
        reader: makes lines of it.
        sink: takes each line.
    """

    def __init__(self, log: LogFile, path: str, reader: SparseReader, sink: Sink) -> None:
        self._log = log
        self._path = path
        self._sink = sink
        self._reader = reader
        self._loop = asyncio.get_running_loop()
        self._notifier: int | None = None
        self._settled = False
        self._again: asyncio.Handle | None = self._loop.call_soon(self._read)

    def finish(self) -> None:
        """Read what is left, an unfinished last line included, and let go of the log."""
        if self._again is not None:
            self._again.cancel()
        self._unsubscribe()
        while not self.catch_up(_CATCH_UP_S):
            # The first cause has long been seen, or it is near the end; nobody shall wait minutes for a flood.
            self._log.skip_to_last(_LAST_BYTES)
        while self._log.trim():
            pass
        for line in self._reader.close():
            self._sink(line)
        self._log.close()

    def catch_up(self, within_s: float) -> bool:
        """Read what has been written until now; False if that was too much for the time."""
        until = self._loop.time() + within_s
        while data := self._log.read():
            self._feed(data)
            self._log.trim()
            if self._loop.time() > until:
                return False
        return True

    def _read(self) -> None:
        """Take one bite and give the loop a turn before the next: a flood must not starve a stop request."""
        self._again = None
        data = self._log.read()
        if data:
            self._unsubscribe()
            self._feed(data)
        trimmed = self._log.trim()
        if trimmed or len(data) >= _FLOOD:
            self._settled = False
            self._again = self._loop.call_soon(self._read)
        elif data:
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
            self._notifier = kernel.watch_modifications(self._path)
        except OSError:
            return False
        self._loop.add_reader(self._notifier, self._on_notification)
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

    def _feed(self, data: bytes) -> None:
        for line in self._reader.feed(data):
            self._sink(line)
