"""A pseudo-terminal for the server (`--tty`): it debugs and colours as on a real one, its log still gets every byte.

What the server writes goes to its log first, and to standard output as far as that takes it; what is typed goes to the
server. Nothing here waits for a reader, neither one of ours nor one of the server's.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import termios
import time
from contextlib import ExitStack
from typing import NamedTuple

from supervise.host import tty
from supervise.runner.keyboard import Input, Keyboard
from supervise.runner.outlet import Outlet

_TURN = 256 * 1024
_SCREEN = 256 * 1024
_DRAIN, _DRAIN_S = 64 * 1024 * 1024, 2.0


class Terminal:
    """The server's terminal as supervise holds it: `open`, `start`, launch, `launched`, and in the end `finish`.

    Whoever opens `slave` first, in a session of its own, is controlled by it. If supervise is killed, the kernel hangs
    this terminal up and the server gets SIGHUP; while supervise is stopped, nobody takes the server's output.

    Attributes:
        slave: path of the device for the server's stdin, stdout and stderr.
        lost: bytes that could not be written to the log.
    """

    def __init__(self, slave: str, fds: _Fds, keyboard: Keyboard | None, owned: ExitStack, held: ExitStack) -> None:
        self.slave = slave
        self.lost = 0
        self._fds, self._keyboard, self._owned, self._held = fds, keyboard, owned, held
        self._loop: asyncio.AbstractEventLoop | None = None
        self._screen: Outlet | None = None
        self._input: Input | None = None
        self._hung_up = False
        self._last = b""

    @classmethod
    def open(cls, log: str, stdin: int = 0, stdout: int = 1) -> Terminal:
        """Make the terminal, as large as the user's.

        Args:
            log: file that the server's output is appended to.
            stdin: where keys come from; if it is not a terminal, its end is the server's end of input.
            stdout: where people see the output.

        Raises:
            OSError: no terminal is left, or the log cannot be opened.
        """
        with ExitStack() as owned:
            log_fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            owned.callback(os.close, log_fd)
            keyboard = Keyboard.behind(stdin)
            if keyboard is not None:
                owned.callback(os.close, keyboard.fd)
            master, slave = os.openpty()  # both close-on-exec (PEP 446)
            owned.callback(os.close, master)
            held = owned.enter_context(ExitStack())
            held.callback(os.close, slave)
            os.set_blocking(master, False)
            termios.tcsetwinsize(master, tty.size(stdin, stdout))
            tty.plain_newlines(slave)
            fds = _Fds(master, log_fd, stdin, tty.never_blocking(stdout, owned))
            return cls(os.ttyname(slave), fds, keyboard, owned.pop_all(), held)

    @property
    def dropped(self) -> int:
        """Bytes that standard output did not take."""
        return self._screen.dropped if self._screen else 0

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to pass bytes in both directions."""
        self._loop = loop
        self._screen = Outlet(loop, self._fds.stdout, _SCREEN)
        self._input = Input(loop, self._fds.stdin, self._fds.master, self._keyboard)
        if self._keyboard is not None:
            atexit.register(self._keyboard.restore)
        loop.add_reader(self._fds.master, self._output)
        self._input.attend()

    def launched(self) -> None:
        """The server has the terminal open: from now on its end is everybody's end (EIO)."""
        self._held.close()

    def resize(self) -> None:
        """The user's terminal has changed (SIGWINCH): so does the server's, whose foreground group gets SIGWINCH."""
        termios.tcsetwinsize(self._fds.master, tty.size(self._fds.stdin, self._fds.stdout))

    def suspend(self) -> None:
        """Give the user's terminal back, before supervise stops itself."""
        if self._input is not None:
            self._input.pause()
        if self._keyboard is not None:
            self._keyboard.restore()

    def resume(self) -> None:
        """Continued: take the terminal again if it is ours to take. The shell may have changed its modes and size."""
        self.resize()
        if self._input is not None:
            self._input.pause()
            self._input.attend()

    def finish(self) -> None:
        """Take what the server has left behind, give the user's terminal back, and close everything; once."""
        if self._fds.master < 0:
            return
        self.launched()
        self._stop_listening()
        self._drain()
        self.suspend()
        if self._keyboard is not None:
            atexit.unregister(self._keyboard.restore)
        self._owned.close()
        self._fds = _Fds()

    def _stop_listening(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._fds.master)
        if self._input is not None:
            self._input.close()

    def _drain(self) -> None:
        until = time.monotonic() + _DRAIN_S
        moved = 0
        while moved < _DRAIN and time.monotonic() < until and (more := self._transfer()):
            moved += more
        if self._screen is not None:
            if self._last not in (b"", b"\n"):
                # What is told next, by us or by the shell, begins on a line of its own.
                self._screen.write(b"\n")
            self._screen.close(until)

    def _output(self) -> None:
        self._transfer()
        if self._hung_up and self._loop is not None:
            self._loop.remove_reader(self._fds.master)

    def _transfer(self) -> int:
        """Move one turn's worth of output; returns how many bytes that was."""
        data = bytearray()
        try:
            while len(data) < _TURN:
                data += os.read(self._fds.master, _TURN)
        except BlockingIOError:
            pass
        except OSError:
            self._hung_up = True  # EIO: nobody has the other side open any more
        self._last = bytes(data[-1:]) or self._last
        self._append(data)
        if self._screen is not None:
            self._screen.write(data)
        return len(data)

    def _append(self, data: bytearray) -> None:
        left = bytes(data)
        try:
            while left:
                left = left[os.write(self._fds.log, left) :]
        except OSError:
            self.lost += len(left)


class _Fds(NamedTuple):
    """The descriptors between which bytes move; none of them once it is over."""

    master: int = -1
    log: int = -1
    stdin: int = -1
    stdout: int = -1
