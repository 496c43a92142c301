"""The door to files that are hashed and copied in one reading: what a copy holds is what the digest is of.

A file that somebody writes meanwhile is read a second time, and after that it is one that could not be read: half of
an old and half of a new one was never anybody's code.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import time
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Iterable
from typing import NamedTuple

from supervise.model.sources import Change, Source

LARGEST_COPY = 1024 * 1024
"""Bytes of a file that is copied; of a larger one the digest is kept."""
LARGEST_HASHED = 64 * 1024 * 1024
"""Bytes of a file that is read at all; of a larger one the size is kept."""
MOST_FILES, MOST_BYTES = 500, 32 * 1024 * 1024
"""Copies that one attempt keeps, and their bytes together."""

_PIECE = 1 << 20
_READINGS = 2
# What holds secrets by its name; what is written into other files is the user's own.
_PRIVATE = re.compile(r"(?:^|/)\.[^/]*$|\.(?:pem|key|p12|pfx|env)$")


class Seen(NamedTuple):
    """What was read of a file: its digest as a RECORD has it (`sha256=…`), and its bytes unless they are too many."""

    digest: str
    data: bytes | None
    size: int

    @property
    def hexadecimal(self) -> str | None:
        """The digest as sha256sum prints it; None of another algorithm."""
        return hexadecimal(self.digest)


def hexadecimal(digest: str) -> str | None:
    """A digest of a RECORD as sha256sum prints it; None of another algorithm, or if it is none."""
    algorithm, _, value = digest.partition("=")
    if algorithm != "sha256":
        return None
    try:
        return b64decode(value + "=" * (-len(value) % 4), altchars=b"-_", validate=True).hex()
    except ValueError:
        return None


def recorded(algorithm: str, digest: bytes) -> str:
    """A digest as a RECORD has it (PEP 376)."""
    return f"{algorithm}={urlsafe_b64encode(digest).decode().rstrip('=')}"


def read(path: str, algorithm: str, deadline: float) -> Seen:
    """Read a file once, without a trace in its time of access where that is allowed.

    Args:
        path: of the file; links are followed.
        algorithm: a name that hashlib knows.
        deadline: on the monotonic clock.

    Raises:
        OSError: it cannot be read, is no file any more, does not lie still, or there is no time left.
    """
    fd = _open(path)
    try:
        for _ in range(_READINGS):
            before = os.fstat(fd)
            if not stat.S_ISREG(before.st_mode):
                raise OSError(path)
            seen = _read(fd, path, algorithm, deadline)
            if _same(before, os.fstat(fd)) and seen.size == before.st_size:
                return seen
    finally:
        os.close(fd)
    raise OSError(path)


class Copies:
    """Digests and copies of files, as many as there is room for.

    Args:
        deadline: on the monotonic clock; what has not been read by then has no digest.

    Attributes:
        contents: the copies, by the directory of their root and the path in it.
        refused: how many files were not copied because there was no more room.
    """

    def __init__(self, deadline: float) -> None:
        self.contents: dict[tuple[str, str], bytes] = {}
        self.refused = 0
        self._deadline, self._files, self._bytes = deadline, MOST_FILES, MOST_BYTES

    def all(self, directory: str, paths: Iterable[tuple[str, Change]]) -> tuple[Source, ...]:
        """Each of them as `take` reads it; here no link that leads out of the tree is followed."""
        return tuple(self.take(directory, path, change, listed=False) for path, change in paths)

    def take(
        self, directory: str, path: str, change: Change, seen: Seen | None = None, *, listed: bool = True
    ) -> Source:
        """Read a file of a root, and copy it if it is to be copied.

        A link that leads out of the tree is not followed: then there is no digest. But a file that a wheel lists may
        be a link into the cache of what has installed it (uv, --link-mode symlink): Python imports what is there.

        Args:
            directory: of the root.
            path: relative to it.
            change: how it differs; of what is missing nothing is read.
            seen: what has been read of it already.
            listed: whether it is one that a wheel lists if it is a modified one.
        """
        full, size = f"{directory}/{path}", 0
        follow = listed and change is Change.MODIFIED
        try:
            size = os.lstat(full).st_size if change is not Change.MISSING else 0
            if change is Change.MISSING or not (follow or within(directory, path)):
                return Source(path, change, None, size)
            size = os.stat(full).st_size
            if seen is None or seen.hexadecimal is None:
                if size > LARGEST_HASHED:
                    return Source(path, change, None, size)
                seen = read(full, "sha256", self._deadline)
        except (OSError, ValueError):
            return Source(path, change, None, size)
        return Source(path, change, seen.hexadecimal, seen.size, self._keep(directory, path, seen))

    def _keep(self, directory: str, path: str, seen: Seen) -> bool:
        if seen.data is None or any(map(_PRIVATE.search, (path, os.path.realpath(f"{directory}/{path}")))):
            return False
        if (directory, path) in self.contents:
            return self.contents[directory, path] == seen.data
        if self._files < 1 or self._bytes < len(seen.data):
            self.refused += 1
            return False
        self._files, self._bytes = self._files - 1, self._bytes - len(seen.data)
        self.contents[directory, path] = seen.data
        return True


def within(directory: str, path: str) -> bool:
    """Whether a file is where its path says, or at least in the same tree, once links are followed.

    Args:
        directory: of the tree.
        path: relative to it; of one that begins with `..` the tree is the directory that it is in.
    """
    full = os.path.normpath(os.path.join(directory, path))
    tree = os.path.realpath(os.path.dirname(full) if path.startswith("../") else directory)
    return os.path.realpath(full).startswith(tree.rstrip("/") + "/")


def _open(path: str) -> int:
    """O_NOATIME is for the owner of the file, and for root (open(2))."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        return os.open(path, flags | os.O_NOATIME)
    except PermissionError:
        return os.open(path, flags)


def _read(fd: int, path: str, algorithm: str, deadline: float) -> Seen:
    digest, pieces, size = hashlib.new(algorithm), list[bytes](), 0
    os.lseek(fd, 0, os.SEEK_SET)
    while piece := os.read(fd, _PIECE):
        digest.update(piece)
        size += len(piece)
        if size <= LARGEST_COPY:
            pieces.append(piece)
        if time.monotonic() >= deadline:
            raise OSError(path)
    data = b"".join(pieces) if size <= LARGEST_COPY else None
    return Seen(recorded(algorithm, digest.digest()), data, size)


def _same(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_size, one.st_mtime_ns, one.st_ctime_ns) == (other.st_size, other.st_mtime_ns, other.st_ctime_ns)
