"""Reaping: who has ended below a subreaper, and whether anybody is left."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from supervise.host import procfs

_CHASE_S = 0.1


class Reaper:
    """Reaps whatever ends below us; for a process with one thread only.

    Args:
        on_end: called with the pid and the wait status of each.
    """

    def __init__(self, on_end: Callable[[int, int], None] = lambda _pid, _status: None) -> None:
        self.count = 0
        self._on_end = on_end

    def reap(self) -> bool:
        """Reap all that have ended; True if no child is left, which proves that nobody is below us (waitpid(2))."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            self.count += 1
            self._on_end(pid, status)

    def chase(self) -> None:
        """For a tenth of a second kill our children as fast as they can be listed, and what becomes our child by that.

        Whoever forks and exits is our child a moment later, too short a moment for a reading of all processes. A child
        that nobody but us can reap keeps its number, so that the plain kill(2) hits no stranger. Without
        /proc/PID/task/TID/children (CONFIG_PROC_CHILDREN) there is nothing to be won.
        """
        until = time.monotonic() + _CHASE_S
        while not self.reap() and time.monotonic() < until:
            for pid in procfs.children() or ():
                _kill(pid)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
