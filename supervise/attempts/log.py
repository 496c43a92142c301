"""An attempt's log: followed while the server writes it, bounded without touching the writer, losing no byte.

Nobody stands between the server and its file. When the file outgrows its limit, its oldest blocks are copied into a
compressed archive beside it and then collapsed out of the file (fallocate(2)), or punched out where the file system
cannot collapse. Reader and bounder are one object because collapsing moves every offset.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from supervise.host import files, kernel

_READ = 1024 * 1024
_STEP = 8 * 1024 * 1024
_BLOCK = 4096
_RETRIES = 100


@dataclass(frozen=True, slots=True)
class Bound:
    """At most `limit` bytes of log stay uncompressed; what goes into the archive is counted in `_STEP` pieces."""

    limit: int = 512 * 1024 * 1024


class LogFile:
    """The log of a running attempt, read from its beginning.

    Args:
        path: the log; it exists.
        bound: how large it may grow.

    Attributes:
        fault: why it last could not be read, or not be bounded; None if it always could.
        unreadable: whether the last read failed.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(self, path: str, bound: Bound | None = None) -> None:
        self.fault: str | None = None
        self.unreadable = False
        self._path = path
        self._bound = bound or Bound()
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._offset = 0
        self._end: int | None = None
        self._trimmed = 0
        self._punched = 0
        self._archive = f"{path}.gz"
        self._collapses = True
        self._refused_at = 0

    @property
    def here(self) -> str:
        """A path to it wherever it has been moved to, and when it has been removed."""
        return f"/proc/self/fd/{self._fd}"

    @property
    def left(self) -> int:
        """Bytes that are still to be read; none of a file that cannot be read."""
        end = self._size() if self._end is None else self._end
        return max(0, end - self._offset)

    def read(self, most: int = _READ) -> bytes:
        """The next bytes that the server wrote; empty when there are none.

        Args:
            most: how many of them, up to 1 MiB.
        """
        if self._end is not None and self._offset >= self._end:
            # Nobody wants the rest, which can go into the archive like all that was read.
            self._offset = max(self._offset, self._size())
            return b""
        wanted = most if self._end is None else min(most, self._end - self._offset)
        if self._offset > self._size():
            # Somebody has emptied it: whoever appends goes on at its beginning.
            self._offset = self._punched = 0
        try:
            data = os.pread(self._fd, min(wanted, _READ), self._offset)
        except OSError as error:
            self.unreadable = True
            self.fault = f"{self._path}: {error.strerror}; the server runs on, its log is not read"
            return b""
        self.unreadable = False
        self._offset += len(data)
        return data

    def end_here(self) -> None:
        """What the server writes from now on is not to be read."""
        if self._end is None:
            self._end = self._size()

    def drop(self) -> int:
        """Read no more.

        Returns:
            How many bytes were not read.
        """
        left = self.left
        self._end = self._offset
        return left

    def trim(self) -> bool:
        """Take one step towards the bound, if it is exceeded and the bytes have been read; True if one was taken.

        Where that fails (full disk, no such operation) the log stays as it is, whole, and grows; the next try is made
        when it has grown as much again as would have been taken away.
        """
        start = 0 if self._collapses else self._punched
        step = min(_STEP, max(_BLOCK, self._bound.limit // 4)) // _BLOCK * _BLOCK
        size = self._size() - start
        if size <= max(self._bound.limit, self._refused_at) or self._offset < start + step + _BLOCK:
            return False
        archived = 0
        try:
            archived = os.path.getsize(self._archive) if os.path.exists(self._archive) else 0
            self._copy_out(start, step)
            self._remove(start, step)
        except OSError as error:
            self._refused_at = size + step
            self.fault = f"{self._path}: {error.strerror}; the server runs on, its log cannot be bounded and grows"
            with contextlib.suppress(OSError):
                os.truncate(self._archive, archived)
            return False
        self._refused_at = 0
        return True

    def rescue(self) -> Iterator[None]:
        """Write a log that was removed while the server wrote it to its place again, piece by piece.

        Raises:
            OSError: that is not possible.
        """
        if os.fstat(self._fd).st_nlink:
            return
        with open(self._path, "xb", opener=_private) as copy:
            at = self._punched
            while piece := os.pread(self._fd, _READ, at):
                copy.write(piece)
                at += len(piece)
                yield

    def _size(self) -> int:
        """On a network file system also this may fail, once the file is gone (ESTALE)."""
        try:
            return os.fstat(self._fd).st_size
        except OSError:
            return self._offset

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._fd)

    def _copy_out(self, start: int, step: int) -> None:
        """Append one gzip member, synced before the original goes: a crash in between doubles bytes, loses none."""
        with open(self._archive, "ab") as archive:
            archive.write(gzip.compress(os.pread(self._fd, step, start), compresslevel=1))
            archive.flush()
            os.fsync(archive.fileno())

    def _remove(self, start: int, step: int) -> None:
        if not self._collapses:
            kernel.fallocate(self._fd, kernel.FALLOC_FL_PUNCH_HOLE | kernel.FALLOC_FL_KEEP_SIZE, start, step)
            self._punched += step
            self._publish(start=self._punched, moved=0)
            return
        try:
            self._publish(start=0, moved=self._trimmed, moving=True)
            kernel.fallocate(self._fd, kernel.FALLOC_FL_COLLAPSE_RANGE, start, step)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise
            self._collapses = False
            self._remove(start, step)
            return
        self._offset -= step
        self._end = None if self._end is None else self._end - step
        self._trimmed += step
        self._publish(start=0, moved=self._trimmed)

    def _publish(self, *, start: int, moved: int, moving: bool = False) -> None:
        """Tell readers of other processes where the log's bytes are now: see `follow`."""
        files.write_json(f"{self._path}.map", {"version": 1, "start": start, "moved": moved, "moving": moving})


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


class Follower:
    """Reads a whole log, its archive first, that another supervise may be bounding at the same time.

    Args:
        path: the log.

    Raises:
        OSError: it cannot be opened, or is no regular file.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        # Whoever opens a pipe waits for its writer.
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            os.close(self._fd)
            raise OSError(errno.EINVAL, "is no regular file", path)
        start, moved, _ = self._map()
        self._position = start + moved

    def archived(self) -> Iterator[bytes]:
        """The part of the log that was in its archive when it was opened."""
        left = self._position
        if not left:
            return
        with gzip.open(f"{self._path}.gz") as archive:
            while left and (piece := archive.read(min(_READ, left))):
                left -= len(piece)
                yield piece

    def read(self) -> bytes:
        """The next bytes, empty when there are none; offsets that moved between two looks are read again."""
        for _ in range(_RETRIES):
            before = self._map()
            start, moved, moving = before
            self._position = max(self._position, start + moved)
            data = os.pread(self._fd, _READ, self._position - moved)
            if not moving and self._map() == before:
                if not data and os.fstat(self._fd).st_size < self._position - moved:
                    # Somebody has emptied it.
                    self._position = moved
                self._position += len(data)
                return data
        return b""

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._fd)

    def _map(self) -> tuple[int, int, bool]:
        """First byte kept in the file, bytes collapsed out of it, and whether that is being changed right now."""
        state = files.read_json(f"{self._path}.map") or {}
        start, moved = state.get("start"), state.get("moved")
        return _count(start), _count(moved), state.get("moving") is True


def _count(value: object) -> int:
    """A number of bytes that a file can have; anything else stands in a damaged file."""
    return value if type(value) is int and 0 <= value < 2**63 else 0


def pieces(path: str) -> Iterator[bytes]:
    """A whole log: what is in its archive, then what is in the file by now.

    Args:
        path: the log.

    Raises:
        OSError: it cannot be opened.
    """
    follower = Follower(path)
    try:
        yield from follower.archived()
        while piece := follower.read():
            yield piece
    finally:
        follower.close()
