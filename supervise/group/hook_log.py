"""What hooks have written: bounded for each of them, and bounded in all. A log that cannot be written stops nobody."""

from __future__ import annotations

import contextlib
import os
import time

_HEAD = _TAIL = 32 * 1024
_MOST = 1024 * 1024


class HookLog:
    """A file, and one older one beside it.

    Args:
        path: the file.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd: int | None = None
        self._written = self._left_out = 0
        self._tail = bytearray()
        self._broken_line = False

    def begin(self, title: str) -> None:
        """A hook begins."""
        self._written = self._left_out = 0
        self._tail.clear()
        with contextlib.suppress(OSError):
            if os.path.exists(self._path) and os.path.getsize(self._path) > _MOST:
                os.replace(self._path, f"{self._path}.1")
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with contextlib.suppress(OSError):
            self._fd = os.open(self._path, flags, 0o600)
        self._line(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {title}")

    def write(self, data: bytes) -> None:
        """It has written something: its first 32 KiB are kept at once, its last 32 KiB when it is over."""
        head = data[: _HEAD - self._written]
        self._written += len(head)
        self._keep(head)
        self._tail += data[len(head) :]
        if (more := len(self._tail) - _TAIL) > 0:
            self._left_out += more
            del self._tail[:more]

    def end(self, how: str) -> None:
        """It is over."""
        if self._left_out:
            self._end_line()
            self._line(f"{self._left_out} bytes were not kept here")
        self._keep(bytes(self._tail))
        self._tail.clear()
        self._end_line()
        self._line(how)
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _keep(self, data: bytes) -> None:
        if data:
            self._put(data)
            self._broken_line = not data.endswith(b"\n")

    def _end_line(self) -> None:
        if self._broken_line:
            self._put(b"\n")
            self._broken_line = False

    def _line(self, text: str) -> None:
        self._put(f"=== {text}\n".encode("utf-8", "backslashreplace"))

    def _put(self, data: bytes) -> None:
        if self._fd is not None:
            with contextlib.suppress(OSError):
                os.write(self._fd, data)
