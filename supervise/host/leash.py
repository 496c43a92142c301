"""The other end of `supervise -H`: how a supervise learns that whoever has started it over ssh is not there any more.

A terminal hangs up, which is a SIGHUP. Without one sshd closes our standard input and tells us nothing: so that is a
leash. Whoever holds its other end writes a line every few seconds, or the name of a signal. Its end, and silence, are a
hang-up.
"""

from __future__ import annotations

import _thread
import os
import select
import signal
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from supervise import __version__

FLAG = "--over-ssh="
"""The hidden word that comes first where we are started over ssh."""

BEAT = b"beat"
WORDS: Mapping[bytes, int] = {
    b"INT": signal.SIGINT,
    b"TERM": signal.SIGTERM,
    b"HUP": signal.SIGHUP,
    b"QUIT": signal.SIGQUIT,
}
"""What is said on a leash: signals that the other side got."""

_LONGEST = 4096


class Told(NamedTuple):
    """What the other side tells of itself.

    Attributes:
        silence_s: how long it may say nothing, in seconds; None where there is no leash.
        version: of its supervise.
        host: what it calls this machine; its words for ssh.
    """

    silence_s: float | None
    version: str
    host: str

    @property
    def flag(self) -> str:
        """As the first word of a command line."""
        return f"{FLAG}{'' if self.silence_s is None else f'{self.silence_s:g}'},{self.version},{self.host}"

    @classmethod
    def read(cls, flag: str) -> Told | None:
        """The same from that word; None if it is none."""
        silence, version, host = [*flag.removeprefix(FLAG).split(",", 2), "", ""][:3]
        try:
            silence_s = float(silence) if silence else None
        except ValueError:
            return None
        return cls(silence_s, version, host) if version and host and (silence_s is None or silence_s > 0) else None


class _Here:
    """This process, as it was started: there is one.

    Attributes:
        told: by whoever has started it over ssh; None if nobody has.
        leash: the descriptor of the leash, None if there is none.
    """

    told: Told | None = None
    leash: int | None = None


def begin(told: Told) -> str | None:
    """Take what was standard input for a leash, if it is one; standard input is empty from here on.

    Args:
        told: by the other side.

    Returns:
        What there is to say about it, if there is anything.

    Raises:
        RuntimeError: no thread can be started.
    """
    _Here.told = told
    # A hang-up that is ignored, as under nohup, would leave us here for ever: staying is asked for with -d.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if told.silence_s is not None:
        _Here.leash = os.dup(0)
        _to_null(0)
        _thread.start_new_thread(Leash(_Here.leash, told.silence_s, _signal_all).watch, ())
    if told.version != __version__:
        return f"supervise is {__version__} on {told.host}, {told.version} where it was called"
    return None


def called() -> str:
    """How supervise is called by whoever reads what we say: with -H where that is over ssh."""
    return "supervise" if _Here.told is None else f"supervise -H {_Here.told.host}"


def pass_on() -> None:
    """Before exec: whoever we become takes up the leash as we did."""
    if _Here.leash is not None:
        os.dup2(_Here.leash, 0)


class Leash:
    """Listens until there is nothing more to be heard.

    Args:
        fd: the leash.
        silence_s: how long nothing may be said, in seconds.
        signalled: told of each signal.
    """

    def __init__(self, fd: int, silence_s: float, signalled: Callable[[int], object]) -> None:
        self._fd, self._silence_s, self._signalled = fd, silence_s, signalled
        self._heard = b""

    def watch(self) -> None:
        """Until it is cut, or nobody has said anything for too long."""
        until = time.monotonic() + self._silence_s
        # Whoever was suspended for long looks first at what was said meanwhile.
        while select.select([self._fd], [], [], max(0.0, until - time.monotonic()))[0]:
            if not self._hear():
                break
            until = time.monotonic() + self._silence_s
        self._signalled(signal.SIGHUP)

    def _hear(self) -> bool:
        try:
            said = os.read(self._fd, _LONGEST)
        except OSError:
            return False
        *lines, rest = (self._heard + said).split(b"\n")
        self._heard = rest[-_LONGEST:]
        for line in lines:
            if (signum := WORDS.get(line)) is not None:
                self._signalled(signum)
        return bool(said)


def _signal_all(signum: int) -> None:
    """As a terminal would: whatever was started in our process group is meant as well.

    Where we are not in one of our own, nor in that of the shell which has started us, only we are.
    """
    if os.getpgrp() in (os.getpid(), os.getppid()):
        os.killpg(os.getpgrp(), signum)
    else:
        os.kill(os.getpid(), signum)


def _to_null(fd: int) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, fd)
    os.close(null)
