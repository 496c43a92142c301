"""A file with metrics for node_exporter's textfile collector, kept up to date in a thread of its own.

The collector reads whatever ends in .prom in its directory: what is half-written has another name until it is whole.
"""

from __future__ import annotations

import _thread
import asyncio
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from supervise.host import files

if TYPE_CHECKING:
    from supervise.report.console import Console

# A start-up has hundreds of lines a second, and Prometheus asks every few seconds.
_EVERY_S = 15.0
_CLOSEST_S = 1.0
_LAST_S = 2.0


class Textfile:
    """Writes it when something has happened, and every now and then.

    Args:
        path: the file.
        text: makes its content; called in a thread.
        console: where it is said, once, that it cannot be written.
        every_s: how old it may become, in seconds.

    Raises:
        RuntimeError: there can be no thread.
    """

    def __init__(self, path: str, text: Callable[[], bytes], console: Console, *, every_s: float = _EVERY_S) -> None:
        self._path, self._text, self._console, self._every_s = path, text, console, every_s
        self._news, self._closed, self._gone = threading.Event(), threading.Event(), threading.Event()
        self._io: asyncio.AbstractEventLoop | None = None
        self._said = False
        _thread.start_new_thread(self._keep, ())

    def wake(self) -> None:
        """Something has happened."""
        if self._io is None:
            self._io = asyncio.get_running_loop()
        self._news.set()

    def close(self) -> None:
        """Write it for the last time; see `finished`."""
        self._closed.set()
        self._news.set()

    async def finished(self) -> None:
        """Wait for that, but not for a file system that does not answer."""
        until = time.monotonic() + _LAST_S
        while not self._gone.is_set() and time.monotonic() < until:
            await asyncio.sleep(0.01)

    def _keep(self) -> None:
        while not self._closed.is_set():
            self._news.wait(self._every_s)
            self._news.clear()
            self._write()
            self._closed.wait(_CLOSEST_S)
        self._write()
        self._gone.set()

    def _write(self) -> None:
        try:
            files.write_atomic(self._path, self._text().decode())
        except OSError as error:
            self._say(f"{self._path}: {error.strerror}")
        except Exception as error:  # noqa: BLE001 - a file must not end a thread, and no thread a server
            self._say(f"{self._path}: {error}")

    def _say(self, text: str) -> None:
        """Once: it would be the same every few seconds. On the loop's side, where lines do not mix."""
        if self._said or self._io is None:
            return
        self._said = True
        try:
            self._io.call_soon_threadsafe(self._console.error, f"metrics: {text}; it is tried again")
        except RuntimeError:
            return
