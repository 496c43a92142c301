"""The door to terminals: written and read so that none of them ever stops us or makes us wait."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

_ROWS, _COLUMNS = 24, 80
_LOOK_EVERY_MS = 200
_LONGEST_LINE = 4096
_PIPE_BUF = 4096  # a pipe that poll(2) calls writable takes as much without blocking (pipe(7)); no terminal does
_IUTF8 = 0o40000  # ioctl_tty(2), TCSETS: backspace takes away a character, not a byte; Python has no name for it


@contextlib.contextmanager
def never_stopped() -> Iterator[None]:
    """Should we be in the background after all, a read fails with EIO instead of stopping us, and the rest works.

    POSIX, General Terminal Interface, 11.1.4: so it is for a process that blocks SIGTTIN or SIGTTOU.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTIN, signal.SIGTTOU})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def never_blocking(stdout: int, owned: ExitStack) -> int:
    """A descriptor of a terminal that can be written to without waiting; anything else is good as it is.

    That of standard output is shared, with the shell among others, so its flags are not ours to set. Another user's
    terminal may be opened as /dev/tty alone (tty(4)); where nothing can be opened, the shared one has to do.
    """
    if not os.isatty(stdout):
        return stdout
    path = "/dev/tty" if controls_us(stdout) else f"/proc/self/fd/{stdout}"
    try:
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return stdout
    owned.callback(os.close, fd)
    return fd


def controls_us(fd: int) -> bool:
    """Whether this is our controlling terminal."""
    try:
        os.tcgetpgrp(fd)  # fails with ENOTTY for every other terminal
    except OSError:
        return False
    return True


def ready(fd: int, event: int, patience_ms: int = 0) -> bool:
    """Whether poll(2) reports this event, or a hang-up, within so many milliseconds."""
    poller = select.poll()
    poller.register(fd, event)
    return bool(poller.poll(patience_ms))


def pass_on(fd: int, waiting: bytearray) -> None:
    """Write what a reader takes now; what it does not take stays.

    Args:
        fd: where to; a terminal must be a non-blocking description.
        waiting: the bytes; those that have gone are removed.

    Raises:
        OSError: nobody reads any more.
    """
    with contextlib.suppress(BlockingIOError), never_stopped():
        while waiting and ready(fd, select.POLLOUT):
            del waiting[: os.write(fd, waiting[:_PIPE_BUF])]


def in_foreground(fd: int) -> bool:
    """Whether this is a terminal whose keys we are given (tcgetpgrp(3)): from the background nobody can be asked."""
    try:
        return os.isatty(fd) and os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return False


def read_line(fd: int, within_s: float, cancelled: Callable[[], bool]) -> str | None:
    """One line from a terminal, None if none comes in time, the terminal closes, or it is called off.

    Args:
        fd: the terminal.
        within_s: how long to wait, in seconds.
        cancelled: asked five times a second.
    """
    until = time.monotonic() + within_s
    while time.monotonic() < until and not cancelled():
        if not ready(fd, select.POLLIN, _LOOK_EVERY_MS):
            continue
        try:
            data = os.read(fd, _LONGEST_LINE)
        except OSError:
            return None
        return data.decode(errors="replace").strip() if data else None
    return None


def size(*fds: int) -> tuple[int, int]:
    """Rows and columns of the first terminal among these that knows them."""
    for fd in fds:
        try:
            rows, columns = termios.tcgetwinsize(fd)
        except termios.error:
            continue
        if rows and columns:
            return rows, columns
    return _ROWS, _COLUMNS


def plain_newlines(slave: int) -> None:
    """Let a line end with a newline alone, as in any other log; the user's terminal adds the carriage return itself.

    ONLRET has the kernel know that the cursor is in column 0 all the same, or tabs would be expanded wrongly.
    """
    modes = termios.tcgetattr(slave)
    modes[0] |= _IUTF8
    modes[1] = modes[1] & ~termios.ONLCR | termios.ONLRET
    termios.tcsetattr(slave, termios.TCSANOW, modes)
