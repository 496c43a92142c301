"""The door through which names of the file system are removed or moved: what is destroyed is proven at that moment.

Between the survey and the act, anybody may have put something else there, in a world-writable directory above all: a
link to somebody's file, a directory that leads elsewhere. So the parent is opened component by component without
following a link, and the name in it is looked at and removed through that descriptor (openat(2), unlinkat(2)). What is
exchanged in the last instant can then only be another name in that same directory, which whoever exchanged it could
have removed himself.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from supervise.host import lease, socketfiles, usage
from supervise.model.litter import FileId, FileType
from supervise.model.slate import Verdict

# Passing through a directory takes no permission to read it.
_PASSAGE = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_REMOVABLE = (FileType.REGULAR, FileType.SOCKET)


def remove(path: str, file: FileId, type_: FileType, uid: int) -> Verdict:
    """Remove a file or socket, if the name still is that very one of that user and nobody uses it.

    No FIFO that would make us wait and no device is opened for it, whatever somebody has put there instead.

    Args:
        path: absolute, without links in its directories.
        file: its identity as surveyed.
        type_: REGULAR or SOCKET; nothing else is ever removed.
        uid: whose it must be.

    Returns:
        GONE if that file is not there any more, REMAINS if it is used, has a second name, or is not what was surveyed,
        UNKNOWN if that could not be told or it could not be removed.
    """
    try:
        with opened_directory(os.path.dirname(path)) as directory:
            return _remove(directory, path, file, type_, uid)
    except FileNotFoundError:
        return Verdict.GONE
    except (OSError, ValueError):
        return Verdict.UNKNOWN


def _remove(directory: int, path: str, file: FileId, type_: FileType, uid: int) -> Verdict:
    name = _name(path)
    state = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if _identity(state) != file:
        return Verdict.GONE
    if type_ not in _REMOVABLE or file_type(state.st_mode) is not type_ or state.st_uid != uid:
        return Verdict.REMAINS
    # Nothing that engines leave behind has two names; a link that somebody has made to another file has.
    if state.st_nlink != 1:
        return Verdict.REMAINS
    free = _unlink_leased(directory, name, file)
    if free is None:
        used = _used(directory, path, file, state)
        if used is not False:
            return Verdict.REMAINS if used else Verdict.UNKNOWN
        # To find out who uses it takes milliseconds, enough for somebody to put another file in its place.
        if _identity(os.stat(name, dir_fd=directory, follow_symlinks=False)) == file:
            os.unlink(name, dir_fd=directory)
    return Verdict.REMAINS if free is False else Verdict.GONE


def _unlink_leased(directory: int, name: str, file: FileId) -> bool | None:
    """Remove it while the kernel keeps everybody from opening it; False if somebody has it open, None if not told."""
    seen = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        with lease.leased(seen) as free:
            now = os.stat(name, dir_fd=directory, follow_symlinks=False)
            if free and _identity(os.fstat(seen)) == _identity(now) == file:
                os.unlink(name, dir_fd=directory)
            return free
    finally:
        os.close(seen)


def move_aside(path: str, file: FileId, uid: int, aside: str) -> Verdict:
    """Rename a directory within its own directory, if it still is that very one of that user.

    Args:
        path: absolute, without links in its directories.
        file: its identity as surveyed.
        uid: whose it must be.
        aside: the new name, without a slash; it must not exist. One that appears in the last instant is either
            refused by rename(2) or an empty directory, which is replaced.

    Returns:
        GONE if that directory is not at its place any more, REMAINS if it is not what was surveyed, UNKNOWN if it could
        not be renamed.
    """
    try:
        with opened_directory(os.path.dirname(path)) as directory:
            name = _name(path)
            if "/" in aside or aside in ("", ".", ".."):
                return Verdict.UNKNOWN
            state = os.stat(name, dir_fd=directory, follow_symlinks=False)
            if _identity(state) != file:
                return Verdict.GONE
            if not stat.S_ISDIR(state.st_mode) or state.st_uid != uid or _exists(aside, directory):
                return Verdict.REMAINS
            os.rename(name, aside, src_dir_fd=directory, dst_dir_fd=directory)
    except FileNotFoundError:
        return Verdict.GONE
    except (OSError, ValueError):
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
def opened_directory(path: str) -> Iterator[int]:
    """A descriptor to look up names in (O_PATH), reached component by component without following a link.

    Args:
        path: of the directory, absolute and normal.

    Raises:
        OSError: it is missing or may not be entered, or a link is on the way.
        ValueError: it is no such path.
    """
    if not path.startswith("/") or path.startswith("//") or os.path.normpath(path) != path:
        raise ValueError(f"not a plain absolute path: {path!r}")
    current = os.open("/", _PASSAGE)
    try:
        for part in path.split("/"):
            if part:
                below = os.open(part, _PASSAGE, dir_fd=current)
                os.close(current)
                current = below
        yield current
    finally:
        os.close(current)


def _name(path: str) -> str:
    """The last part of a path.

    Raises:
        ValueError: it is no name in its directory.
    """
    name = os.path.basename(path)
    if name in ("", ".", "..") or os.path.normpath(path) != path:
        raise ValueError(f"not a name in a directory: {path!r}")
    return name


def _identity(state: os.stat_result) -> FileId:
    return FileId(state.st_dev, state.st_ino)


def _used(directory: int, path: str, file: FileId, state: os.stat_result) -> bool | None:
    """Where a lease does not tell; None if nothing else does."""
    if stat.S_ISSOCK(state.st_mode):
        return socketfiles.in_use(directory, os.path.basename(path), file, path, socketfiles.listed())
    # Whoever may not write it loses nothing with its name: what he has open stays what it is.
    private = state.st_uid == os.geteuid() and not state.st_mode & stat.S_IWOTH
    found, known = usage.users({file: path}, private=private)
    return bool(found) or (False if known else None)


def _exists(name: str, directory: int) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
