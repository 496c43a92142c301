"""What means the server, or the whole group, and is no decision of the lifecycle's: signals, and its terminal."""

from __future__ import annotations

import asyncio
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
    """

    def __init__(self, group: Containment, timers: Timers) -> None:
        self._terminal: Terminal | None = None
        self._group, self._timers = group, timers

    def open_terminal(self, log: str) -> str:
        """Give the server a terminal, whose output goes into this log as well.

        Returns:
            The path of its device.

        Raises:
            OSError: there is none to be had.
        """
        from supervise.runner.terminal import Terminal

        self._terminal = Terminal.open(log)
        self._terminal.start(asyncio.get_running_loop())
        return self._terminal.slave

    def launched(self) -> None:
        """The server has begun: its terminal is its own from here."""
        if self._terminal is not None:
            self._terminal.launched()

    def finish(self) -> None:
        """The server is over: what its terminal still holds is passed on, and ours is ours again."""
        if self._terminal is not None:
            self._terminal.finish()

    def signal(self, signum: int) -> None:
        """One for the leader; a change of the window is the terminal's to tell if there is one."""
        if signum == signal.SIGWINCH and self._terminal is not None:
            self._terminal.resize()
        else:
            self._group.signal(signum)

    def suspend(self) -> None:
        """Ctrl-Z: the whole group is stopped; once that is heard of, we are (`stop_ourselves`)."""
        self._group.suspend()

    def stop_ourselves(self) -> None:
        """Sleeps in here until somebody continues us; what had a deadline before has as much time left after."""
        if self._terminal is not None:
            self._terminal.suspend()
        with self._timers.paused():
            os.kill(os.getpid(), signal.SIGSTOP)
        self._group.resume()
        if self._terminal is not None:
            self._terminal.resume()
