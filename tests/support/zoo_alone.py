"""A place of one's own: a PID namespace, a /dev/shm and System V segments that nobody else sees (unshare(1)).

What a clean slate, or pkill(1), ends or removes in there is nobody else's.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

_OWN = ("--pid", "--mount", "--ipc", "--propagation", "private", "--mount-proc")
_FURNISHED = 'mount -t tmpfs tmpfs /dev/shm && exec "$@"'


def command(program: Sequence[str]) -> list[str]:
    """The command line that runs a program as the first process of such a place; all in it ends with it."""
    as_root = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    return ["unshare", *as_root, *_OWN, "--fork", "--kill-child", "sh", "-c", _FURNISHED, "sh", *program]


def possible() -> bool:
    """Whether there is such a place here."""
    try:
        return subprocess.run(command(["true"]), capture_output=True, check=False, timeout=20).returncode == 0
    except FileNotFoundError:
        return False
