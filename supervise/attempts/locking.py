"""One group per run, ever: a lock that its keeper holds on after our death, and a second look at who is at work."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from typing import Any

from supervise.attempts.roles import living

_TRIES = 5
_LOOKED_AT_S = 0.002


def take(path: str, state: Callable[[], dict[str, Any] | None]) -> int | None:
    """Take a lock without waiting.

    The lock belongs to the open file, so that a keeper which inherits the descriptor holds it on (flock(2)).

    Args:
        path: its file, made if it is missing.
        state: what run.json says; read once the lock is ours.

    Returns:
        The descriptor to keep open, None if somebody else holds it.

    Raises:
        OSError: the file cannot be opened.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    if not _lock(fd) or is_held(state()):
        os.close(fd)
        return None
    return fd


def is_locked(path: str) -> bool:
    """Whether somebody holds a lock, in whatever PID namespace they are (flock(2)).

    It is taken for a moment as a shared one, which hinders nobody else who looks; see `_lock` for whoever takes it.

    Args:
        path: its file.

    Raises:
        OSError: it cannot be opened.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _lock(fd: int) -> bool:
    """Lock a file for ourselves alone; somebody who has it shared only looks, and has gone in a moment."""
    for _ in range(_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pass
        else:
            return True
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return False
        fcntl.flock(fd, fcntl.LOCK_UN)
        time.sleep(_LOOKED_AT_S)
    return False


def claim(path: str) -> int | None:
    """Take a file that says who is about to do something; it goes with whoever has it.

    Args:
        path: of the file, made if it is missing.

    Returns:
        The descriptor to close when it is done, None if somebody else is about to.

    Raises:
        OSError: it cannot be opened.
    """
    return take(path, lambda: None)


def is_held(state: dict[str, Any] | None) -> bool:
    """Whether somebody is at work for a run whose lock is free: a file that was removed locks nobody out.

    Args:
        state: what run.json says.
    """
    if state is None or state.get("state") == "done":
        return False
    holders = (living(state, role) for role in ("supervisor", "keeper", "guard"))
    return any(holder is not None and holder.pid != os.getpid() for holder in holders)
