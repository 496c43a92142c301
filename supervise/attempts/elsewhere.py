"""Whether a run lives where its pids mean nothing to us: in another PID namespace of this boot.

A sidecar with the same state directory, or a host that looks into its container's, cannot look its processes up. But
they can tell by its lock, which belongs to open files (flock(2)), and ask at its control socket, which has a path.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from supervise.attempts import locking
from supervise.host import procfs

if TYPE_CHECKING:
    from supervise.attempts.store import Run

SOCKET = "control.sock"
"""Name of a run's control socket in its directory."""

_CONNECT_S = 0.5


def elsewhere(run: Run) -> bool:
    """Whether a run is live in another PID namespace of this boot; that costs something only if it may be."""
    return _began_elsewhere(run.read_state()) and is_occupied(run)


def is_occupied(run: Run) -> bool:
    """Whether somebody, wherever they are, is at work for a run; what cannot be looked at counts as held."""
    try:
        return locking.is_locked(os.path.join(run.path, "lock")) or listens(run)
    except FileNotFoundError:
        return listens(run)  # a file that was removed locks nobody out
    except OSError:
        return True


def listens(run: Run) -> bool:
    """Whether a supervise has the run's control socket open; one that is suspended has."""
    from supervise.host import peers

    try:
        peers.connect(run.path, SOCKET, _CONNECT_S).close()
    except OSError:
        return False
    return True


def _began_elsewhere(state: dict[str, Any] | None) -> bool:
    """Whether a run's live state is that of another PID namespace; of another boot nobody is left."""
    if state is None or state.get("state") == "done" or not state.get("host"):
        return False
    here, there = procfs.host_id(), state["host"]
    return bool(there["boot_id"] == here.boot_id and there["pid_namespace"] != here.pid_namespace)
