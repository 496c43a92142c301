"""Follows the server's log: every line goes once through progress and diagnosis."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Protocol

from supervise.attempts.log import LogFile
from supervise.diagnosis.lines import LineReader
from supervise.host import kernel
from supervise.model.diagnosis import Line

# Where inotify has no instance left for us (128 per user by default), a look per second finds everything a bit later.
_FALLBACK_S = 1.0
_CATCH_UP_S = 10.0
_LAST_BYTES = 4 * 1024 * 1024


class Sink(Protocol):
    """Takes the lines."""

    def __call__(self, line: Line) -> None:
        """One line, in order."""


class LogWatch:
    """Reads a log as it grows, within one turn of the loop of the bytes being written.

    Args:
        log: the log.
        path: its path, for the kernel's notification.
        sink: takes each line.
    """

    def __init__(self, log: LogFile, path: str, sink: Sink) -> None:
        self._log = log
        self._sink = sink
        self._reader = LineReader()
        self._loop = asyncio.get_running_loop()
        self._again: asyncio.Handle | None = None
        self._notifier = self._subscribe(path)

    def finish(self) -> None:
        """Read what is left, an unfinished last line included, and let go of the log."""
        self._cancel()
        if self._notifier is not None:
            self._loop.remove_reader(self._notifier)
            os.close(self._notifier)
            self._notifier = None
        self.catch_up()
        while self._log.trim():
            pass
        for line in self._reader.close():
            self._sink(line)
        self._log.close()

    def catch_up(self) -> None:
        """Read what has been written until now."""
        until = self._loop.time() + _CATCH_UP_S
        while data := self._log.read():
            self._feed(data)
            self._log.trim()
            if self._loop.time() > until:
                # The first cause has long been seen, or it is near the end; nobody shall wait minutes for a flood.
                self._log.skip_to_last(_LAST_BYTES)
                until += _CATCH_UP_S

    def _subscribe(self, path: str) -> int | None:
        try:
            notifier = kernel.watch_modifications(path)
        except OSError:
            self._later(_FALLBACK_S, self._poll)
            return None
        self._loop.add_reader(notifier, self._on_notification)
        self._loop.call_soon(self._read)
        return notifier

    def _on_notification(self) -> None:
        if self._notifier is not None:
            os.read(self._notifier, 4096)
        self._read()

    def _poll(self) -> None:
        self._read()
        if self._again is None:
            self._later(_FALLBACK_S, self._poll)

    def _read(self) -> None:
        """Take one bite and give the loop a turn before the next: a flood must not starve a stop request."""
        self._cancel()
        data = self._log.read()
        if data:
            self._feed(data)
        trimmed = self._log.trim()
        if data or trimmed:
            self._again = self._loop.call_soon(self._read if self._notifier is not None else self._poll)

    def _feed(self, data: bytes) -> None:
        for line in self._reader.feed(data):
            self._sink(line)

    def _later(self, delay_s: float, callback: Callable[[], None]) -> None:
        self._again = self._loop.call_later(delay_s, callback)

    def _cancel(self) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None
