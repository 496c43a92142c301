"""Signals that mean the server, or the whole group, and are no decision of the lifecycle's."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from supervise.runner.containment import Containment
    from supervise.runner.terminal import Terminal
    from supervise.runner.timers import Timers


class PassThrough:
    """Passes them on.

    Args:
        group: where they go.
        timers: stand still while we are stopped.

    Attributes:
        terminal: the server's, if it has one.
    """

    def __init__(self, group: Containment, timers: Timers) -> None:
        self.terminal: Terminal | None = None
        self._group, self._timers = group, timers

    def signal(self, signum: int) -> None:
        """One for the leader; a change of the window is the terminal's to tell if there is one."""
        if signum == signal.SIGWINCH and self.terminal is not None:
            self.terminal.resize()
        else:
            self._group.signal(signum)

    def suspend(self) -> None:
        """Ctrl-Z: the whole group is stopped; once that is heard of, we are (`stop_ourselves`)."""
        self._group.suspend()

    def stop_ourselves(self) -> None:
        """Sleeps in here until somebody continues us; what had a deadline before has as much time left after."""
        if self.terminal is not None:
            self.terminal.suspend()
        with self._timers.paused():
            os.kill(os.getpid(), signal.SIGSTOP)
        self._group.resume()
        if self.terminal is not None:
            self.terminal.resume()
