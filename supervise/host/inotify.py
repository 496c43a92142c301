"""The door to what the kernel tells of files that somebody opens (inotify(7)).

It does not tell who: our own reads count as well. What is in another mount namespace on another file system, and what
another host does on a network file system, is not told.
"""

from __future__ import annotations

import os
import struct
import weakref
from collections.abc import Iterator

from supervise.host import kernel

_HEAD = struct.Struct("iIII")
_BUFFER = 64 * 1024


class Opens:
    """What is opened in some directories, by the path that they were named by.

    Attributes:
        lost: whether the kernel had more to tell than it keeps (/proc/sys/fs/inotify/max_queued_events), or a directory
            went away: then nothing is known of what was not told.

    Raises:
        OSError: EMFILE at the per-user limit of instances.
    """

    def __init__(self) -> None:
        self.lost = False
        self._fd = kernel.inotify()
        # Whoever watches may be called off before anything is launched, and forget it.
        self._end = weakref.finalize(self, os.close, self._fd)
        self._directories: dict[int, list[str]] = {}

    def watch(self, directory: str) -> None:
        """Tell of this directory, too; a file that takes the name of another one later is told of as well.

        Raises:
            OSError: ENOENT without it, ENOSPC at the limit of watches.
        """
        mask = kernel.IN_OPEN | kernel.IN_MOVE_SELF | kernel.IN_ONLYDIR
        watch = kernel.inotify_add(self._fd, directory, mask)
        self._directories.setdefault(watch, []).append(directory)

    def told(self) -> Iterator[str]:
        """Paths that were opened since the last time; never blocks."""
        while self._end.alive:
            try:
                data = os.read(self._fd, _BUFFER)
            except BlockingIOError:
                return
            yield from self._paths(data)

    def close(self) -> None:
        """Let go of it; nothing is told any more."""
        self._end()

    def _paths(self, data: bytes) -> Iterator[str]:
        at = 0
        while at < len(data):
            watch, mask, _, length = _HEAD.unpack_from(data, at)
            name = os.fsdecode(data[at + _HEAD.size : at + _HEAD.size + length].rstrip(b"\0"))
            at += _HEAD.size + length
            if mask & (kernel.IN_Q_OVERFLOW | kernel.IN_MOVE_SELF | kernel.IN_IGNORED):
                self.lost = True
            elif name and not mask & kernel.IN_ISDIR:
                yield from (os.path.join(directory, name) for directory in self._directories.get(watch, ()))
