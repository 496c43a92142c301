"""The door to file leases: the kernel's own word on whether anybody has a file open.

A write lease is granted only while nobody else has the file open or mapped (fcntl(2), F_SETLEASE): whoever that is, in
whatever PID namespace, readable for us or not. It is let go at once.
"""

from __future__ import annotations

import fcntl
import os
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from supervise.host import mounts

# Where it has been tried. What is mapped through an overlay is open in the layer below only, which the lease does not
# see; a network file system knows nothing of other machines.
_TRUSTWORTHY = frozenset({b"ext2", b"ext3", b"ext4", b"xfs", b"tmpfs"})


@contextmanager
def leased(path_fd: int) -> Iterator[bool | None]:
    """Hold a write lease on a file.

    Args:
        path_fd: an O_PATH descriptor of it.

    Yields:
        True while nobody but us has it open, False if somebody has, None if leases cannot tell here: another user's
        file, a file system without them.
    """
    file = _reopened(path_fd)
    if file is None:
        yield None
        return
    try:
        yield _take(file)
    finally:
        os.close(file)


def _reopened(path_fd: int) -> int | None:
    """For reading; through the descriptor, so that it is the file that was looked at and no FIFO or device."""
    if not stat.S_ISREG(os.fstat(path_fd).st_mode):
        return None
    try:
        return os.open(f"/proc/self/fd/{path_fd}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None


def _take(file: int) -> bool | None:
    try:
        if _filesystem(os.fstat(file).st_dev) not in _TRUSTWORTHY:
            return None
        # Should somebody open it this very moment, the kernel says so by a signal, and SIGIO would end us.
        fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _filesystem(device: int) -> bytes | None:
    """The type of a mounted file system; None where files have other devices than their mount."""
    return next((mount.type for mount in mounts.listed() if mount.device == device), None)
