"""The door to files of ours: atomic writes, bounded reads, private directories, exact removal.

`tree` is imported where it is used: the keeper imports this module and needs that one once, at its end.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from typing import Any

_OWNER_FILE = ".supervise"
# sun_path holds 108 bytes; an engine's socket name is a 36-byte uuid behind this directory (unix(7)).
_LONGEST_BASE = 60
_LARGEST_JSON = 64 * 1024 * 1024
_PIECE = 256 * 1024
# /dev/null has this number on every Linux (null(4)).
_NULL = os.makedev(1, 3)


def write_atomic(path: str, text: str) -> None:
    """Replace a file in one step: a reader sees the old content or the new, also if we are killed in between.

    Not synced: what these files say about processes does not outlive the kernel, a damaged one is never trusted, and
    three waits for the disk would be the longest part of a launch.

    Raises:
        OSError: nothing was changed.
    """
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise OSError(error.errno, error.strerror, path) from None


def write_json(path: str, value: dict[str, Any]) -> None:
    """Write a JSON object atomically, readable by people."""
    write_atomic(path, json.dumps(value, indent=1, ensure_ascii=True) + "\n")


def overwrite_json(path: str, value: dict[str, Any]) -> bool:
    """Write into the blocks that a file has already, for a disk that has no others; a reader may see a half of it.

    Args:
        path: the file.
        value: what is to stand there.

    Returns:
        Whether it stands there now.
    """
    data = json.dumps(value, indent=1, ensure_ascii=True).encode() + b"\n"
    try:
        fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        state = os.fstat(fd)
        if len(data) > state.st_blocks * 512:
            return False
        # JSON does not mind blanks, and whoever reads in between sees no end in the middle of a word.
        data = data.ljust(state.st_size)
        return os.pwrite(fd, data, 0) == len(data)
    except OSError:
        return False
    finally:
        os.close(fd)


def append_line(path: str, line: str) -> None:
    """Add one line to a file, or nothing of it.

    A line that somebody left unfinished, because the disk was full or the machine went down, stays a line of its own. A
    pipe, a device or a link in the file's place is not written to: whoever opens one may wait for ever, or write
    elsewhere.

    Args:
        path: a regular file, made if it is missing.
        line: without its end.

    Raises:
        OSError: it was not added.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags, 0o600)
    try:
        state = os.fstat(fd)
        _expect_regular(path, state)
        unfinished = state.st_size > 0 and os.pread(fd, 1, state.st_size - 1) != b"\n"
        data = f"{chr(10) if unfinished else ''}{line}\n".encode("utf-8", "backslashreplace")
        if os.write(fd, data) < len(data):
            os.ftruncate(fd, state.st_size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
    finally:
        os.close(fd)


def read_regular(path: str, limit: int) -> bytes:
    """Read a whole regular file without waiting for anybody; /dev/null is an empty one.

    A pipe is not even opened: whoever waits at its other end would take us for its reader.

    Args:
        path: the file; links are followed.
        limit: how many bytes it may have.

    Returns:
        Its content.

    Raises:
        OSError: it is missing, unreadable, something else than a regular file, or larger.
        ValueError: it is no path.
    """
    _expect_regular(path, os.stat(path))
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        _expect_regular(path, os.fstat(fd))
        pieces, left = [], limit + 1
        # What /proc calls a regular file has no size, and may have no end.
        while left > 0 and (piece := os.read(fd, min(left, _PIECE))):
            pieces.append(piece)
            left -= len(piece)
    finally:
        os.close(fd)
    if left <= 0:
        raise OSError(errno.EFBIG, f"has more than {limit // 2**20} MiB", path)
    return b"".join(pieces)


def _expect_regular(path: str, state: os.stat_result) -> None:
    if stat.S_ISDIR(state.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(state.st_mode) and not (stat.S_ISCHR(state.st_mode) and state.st_rdev == _NULL):
        raise OSError(errno.EINVAL, "is no regular file", path)


def read_json(path: str) -> dict[str, Any] | None:
    """Read a JSON object; None if it is missing, unreadable, or damaged: such a file is never trusted, never fatal."""
    try:
        value = json.loads(read_regular(path, _LARGEST_JSON).decode())
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def private_directory(owner: str) -> str:
    """Make a private (0700) short-named directory for what an engine would strew over /tmp.

    Args:
        owner: the marker id of the attempt, random: it names the directory and is written into it, so that removal
            can prove whose it is.

    Returns:
        Its absolute path, in $TMPDIR or else in /tmp, short enough for a socket with a uuid name.

    Raises:
        OSError: neither of them takes it; nothing is left there.
    """
    named = os.environ.get("TMPDIR", "")
    if os.path.isdir(named) and os.access(named, os.W_OK | os.X_OK):
        base = os.path.abspath(named)
        if len(base) <= _LONGEST_BASE:
            # One that is full may still take a directory and then not a byte.
            with contextlib.suppress(OSError):
                return _private_directory(base, owner)
    return _private_directory("/tmp", owner)


def _private_directory(base: str, owner: str) -> str:
    path = os.path.join(base, f"sv-{owner[:12]}")
    os.mkdir(path, 0o700)
    try:
        write_atomic(os.path.join(path, _OWNER_FILE), owner + "\n")
    except OSError as error:
        with contextlib.suppress(OSError):
            os.rmdir(path)
        raise OSError(error.errno, error.strerror, path) from None
    return path


def remove_private_directory(path: str, owner: str) -> bool:
    """Remove a private directory of ours, with all in it, if it provably is that one and nothing is mounted in it.

    The proof whose it is goes last: what could not be removed now can be removed later.

    Args:
        path: as recorded.
        owner: the marker id that must stand in it.

    Returns:
        True if it is gone now, False if it is there and was not proven ours, or could not be removed.
    """
    from supervise.host import tree

    try:
        # Before anything of it is looked at: a file system whose server is dead makes every look hang.
        if tree.mounts_at(path):
            return False
        if not _gone(path):
            _remove_private_directory(path, owner)
        return _gone(path)
    except (OSError, ValueError):
        return False


def _gone(path: str) -> bool:
    try:
        os.lstat(path)
    except FileNotFoundError:
        return True
    return False


def _remove_private_directory(path: str, owner: str) -> None:
    """Remove it if it is ours.

    Raises:
        OSError: it is no directory with a proof in it, or could not be removed.
    """
    from supervise.host import tree

    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        ours = os.fstat(directory).st_uid == os.geteuid() and _owned(directory, owner)
        if ours and tree.empty(directory, but=_OWNER_FILE):
            os.unlink(_OWNER_FILE, dir_fd=directory)
            os.rmdir(path)
    finally:
        os.close(directory)


def _owned(directory: int, owner: str) -> bool:
    proof = os.open(_OWNER_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    try:
        return os.read(proof, _PIECE).decode().strip() == owner
    finally:
        os.close(proof)


def make_private(base: str, *below: str) -> None:
    """Make a directory and directories in each other below it, all for their owner alone, where they are missing.

    os.makedirs has its mode for the last one only.

    Args:
        base: the first; what it lies in is made as usual.
        below: a name for each further one.

    Raises:
        OSError: one cannot be made, or is something else.
    """
    os.makedirs(os.path.dirname(base), exist_ok=True)
    path = base
    for name in ("", *below):
        path = os.path.join(path, name) if name else path
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
    if not os.path.isdir(path):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)


def remove_tree(path: str) -> None:
    """Remove a directory of ours: renamed first, so that a half-removed one is never taken for a whole one.

    Args:
        path: of the directory; that it cannot be removed is no error.
    """
    import shutil

    grave = os.path.join(os.path.dirname(path), f".removed-{os.path.basename(path)}")
    with contextlib.suppress(OSError):
        os.rename(path, grave)
        shutil.rmtree(grave, ignore_errors=True)
