"""A pseudoterminal with a console on it, and what a person would see there."""

from __future__ import annotations

import os
import select
import termios

from supervise.report.live import Terminal
from tests.support.vt import Vt

ROWS, COLUMNS = 24, 80


class Pty:
    """A terminal and what stands on it.

    Attributes:
        console: the one under test.
        shown: its screen.
    """

    def __init__(self) -> None:
        self.master, slave = os.openpty()
        termios.tcsetwinsize(self.master, (ROWS, COLUMNS))
        self.stream = os.fdopen(slave, "w")
        self.console = Terminal(self.stream)
        self.shown = Vt(ROWS, COLUMNS)
        self.raw = b""

    def read(self) -> bytes:
        """What has been written since the last time."""
        new = b""
        while select.select([self.master], [], [], 0)[0]:
            new += os.read(self.master, 65536)
        self.raw += new
        self.shown.feed(new)
        return new

    def read_raw(self) -> bytes:
        """The same, of what is not UTF-8."""
        new = b""
        while select.select([self.master], [], [], 0)[0]:
            new += os.read(self.master, 65536)
        return new

    def close(self) -> None:
        self.console.close()
        self.stream.close()
        os.close(self.master)
