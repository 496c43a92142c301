"""The door to files of ours: atomic writes, private directories, exact removal.

`shutil` is imported where it is used: the keeper imports this module and needs that one once, at its end.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from typing import Any

_OWNER_FILE = ".supervise"
# sun_path holds 108 bytes; an engine's socket name is a 36-byte uuid behind this directory (unix(7)).
_LONGEST_BASE = 60


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


def read_json(path: str) -> dict[str, Any] | None:
    """Read a JSON object; None if it is missing, unreadable, or damaged: such a file is never trusted, never fatal."""
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def private_directory(owner: str) -> str:
    """Make a private (0700) short-named directory for what an engine would strew over /tmp.

    Args:
        owner: the marker id of the attempt, random: it names the directory and is written into it, so that removal
            can prove whose it is.

    Returns:
        Its absolute path, short enough for a socket with a uuid name.

    Raises:
        OSError: neither $TMPDIR nor /tmp is writable.
    """
    base = os.environ.get("TMPDIR", "")
    if not (os.path.isdir(base) and os.access(base, os.W_OK | os.X_OK) and len(base) <= _LONGEST_BASE):
        base = "/tmp"
    path = os.path.join(os.path.abspath(base), f"sv-{owner[:12]}")
    os.mkdir(path, 0o700)
    write_atomic(os.path.join(path, _OWNER_FILE), owner + "\n")
    return path


def remove_private_directory(path: str, owner: str) -> bool:
    """Remove a private directory of ours, with all in it, if it provably is that one.

    Args:
        path: as recorded.
        owner: the marker id that must stand in it.

    Returns:
        True if it is gone now, False if it is there and was not proven ours, or could not be removed.
    """
    try:
        state = os.lstat(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.geteuid() or not _owned(path, owner):
        return False
    import shutil

    shutil.rmtree(path, ignore_errors=True)
    return not os.path.lexists(path)


def _owned(path: str, owner: str) -> bool:
    try:
        with open(os.path.join(path, _OWNER_FILE), encoding="utf-8") as file:
            return file.read().strip() == owner
    except (OSError, ValueError):
        return False
