"""Who else of us writes on the same terminal: seen by a lock on the terminal itself, which hinders nobody.

Locks of open file descriptions (fcntl(2), F_OFD_SETLK) work on every inode. One for reading says that somebody is
there; F_OFD_GETLK asks whether one for writing would have to wait for anybody else, and takes nothing.
"""

from __future__ import annotations

import fcntl
import os
import struct
import weakref

# struct flock on 64-bit Linux: type, whence, start, length, pid.
_FLOCK = "hhqqi4x"
_DEV_TTY = os.makedev(5, 0)


class Presence:
    """On one terminal. Where nothing can be locked nobody else is seen.

    Args:
        fd: the terminal; it is opened once more, for what is locked belongs to the open file.
    """

    def __init__(self, fd: int) -> None:
        self._fd = _opened(fd)
        self._here = False
        # A child that goes on as somebody else does not write here, but would hold the lock with us.
        ours = weakref.WeakMethod(self.close)
        os.register_at_fork(after_in_child=lambda: (close := ours()) and close())

    @property
    def alone(self) -> bool:
        """Whether nobody else is there."""
        if self._fd < 0:
            return True
        try:
            found = fcntl.fcntl(self._fd, fcntl.F_OFD_GETLK, _lock(fcntl.F_WRLCK))
        except OSError:
            return True
        return bool(struct.unpack(_FLOCK, found)[0] == fcntl.F_UNLCK)

    def enter(self) -> None:
        """We are there, until `leave`, `close` or our death."""
        self._set(here=True)

    def leave(self) -> None:
        """We write nothing for a while."""
        self._set(here=False)

    def close(self) -> None:
        """We write nothing any more."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def _set(self, *, here: bool) -> None:
        if self._fd < 0 or here == self._here:
            return
        try:
            fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, _lock(fcntl.F_RDLCK if here else fcntl.F_UNLCK))
        except OSError:
            return
        self._here = here


def _opened(fd: int) -> int:
    """Of /dev/tty (tty(4)) all terminals have the same inode: nothing is to be learnt from that one."""
    try:
        if os.fstat(fd).st_rdev == _DEV_TTY:
            return -1
        return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return -1


def _lock(kind: int) -> bytes:
    return struct.pack(_FLOCK, kind, os.SEEK_SET, 0, 0, 0)
