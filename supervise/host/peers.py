"""The door to unix sockets in a directory of ours: however long its path is, and with whoever is at the other end."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

_T = TypeVar("_T")

# sun_path has 108 bytes, the last of which is a NUL (unix(7)).
_LONGEST_PATH = 107
_UCRED = struct.Struct("iII")
_BACKLOG = 128
_AGAIN_S = 0.01
_ROOT = 0


class Peer(NamedTuple):
    """Who was at the other end when it connected, or began to listen (unix(7), SO_PEERCRED)."""

    pid: int
    uid: int

    @property
    def trusted(self) -> bool:
        """Whether it may have us do what we can do: we ourselves, or root."""
        return self.uid in (_ROOT, os.geteuid())


def peer(connected: socket.socket) -> Peer:
    """Who is at the other end; the kernel says so, not they.

    Raises:
        OSError: it cannot be told.
    """
    pid, uid, _ = _UCRED.unpack(connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return Peer(pid, uid)


def listen(directory: str, name: str) -> socket.socket:
    """Listen in a directory, for the owner alone; a socket of that name, which nobody can listen on any more, goes.

    Args:
        directory: it must be ours, and nobody else may be listening in it.
        name: of the socket.

    Returns:
        The socket, which never blocks.

    Raises:
        OSError: there can be none: a read-only or full file system, or something else of that name.
    """
    _forget(os.path.join(directory, name))
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        # Before it has a name: the inode gets the mode that the socket has (unix_bind of the kernel).
        os.fchmod(listener.fileno(), 0o600)
        _within_sight(directory, name, listener.bind)
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def connect(directory: str, name: str, within_s: float) -> socket.socket:
    """Connect to a socket in a directory.

    Args:
        directory: where it is.
        name: of the socket.
        within_s: how long that, and everything later on it, may block.

    Raises:
        OSError: there is none, or nobody listens.
    """
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        connected.settimeout(within_s)
        _within_sight(directory, name, lambda address: _get_in(connected, address, within_s))
    except BaseException:
        connected.close()
        raise
    return connected


def inode(directory: str, name: str) -> int | None:
    """Of the socket that has this name now, None if none has."""
    try:
        found = os.lstat(os.path.join(directory, name))
    except OSError:
        return None
    return found.st_ino if stat.S_ISSOCK(found.st_mode) else None


def unlink(directory: str, name: str, expected: int | None) -> None:
    """Take a socket's name away, if it still is the one with that inode."""
    if expected is not None and inode(directory, name) == expected:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(directory, name))


def _forget(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            os.unlink(path)


def _get_in(connected: socket.socket, address: str, within_s: float) -> None:
    """Where many stand at the door, a socket with a time-out is sent away at once (connect(2), EAGAIN)."""
    until = time.monotonic() + within_s
    while True:
        try:
            connected.connect(address)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise
            time.sleep(_AGAIN_S)
        else:
            return


def _within_sight(directory: str, name: str, use: Callable[[str], _T]) -> _T:
    """Use an address that fits: the path itself, or one through a descriptor of its directory (proc(5), fd)."""
    path = os.path.join(directory, name)
    if len(os.fsencode(path)) <= _LONGEST_PATH:
        return use(path)
    held = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return use(f"/proc/self/fd/{held}/{name}")
    finally:
        os.close(held)
