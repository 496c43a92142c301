"""`supervise -H HOST …`: the same words, carried out by the supervise of another host, over the user's own ssh."""

from __future__ import annotations

import array
import errno
import fcntl
import math
import os
import signal
import termios
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from supervise.host import signals, ssh
from supervise.host.leash import BEAT, WORDS
from supervise.model.exits import Exit
from supervise.verbs.over_there import PROGRAM, scripted
from supervise.verbs.select import say

SILENCE = "SUPERVISE_LEASH"
"""The variable with how many seconds nothing may be heard of us over there before it is taken for a hang-up."""

_SILENCE_S = 60.0
_BEATS = 12
# Whoever asks so often does not want to wait for what the other side still has to say.
_PATIENCE = 2
_LAUNCHING = ("run", "demo", "try", "replay")
# They are over soon; `explain` reads what is piped in.
_BRIEF = (
    "completion", "diff", "explain", "healthcheck", "history", "profiles", "report", "stop", "unit", "--help", "-h",
    "--version",
)  # fmt: skip
_OTHERS = ("attach", "clean", "logs", "restart", "status", "wait")


class _Wanted(NamedTuple):
    """What is asked for, and of whom.

    Attributes:
        host: as the user has named it.
        words: for the supervise over there.
        program: that supervise, and its first words.
        silence_s: how long it is to wait for a sign of ours, in seconds; None where it need not.
    """

    host: str
    words: Sequence[str]
    program: Sequence[str]
    silence_s: float | None

    @property
    def launches(self) -> bool:
        """Whether something may be left over there."""
        first = self.words[0] if self.words else "--help"
        return first in _LAUNCHING or first not in (*_BRIEF, *_OTHERS)


class _Over(NamedTuple):
    """How ssh has ended.

    Attributes:
        status: its exit status, -n for a signal.
        begun: whether anything has begun over there; None if nobody knows.
        asked: the first signal that meant us to end; None if there was none.
    """

    status: int
    begun: bool | None
    asked: int | None


def remote(host: str, words: Sequence[str]) -> int:
    """Have it done over there; terminal, output and exit status are those of the other side.

    Args:
        host: as the user names it to ssh.
        words: those for the other supervise.

    Returns:
        The exit status over there; 128+n if it died of a signal, 254 for 255; 127 if there is no supervise, 125 if
        there is no connection or none any more, 2 for a mistake in our variables.
    """
    try:
        command = ssh.command(os.environ)
        terminal = all(map(os.isatty, (0, 1, 2)))
        silence_s = None if terminal else _silence_s(words, os.environ)
        wanted = _Wanted(host, words, ssh.words(os.environ, PROGRAM), silence_s)
    except ValueError as error:
        say(f"supervise: {error}")
        return Exit.USAGE
    script = scripted(wanted.host, wanted.words, wanted.program, wanted.silence_s, command)
    line = [*command, *ssh.watchful(command, host), "-t" if terminal else "-T", "--", host, ssh.for_any_shell(script)]
    try:
        over = _look_on(line) if wanted.silence_s is None else _hold(line, wanted.silence_s / _BEATS)
    except OSError as error:
        known = {errno.E2BIG: "these words are too long for ssh"}
        hint = known.get(error.errno or 0, f"{ssh.COMMAND} names the ssh to use")
        say(f"supervise: {command[0]}: {error.strerror}; {hint}")
        return Exit.INTERNAL
    return _status(over, wanted)


def _silence_s(words: Sequence[str], env: Mapping[str, str]) -> float | None:
    """How long nothing may be heard of us; None for what needs no leash.

    Raises:
        ValueError: the user's variable says nothing that could be meant.
    """
    if not words or words[0] in _BRIEF:
        return None
    said = env.get(SILENCE, "")
    try:
        silence_s = float(said) if said else _SILENCE_S
    except ValueError:
        silence_s = math.nan
    if not 1 <= silence_s <= 86400:
        raise ValueError(f"{SILENCE}={said}: use seconds, 1 to 86400")
    return silence_s


def _look_on(line: Sequence[str]) -> _Over:
    """Share our streams with ssh, and the keys with it: on a terminal they go to the other side."""
    terminal = ssh.on_terminal()
    pid = ssh.start(line, None, signal.pthread_sigmask(signal.SIG_BLOCK, ()))
    asking = _asking()
    signal.pthread_sigmask(signal.SIG_BLOCK, {*asking, signal.SIGCHLD})
    asked = None
    while (status := ssh.ended(pid, alike=terminal)) is None:
        signum = signal.sigwait({*asking, signal.SIGCHLD})
        if signum != signal.SIGCHLD:
            asked = asked or signum
        # The keys have reached ssh itself.
        if signum in (signal.SIGTERM, signal.SIGHUP):
            os.kill(pid, signal.SIGTERM)
    return _Over(status, None, asked)


def _hold(line: Sequence[str], beat_s: float) -> _Over:
    """Hold the other side on a leash, and tell it of our signals: what it says at its end is still to arrive."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    leash = _Leash(writing)
    asking = _asking()
    kept = signal.pthread_sigmask(signal.SIG_BLOCK, set(asking))
    # A Ctrl-C, and the SIGTERM that timeout(1) or a service manager has for the whole group, are ours alone to hear.
    terminal = ssh.on_terminal()
    pid = ssh.start(line, reading, kept | set(asking) if terminal else kept, apart=not terminal)
    os.close(reading)
    signal.pthread_sigmask(signal.SIG_BLOCK, {*asking, signal.SIGCHLD})
    asked: list[int] = []
    while (status := ssh.ended(pid, alike=terminal)) is None:
        told = signal.sigtimedwait({*asking, signal.SIGCHLD}, beat_s)
        if told is None:
            leash.say(BEAT)
        elif told.si_signo != signal.SIGCHLD:
            asked.append(told.si_signo)
            if len(asked) > _PATIENCE or not leash.begun:
                # The second is what ssh hears as well, also at a password, whose echo it turns on again then
                # (readpassphrase(3)).
                os.kill(pid, signal.SIGALRM if terminal else signal.SIGTERM)
            leash.say(next(word for word, signum in WORDS.items() if signum == told.si_signo))
    return _Over(status, leash.begun, asked[0] if asked else None)


def _asking() -> list[int]:
    """Signals that mean us to end; those that we inherited as ignored stay ignored."""
    return [signum for signum in WORDS.values() if signal.getsignal(signum) is not signal.SIG_IGN]


class _Leash:
    """Our end of the leash.

    Args:
        fd: a pipe that never blocks; ssh reads from it once there is somebody to give it to.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._begun = False
        self._said = 0
        self.say(BEAT)

    @property
    def begun(self) -> bool:
        """Whether something of what was said has been taken."""
        if not self._begun:
            left = array.array("i", [0])
            fcntl.ioctl(self._fd, termios.FIONREAD, left)
            self._begun = left[0] < self._said
        return self._begun

    def say(self, word: bytes) -> None:
        """Say it; where nobody takes anything any more there is nobody to say it to."""
        try:
            self._said += os.write(self._fd, word + b"\n")
        except (BlockingIOError, BrokenPipeError):
            pass


def _status(over: _Over, wanted: _Wanted) -> int:
    """The exit status, with a line where nobody on the other side could say what is the matter."""
    if over.status >= 0 and over.status != ssh.LOST:
        return over.status
    if over.asked is None or wanted.launches:
        _tell(over, wanted)
    return 128 + over.asked if over.asked else Exit.INTERNAL


def _tell(over: _Over, wanted: _Wanted) -> None:
    host = wanted.host
    how = f"ssh ended with {over.status}" if over.status > 0 else f"ssh died of {signals.name(-over.status)}"
    if over.begun is False:
        say(f"supervise: no connection to {host} came about ({how})")
        return
    told = f"the connection to {host} is lost" if over.begun else f"no connection to {host}, or none any more"
    after = ""
    if wanted.launches:
        within = "" if wanted.silence_s is None else f", within {wanted.silence_s:g} s"
        after = f": what was launched there ends{within}, unless with -d; see: supervise -H {host} status"
    say(f"supervise: {told} ({how}){after}")
