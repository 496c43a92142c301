"""The door through which names of the file system are removed or moved: what is destroyed is proven at that moment.

Between the survey and the act, anybody may have put something else there, in a world-writable directory above all: a
link to somebody's file, a directory that leads elsewhere. So the parent is opened component by component without
following a link, and the name in it is looked at and removed through that descriptor (openat(2), unlinkat(2)).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from supervise.host import sockets, usage
from supervise.model.litter import FileId, FileType
from supervise.model.slate import Verdict

_OTHERS = 0o077
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove(path: str, file: FileId, type_: FileType, uid: int) -> Verdict:
    """Remove a file or socket, if the name still is that very one of that user and nobody uses it.

    Args:
        path: absolute, without links in its directories.
        file: its identity as surveyed.
        type_: REGULAR or SOCKET; nothing else is ever removed.
        uid: whose it must be.

    Returns:
        GONE if that file is not there any more, REMAINS if it is used or not what was surveyed, UNKNOWN if that could
        not be told or it could not be removed.
    """
    try:
        with _parent(path) as directory:
            name = os.path.basename(path)
            state = os.stat(name, dir_fd=directory, follow_symlinks=False)
            if FileId(state.st_dev, state.st_ino) != file:
                return Verdict.GONE
            if file_type(state.st_mode) is not type_ or state.st_uid != uid:
                return Verdict.REMAINS
            used = _used(path, file, state)
            if used is not False:
                return Verdict.REMAINS if used else Verdict.UNKNOWN
            os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        return Verdict.GONE
    except OSError:
        return Verdict.UNKNOWN
    return Verdict.GONE


def move_aside(path: str, file: FileId, uid: int, aside: str) -> Verdict:
    """Rename a directory within its own directory, if it still is that very one of that user.

    Args:
        path: absolute, without links in its directories.
        file: its identity as surveyed.
        uid: whose it must be.
        aside: the new name, without a slash; it must not exist.

    Returns:
        GONE if that directory is not at its place any more, REMAINS if it is not what was surveyed, UNKNOWN if it could
        not be renamed.
    """
    try:
        with _parent(path) as directory:
            name = os.path.basename(path)
            state = os.stat(name, dir_fd=directory, follow_symlinks=False)
            if FileId(state.st_dev, state.st_ino) != file:
                return Verdict.GONE
            if not stat.S_ISDIR(state.st_mode) or state.st_uid != uid or _exists(aside, directory):
                return Verdict.REMAINS
            os.rename(name, aside, src_dir_fd=directory, dst_dir_fd=directory)
    except FileNotFoundError:
        return Verdict.GONE
    except OSError:
        return Verdict.UNKNOWN
    return Verdict.GONE


def file_type(mode: int) -> FileType:
    """What a mode (inode(7)) says it is."""
    if stat.S_ISREG(mode):
        return FileType.REGULAR
    if stat.S_ISSOCK(mode):
        return FileType.SOCKET
    return FileType.DIRECTORY if stat.S_ISDIR(mode) else FileType.OTHER


@contextmanager
def _parent(path: str) -> Iterator[int]:
    """A descriptor of the directory that holds a path, reached without following a link.

    Raises:
        OSError: it does not exist, or a link is on the way.
    """
    if not os.path.isabs(path) or os.path.normpath(path) != path or path == "/":
        raise OSError(f"not a plain absolute path: {path!r}")
    current = os.open("/", _DIRECTORY)
    try:
        for part in os.path.dirname(path).split("/")[1:]:
            if part:
                below = os.open(part, _DIRECTORY, dir_fd=current)
                os.close(current)
                current = below
        yield current
    finally:
        os.close(current)


def _used(path: str, file: FileId, state: os.stat_result) -> bool | None:
    """None if it cannot be told."""
    if stat.S_ISSOCK(state.st_mode):
        return sockets.unix_path_in_use(path)
    private = state.st_uid == os.geteuid() and not state.st_mode & _OTHERS
    found, known = usage.users({file: path}, private=private)
    return bool(found) or (False if known else None)


def _exists(name: str, directory: int) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
