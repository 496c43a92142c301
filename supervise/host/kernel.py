"""The door to the few system calls that Python has no name for."""

from __future__ import annotations

import ctypes
import os

_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NAME = 15
FALLOC_FL_KEEP_SIZE = 0x01
FALLOC_FL_PUNCH_HOLE = 0x02
FALLOC_FL_COLLAPSE_RANGE = 0x08
IN_MODIFY = 0x02
_IN_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC

_libc = ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> None:
    """From now on orphaned descendants re-parent to us, not to pid 1 (prctl(2), PR_SET_CHILD_SUBREAPER).

    Not inherited by fork, kept over execve.

    Raises:
        OSError: the kernel refused (older than 3.4).
    """
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl(PR_SET_CHILD_SUBREAPER)")


def set_comm(name: str) -> None:
    """Set what `ps -o comm` shows for us; cut at 15 bytes by the kernel (prctl(2), PR_SET_NAME)."""
    _libc.prctl(_PR_SET_NAME, ctypes.c_char_p(name.encode()), 0, 0, 0)


def fallocate(fd: int, mode: int, offset: int, length: int) -> None:
    """Collapse or punch a byte range of a file (fallocate(2)).

    Args:
        fd: open for writing.
        mode: FALLOC_FL_COLLAPSE_RANGE, or FALLOC_FL_PUNCH_HOLE with FALLOC_FL_KEEP_SIZE.
        offset: first byte, a multiple of the file system's block size when collapsing.
        length: number of bytes, likewise.

    Raises:
        OSError: EOPNOTSUPP where the file system cannot do it; EINVAL for a range that is not block-aligned.
    """
    call = _libc.fallocate
    call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    _check(call(fd, mode, offset, length), "fallocate")


def watch_modifications(path: str) -> int:
    """An inotify descriptor that becomes readable whenever the file is written to (inotify(7)).

    Raises:
        OSError: EMFILE at the per-user instance limit, ENOSPC at the watch limit, ENOENT without the file.
    """
    fd = _check(_libc.inotify_init1(_IN_FLAGS), "inotify_init1")
    try:
        _check(_libc.inotify_add_watch(fd, os.fsencode(path), IN_MODIFY), "inotify_add_watch")
    except OSError:
        os.close(fd)
        raise
    return int(fd)


def _check(result: int, call: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{call}: {os.strerror(code)}")
    return result
