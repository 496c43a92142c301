"""The door to socket files: whether anybody has bound one, decided by the file itself and never by its name alone."""

from __future__ import annotations

import errno
import os
import socket

from supervise.model.litter import FileId

_HANDLE = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def listed() -> frozenset[str]:
    """Paths of all Unix sockets of our network namespace that are bound to one (proc(5), /proc/net/unix).

    A path may hold line breaks, and pieces of it then look like rows: what it says proves only that a path is in use.

    Raises:
        OSError: it cannot be read.
    """
    with open("/proc/self/net/unix", encoding="utf-8", errors="surrogateescape", newline="\n") as file:
        rows = (row.rstrip("\n").split(maxsplit=7) for row in file)
        return frozenset(fields[7] for fields in rows if len(fields) == 8)


def in_use(directory: int, name: str, file: FileId, path: str, paths: frozenset[str]) -> bool | None:
    """Whether anybody has bound a socket file, listening or not yet.

    Args:
        directory: a descriptor of the directory that holds it.
        name: its name there.
        file: its identity; anything else there is not asked.
        path: the same as a path.
        paths: what `listed` says.

    Returns:
        True if it is listed, or if the kernel finds a socket behind the file; None if that cannot be told.
    """
    # A server may have bound a relative path, and where it was then nobody knows.
    if path in paths or name in paths or f"./{name}" in paths:
        return True
    try:
        handle = os.open(name, _HANDLE, dir_fd=directory)
    except OSError:
        return None
    try:
        state = os.fstat(handle)
        if FileId(state.st_dev, state.st_ino) != file:
            return None
        return _answers(handle)
    finally:
        os.close(handle)


def _answers(handle: int) -> bool | None:
    """Ask the kernel for the socket behind this very file (unix(7)).

    A datagram socket first: one of another type refuses it with EPROTOTYPE, in any network namespace and before it
    listens, and its owner does not notice. Through /proc, a path of any length will do, and nobody can exchange it.
    """
    for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
        with socket.socket(socket.AF_UNIX, kind | socket.SOCK_NONBLOCK) as client:
            try:
                client.connect(f"/proc/self/fd/{handle}")
            except ConnectionRefusedError:
                continue
            except OSError as error:
                # A full backlog or another type: somebody is there. No permission, no memory: nothing is known.
                return True if error.errno in (errno.EPROTOTYPE, errno.EAGAIN, errno.EPERM) else None
            return True
    return False
