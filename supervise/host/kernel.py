"""The door to the few system calls that Python has no name for."""

from __future__ import annotations

import ctypes
import os

_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NAME = 15
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REC, MS_SLAVE = 0x2, 0x4, 0x8, 0x4000, 0x80000
FALLOC_FL_KEEP_SIZE = 0x01
FALLOC_FL_PUNCH_HOLE = 0x02
FALLOC_FL_COLLAPSE_RANGE = 0x08
IN_MODIFY, IN_OPEN, IN_MOVE_SELF = 0x02, 0x20, 0x800
IN_Q_OVERFLOW, IN_IGNORED = 0x4000, 0x8000
IN_ONLYDIR, IN_ISDIR = 0x01000000, 0x40000000
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


def die_with_parent(signum: int) -> None:
    """Have the kernel send us this signal when the thread that forked us ends (prctl(2), PR_SET_PDEATHSIG).

    Cleared for our own children, and by an exec that changes credentials.

    Raises:
        OSError: the kernel refused.
    """
    _check(_libc.prctl(_PR_SET_PDEATHSIG, signum, 0, 0, 0), "prctl(PR_SET_PDEATHSIG)")


def be_readable() -> None:
    """Let our own user read us in /proc again: new credentials had made us undumpable (proc(5), PR_SET_DUMPABLE)."""
    _libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)


def unshare(flags: int) -> None:
    """Leave namespaces for new ones; of a new PID namespace only children become members (unshare(2)).

    Raises:
        OSError: EPERM without the privilege, EINVAL with threads, ENOSPC or EUSERS at a limit.
    """
    _check(_libc.unshare(flags), "unshare")


def mount(source: str | None, target: str, kind: str | None, flags: int) -> None:
    """Mount, or change how mounts propagate (mount(2)).

    Raises:
        OSError: the kernel refused.
    """
    encoded = (None if text is None else os.fsencode(text) for text in (source, target, kind))
    _check(_libc.mount(*encoded, ctypes.c_ulong(flags), None), f"mount {target}")


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
    fd = inotify()
    try:
        inotify_add(fd, path, IN_MODIFY)
    except OSError:
        os.close(fd)
        raise
    return fd


def inotify() -> int:
    """A descriptor that events are read from, without waiting for any (inotify_init1(2)).

    Raises:
        OSError: EMFILE at the per-user instance limit.
    """
    return int(_check(_libc.inotify_init1(_IN_FLAGS), "inotify_init1"))


def inotify_add(fd: int, path: str, mask: int) -> int:
    """Have events of a file or directory told there; returns the number that they bear (inotify_add_watch(2)).

    Raises:
        OSError: ENOSPC at the watch limit, ENOENT without the file, EACCES if it cannot be read.
    """
    return int(_check(_libc.inotify_add_watch(fd, os.fsencode(path), mask), "inotify_add_watch"))


def _check(result: int, call: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{call}: {os.strerror(code)}")
    return result
