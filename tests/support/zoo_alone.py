"""A place of one's own: a PID namespace, a /dev/shm and System V segments that nobody else sees (unshare(1)).

What a clean slate, or pkill(1), ends or removes in there is nobody else's.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_OWN = ("--pid", "--mount", "--ipc", "--propagation", "private", "--mount-proc")
_FURNISHED = 'mount -t tmpfs tmpfs /dev/shm && exec "$@"'


def command(program: Sequence[str]) -> list[str]:
    """The command line that runs a program as the first process of such a place; all in it ends with it."""
    as_root = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    return ["unshare", *as_root, *_OWN, "--fork", "--kill-child", "sh", "-c", _FURNISHED, "sh", *program]


def told(program: Sequence[str], home: Path, env: Mapping[str, str], deadline_s: float) -> Any:
    """Run a program there whose every directory is `home`; what it prints, as JSON.

    Raises:
        RuntimeError: it failed; with its last words.
    """
    places = ("TMPDIR", "HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME")
    done = subprocess.run(
        command(program),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=deadline_s,
        env={**env, **dict.fromkeys(places, str(home))},
    )
    if done.returncode:
        raise RuntimeError(f"{program[-1]}: {done.stderr}")
    return json.loads(done.stdout)


def possible() -> bool:
    """Whether there is such a place here."""
    try:
        return subprocess.run(command(["true"]), capture_output=True, check=False, timeout=20).returncode == 0
    except FileNotFoundError:
        return False
