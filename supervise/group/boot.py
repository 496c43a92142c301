"""Starts a keeper's process, and nothing else: it comes up while supervise is still importing itself."""

from __future__ import annotations

import os
import socket
import sys
from typing import NamedTuple

_PACKAGE_PARENT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Without `site` and user paths a Python is up in half the time, and no sitecustomize can get between us and the server.
_CODE = "import sys; sys.path.insert(0, sys.argv.pop(1)); from supervise.group.{} import main; main()"


class Booted(NamedTuple):
    """A keeper's process, and our end of the socketpair with it."""

    pid: int
    channel: socket.socket


def boot(module: str = "guard", *args: str) -> Booted:
    """Start a keeper, or another helper; it waits for its request and ends by itself when our end is closed.

    Args:
        module: where its `main` is, in this package.
        args: what it is to know from the beginning.

    Raises:
        OSError: it could not be started.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    theirs.set_inheritable(True)
    try:
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", "-c", _CODE.format(module), _PACKAGE_PARENT, *args, str(theirs.fileno())],
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
        )
    finally:
        theirs.close()
    return Booted(pid, ours)
