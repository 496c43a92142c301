"""What is typed or piped in, on its way to the server's terminal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import termios
from typing import Any

from supervise.host import tty
from supervise.runner.outlet import Outlet

_KEYS = 64 * 1024
# bash(1) tells nobody when it brings a job to the foreground that was running in the background: only looking helps.
_LOOK_AGAIN_S = 0.5


class Input:
    """What is typed or piped in, on its way to the server; read only as fast as the server takes it.

    Args:
        loop: tells when there is something.
        stdin: where it comes from.
        master: where it goes to.
        keyboard: the user's terminal, if standard input is it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, stdin: int, master: int, keyboard: Keyboard | None) -> None:
        self._loop, self._master, self._keyboard = loop, master, keyboard
        self._fd = stdin if keyboard is None else keyboard.fd
        self._keys = Outlet(loop, master, 2 * _KEYS, on_room=self.attend)
        # A terminal that does not control us is somebody else's: to read from it would be to steal.
        self._over = keyboard is None and os.isatty(stdin)
        self._last = b"\n"
        self._listening = False
        self._later: asyncio.Handle | None = None

    def attend(self) -> None:
        """Listen, if there is something to be heard and room for it; if the terminal is not ours now, look later."""
        if self._listening or self._over or self._keys.waiting >= _KEYS:
            return
        self.pause()
        if self._keyboard is not None and not self._keyboard.take():
            self._later = self._loop.call_later(_LOOK_AGAIN_S, self.attend)
            return
        try:
            self._loop.add_reader(self._fd, self._take)
            self._listening = True
        except OSError:  # epoll_ctl(2), EPERM: a regular file or /dev/null, which never has to be waited for
            self._later = self._loop.call_soon(self._take)

    def pause(self) -> None:
        """Listen no more, until `attend`."""
        if self._listening and not self._loop.is_closed():
            self._loop.remove_reader(self._fd)
        if self._later is not None:
            self._later.cancel()
        self._listening, self._later = False, None

    def close(self) -> None:
        """It is over."""
        self._over = True
        self.pause()
        self._keys.close()

    def _take(self) -> None:
        if self._keyboard is not None and not self._keyboard.ours:
            self.pause()
        elif tty.ready(self._fd, select.POLLIN):
            self._read()
        if self._over or self._keys.waiting >= _KEYS:
            self.pause()
        else:
            self.attend()

    def _read(self) -> None:
        try:
            with tty.never_stopped():
                data = os.read(self._fd, _KEYS)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._last = data[-1:]
            self._keys.write(data)
        elif self._keyboard is None:
            self._over = True
            self._keys.write(self._end_of_file())

    def _end_of_file(self) -> bytes:
        """What a user would type: after an unfinished line the first one only finishes it (termios(3), VEOF).

        It is given once. A program that leaves canonical mode before it reads (readline, so pdb) does not see it.
        """
        veof: bytes = termios.tcgetattr(self._master)[6][termios.VEOF]
        return veof if self._last == b"\n" else veof * 2


class Keyboard:
    """The user's terminal as a source of keys: its modes, and whose turn it is to change them.

    Args:
        fd: an own, non-blocking description of it. That of standard input is shared with other programs, which may
            take a key between our look and our read; making it non-blocking would reach them.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._before: list[Any] | None = None

    @classmethod
    def behind(cls, stdin: int) -> Keyboard | None:
        """The terminal that controls us, if that is what standard input is."""
        if not tty.controls_us(stdin):
            return None
        try:
            return cls(os.open("/dev/tty", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
        except OSError:
            return None

    @property
    def ours(self) -> bool:
        """Whether we are in the foreground."""
        try:
            return os.tcgetpgrp(self.fd) == os.getpgrp()
        except OSError:
            return False

    def take(self) -> bool:
        """Have keys delivered as they are typed, to be echoed by the server's terminal; False if it is not ours.

        ISIG stays: Ctrl-C and Ctrl-Z mean supervise. ICRNL goes: the server's terminal decides what Enter is.
        """
        if not self.ours:
            return False
        try:
            modes = termios.tcgetattr(self.fd)
            if self._before is None:
                self._before = [*modes[:6], list(modes[6])]
            modes[0] &= ~termios.ICRNL
            modes[3] &= ~(termios.ICANON | termios.ECHO | termios.IEXTEN)
            modes[6][termios.VMIN], modes[6][termios.VTIME] = 1, 0
            self._set(modes)
        except termios.error:
            return False
        return True

    def forget(self) -> None:
        """Whatever has been typed and not been read yet: nothing."""
        with contextlib.suppress(termios.error), tty.never_stopped():
            termios.tcflush(self.fd, termios.TCIFLUSH)

    def restore(self) -> None:
        """The modes that were found. In the background they are the shell's own by now, and stay."""
        before, self._before = self._before, None
        if before is not None and self.ours:
            try:
                self._set(before)
            except termios.error:  # hung up
                pass

    def _set(self, modes: list[Any]) -> None:
        with tty.never_stopped():
            termios.tcsetattr(self.fd, termios.TCSANOW, modes)  # the other ways wait until the output has gone
