"""The door to free space: of the file system below a path, and whether we can write there at all."""

from __future__ import annotations

import errno
import os
from typing import NamedTuple

_TRIAL = b"\0" * 65536
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Space(NamedTuple):
    """What is free for an ordinary user below `path`, an existing directory.

    `free` is in bytes, `files` how many more can be made; None where the file system does not say. `device` tells file
    systems apart.
    """

    path: str
    device: int
    free: int | None
    files: int | None
    read_only: bool


def free(path: str) -> Space:
    """Read it for a path that need not exist yet (statvfs(3)).

    Args:
        path: absolute; its nearest directory that exists counts.

    Raises:
        OSError: that cannot be read.
    """
    directory = existing(path)
    state = os.statvfs(directory)
    return Space(
        directory,
        os.stat(directory).st_dev,
        # File systems that do not count, such as some of FUSE, say zero of zero.
        state.f_bavail * state.f_frsize if state.f_blocks else None,
        state.f_favail if state.f_files else None,
        bool(state.f_flag & os.ST_RDONLY),
    )


def existing(path: str) -> str:
    """The nearest directory that exists: the path itself or one above it."""
    path = os.path.abspath(path)
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return path


def is_full(directory: str) -> bool:
    """Whether a file of ours could not take 64 KiB there: tried with one that has no name, and so leaves nothing.

    Args:
        directory: an existing one of ours.

    Returns:
        True for a full file system or an exhausted quota; False if it went well, or could not be tried.
    """
    try:
        fd = os.open(directory, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except OSError as error:
        return error.errno in _FULL
    try:
        return os.write(fd, _TRIAL) < len(_TRIAL)
    except OSError as error:
        return error.errno in _FULL
    finally:
        os.close(fd)


def taken(directory: str) -> int:
    """Bytes on disk of all that is in a directory, as far as it can be listed; links are not followed."""
    size = 0
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                size += entry.stat(follow_symlinks=False).st_blocks * 512
                size += taken(entry.path) if entry.is_dir(follow_symlinks=False) else 0
    except OSError:
        pass
    return size
