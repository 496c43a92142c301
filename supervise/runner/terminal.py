"""A pseudo-terminal for the server (`--tty`): it debugs and colours as on a real one, its log still gets every byte.

What the server writes goes to its log first, and to standard output as far as that takes it; what is typed goes to the
server. Nothing here waits for a reader, neither one of ours nor one of the server's.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import select
import signal
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

_ROWS, _COLUMNS = 24, 80
_TURN = 256 * 1024
_KEYS = 64 * 1024
_SCREEN = 256 * 1024
_DRAIN, _DRAIN_S = 64 * 1024 * 1024, 2.0
_PATIENCE_MS = 200
# bash(1) tells nobody when it brings a job to the foreground that was running in the background: only looking helps.
_LOOK_AGAIN_S = 0.5
_PIPE_BUF = 4096  # a pipe that poll(2) calls writable takes as much without blocking (pipe(7)); no terminal does
_STALLED_S = 0.05
_IUTF8 = 0o40000  # ioctl_tty(2), TCSETS: backspace takes away a character, not a byte; Python has no name for it


class Terminal:
    """The server's terminal as supervise holds it: `open`, `start`, launch, `launched`, and in the end `finish`.

    Whoever opens `slave` first, in a session of its own, is controlled by it. If supervise is killed, the kernel hangs
    this terminal up and the server gets SIGHUP; while supervise is stopped, nobody takes the server's output.

    Attributes:
        slave: path of the device for the server's stdin, stdout and stderr.
        lost: bytes that could not be written to the log.
    """

    def __init__(self, slave: str, fds: _Fds, keyboard: _Keyboard | None, owned: ExitStack, held: ExitStack) -> None:
        self.slave = slave
        self.lost = 0
        self._fds, self._keyboard, self._owned, self._held = fds, keyboard, owned, held
        self._loop: asyncio.AbstractEventLoop | None = None
        self._screen: _Outlet | None = None
        self._input: _Input | None = None
        self._hung_up = False

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
            keyboard = _Keyboard.behind(stdin)
            if keyboard is not None:
                owned.callback(os.close, keyboard.fd)
            master, slave = os.openpty()  # both close-on-exec (PEP 446)
            owned.callback(os.close, master)
            held = owned.enter_context(ExitStack())
            held.callback(os.close, slave)
            os.set_blocking(master, False)
            termios.tcsetwinsize(master, _size(stdin, stdout))
            _plain_newlines(slave)
            fds = _Fds(master, log_fd, stdin, _never_blocking(stdout, owned))
            return cls(os.ttyname(slave), fds, keyboard, owned.pop_all(), held)

    @property
    def dropped(self) -> int:
        """Bytes that standard output did not take."""
        return self._screen.dropped if self._screen else 0

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to pass bytes in both directions."""
        self._loop = loop
        self._screen = _Outlet(loop, self._fds.stdout, _SCREEN)
        self._input = _Input(loop, self._fds, self._keyboard)
        if self._keyboard is not None:
            atexit.register(self._keyboard.restore)
        loop.add_reader(self._fds.master, self._output)
        self._input.attend()

    def launched(self) -> None:
        """The server has the terminal open: from now on its end is everybody's end (EIO)."""
        self._held.close()

    def resize(self) -> None:
        """The user's terminal has changed (SIGWINCH): so does the server's, whose foreground group gets SIGWINCH."""
        termios.tcsetwinsize(self._fds.master, _size(self._fds.stdin, self._fds.stdout))

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


class _Outlet:
    """Bytes on their way to a reader that may be slow: some wait here, the rest is dropped and counted.

    Args:
        loop: tells when there is room.
        fd: where they go; a terminal must be a non-blocking description.
        most: bytes that may wait.
        on_room: called when all that waited has gone.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, fd: int, most: int, on_room: Callable[[], None] | None = None
    ) -> None:
        self.dropped = 0
        self._loop, self._fd, self._most, self._on_room = loop, fd, most, on_room
        self._waiting = bytearray()
        self._watched = False
        self._later: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """Bytes that have not gone yet."""
        return len(self._waiting)

    def write(self, data: bytes | bytearray) -> None:
        """Pass on what fits, keep what may wait."""
        self._waiting += data
        self._flush()
        self.dropped += max(0, self.waiting - self._most)
        del self._waiting[self._most :]
        if self._waiting and not self._watched and self._later is None:
            self._watch()

    def close(self, until: float = 0.0) -> None:
        """Drop what still waits, having given it a last chance until then (monotonic) while it moves at all."""
        self._unwatch()
        moving = True
        while moving and time.monotonic() < until and _ready(self._fd, select.POLLOUT, _PATIENCE_MS):
            moving = self._flush()
        self.dropped += self.waiting
        self._waiting.clear()

    def _writable(self) -> None:
        moved = self._flush()
        if not self._waiting:
            self._unwatch()
            if self._on_room is not None:
                self._on_room()
        elif not moved:
            # poll(2) calls a terminal writable that has too little room for what write(2) makes of a newline.
            self._unwatch()
            self._later = self._loop.call_later(_STALLED_S, self._watch)

    def _flush(self) -> bool:
        """Pass on what fits; True if anything moved."""
        before = self.waiting
        try:
            with _never_stopped():
                while self._waiting and _ready(self._fd, select.POLLOUT):
                    del self._waiting[: os.write(self._fd, self._waiting[:_PIPE_BUF])]
        except BlockingIOError:
            pass
        except OSError:  # nobody reads any more
            self.dropped += self.waiting
            self._waiting.clear()
        return self.waiting < before

    def _watch(self) -> None:
        self._later = None
        self._loop.add_writer(self._fd, self._writable)
        self._watched = True

    def _unwatch(self) -> None:
        if self._later is not None:
            self._later.cancel()
        if self._watched and not self._loop.is_closed():
            self._loop.remove_writer(self._fd)
        self._watched, self._later = False, None


class _Input:
    """What is typed or piped in, on its way to the server; read only as fast as the server takes it.

    Args:
        loop: tells when there is something.
        fds: from `stdin` to `master`.
        keyboard: the user's terminal, if standard input is it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, fds: _Fds, keyboard: _Keyboard | None) -> None:
        self._loop, self._master, self._keyboard = loop, fds.master, keyboard
        self._fd = fds.stdin if keyboard is None else keyboard.fd
        self._keys = _Outlet(loop, fds.master, 2 * _KEYS, on_room=self.attend)
        # A terminal that does not control us is somebody else's: to read from it would be to steal.
        self._over = keyboard is None and os.isatty(fds.stdin)
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
        elif _ready(self._fd, select.POLLIN):
            self._read()
        if self._over or self._keys.waiting >= _KEYS:
            self.pause()
        else:
            self.attend()

    def _read(self) -> None:
        try:
            with _never_stopped():
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
        """What a user would type: after an unfinished line the first one only finishes it (termios(3), VEOF)."""
        veof: bytes = termios.tcgetattr(self._master)[6][termios.VEOF]
        return veof if self._last == b"\n" else veof * 2


class _Keyboard:
    """The user's terminal as a source of keys: its modes, and whose turn it is to change them.

    Args:
        fd: an own, non-blocking description of it. That of standard input is shared with other programs, which may
            take a key between our look and our read; making it non-blocking would reach them.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._before: list[Any] | None = None

    @classmethod
    def behind(cls, stdin: int) -> _Keyboard | None:
        """The terminal that controls us, if that is what standard input is."""
        if not _controls_us(stdin):
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

    def restore(self) -> None:
        """The modes that were found. In the background they are the shell's own by now, and stay."""
        before, self._before = self._before, None
        if before is not None and self.ours:
            try:
                self._set(before)
            except termios.error:  # hung up
                pass

    def _set(self, modes: list[Any]) -> None:
        with _never_stopped():
            termios.tcsetattr(self.fd, termios.TCSANOW, modes)  # the other ways wait until the output has gone


@contextmanager
def _never_stopped() -> Iterator[None]:
    """Should we be in the background after all, a read fails with EIO instead of stopping us, and the rest works.

    POSIX, General Terminal Interface, 11.1.4: so it is for a process that blocks SIGTTIN or SIGTTOU.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTIN, signal.SIGTTOU})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _never_blocking(stdout: int, owned: ExitStack) -> int:
    """A descriptor of a terminal that can be written to without waiting; anything else is good as it is.

    That of standard output is shared, with the shell among others, so its flags are not ours to set. Another user's
    terminal may be opened as /dev/tty alone (tty(4)); where nothing can be opened, the shared one has to do.
    """
    if not os.isatty(stdout):
        return stdout
    path = "/dev/tty" if _controls_us(stdout) else f"/proc/self/fd/{stdout}"
    try:
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return stdout
    owned.callback(os.close, fd)
    return fd


def _controls_us(fd: int) -> bool:
    try:
        os.tcgetpgrp(fd)  # fails with ENOTTY for every other terminal
    except OSError:
        return False
    return True


def _ready(fd: int, event: int, patience_ms: int = 0) -> bool:
    poller = select.poll()
    poller.register(fd, event)
    return bool(poller.poll(patience_ms))


def _size(*fds: int) -> tuple[int, int]:
    """Rows and columns of the first terminal among these that knows them."""
    for fd in fds:
        try:
            rows, columns = termios.tcgetwinsize(fd)
        except termios.error:
            continue
        if rows and columns:
            return rows, columns
    return _ROWS, _COLUMNS


def _plain_newlines(slave: int) -> None:
    """Let a line end with a newline alone, as in any other log; the user's terminal adds the carriage return itself.

    ONLRET has the kernel know that the cursor is in column 0 all the same, or tabs would be expanded wrongly.
    """
    modes = termios.tcgetattr(slave)
    modes[0] |= _IUTF8
    modes[1] = modes[1] & ~termios.ONLCR | termios.ONLRET
    termios.tcsetattr(slave, termios.TCSANOW, modes)
