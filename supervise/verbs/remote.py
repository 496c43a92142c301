"""`supervise -H HOST …`: the same words, carried out by the supervise of another host, over the user's own ssh."""

from __future__ import annotations

import array
import fcntl
import math
import os
import shlex
import signal
import termios
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from supervise import __version__
from supervise.host import signals, ssh
from supervise.host.leash import BEAT, WORDS, Told
from supervise.model.exits import Exit
from supervise.verbs.select import say

PROGRAM = "SUPERVISE_REMOTE"
"""The variable with the supervise to use over there, as a shell would read it: `/opt/venv/bin/supervise`."""

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
_PACKAGE = f"supervise-llm=={__version__}"
_INSTALLERS = (("uv", f"uv tool install {_PACKAGE}"), ("pipx", f"pipx install {_PACKAGE}"))
# Works where pip may not touch what the distribution has installed (PEP 668).
_ANYWHERE = (
    "python3 -m venv ~/.local/supervise && "
    f"~/.local/supervise/bin/pip install {_PACKAGE} && "
    "mkdir -p ~/.local/bin && ln -sf ~/.local/supervise/bin/supervise ~/.local/bin"
)
_SCRIPT = """\
w={program}
{otherwise}if ! command -v "$w" >/dev/null 2>&1; then
{missing}
exit {not_found}
fi
if [ -t 0 ]; then stty susp undef 2>/dev/null; else trap : HUP; fi
trap : INT QUIT TERM
"$w" {words}
s=$?
if [ $s = {lost} ]; then s={instead}; fi
exit $s"""


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
        say(f"supervise: {command[0]}: {error.strerror}; {ssh.COMMAND} names the ssh to use")
        return Exit.INTERNAL
    return _status(over, wanted)


def scripted(
    host: str, words: Sequence[str], program: Sequence[str], silence_s: float | None, command: Sequence[str]
) -> str:
    """What the other side's sh is to do: find supervise and have it do the same, and pass on how that ended.

    ssh tells a death by a signal as it tells a lost connection. So there is a shell which outlives every signal that
    means its child, and says 128+n. Only a terminal that hangs up tells nobody but whoever leads the session, which is
    that shell: the others are told by its end (setsid(2), NOTES).
    Nobody is there to continue what Ctrl-Z stops, so that key means nothing.

    Args:
        host: as the user names it.
        words: for the other supervise.
        program: that one, and its first words; none for the one on the PATH.
        silence_s: how long it is to wait for a sign of ours, in seconds; None where there is no leash.
        command: the user's ssh, for what is told.
    """
    first, *more = program or ["supervise"]
    found = f'"$HOME"/{shlex.quote(first[2:])}' if first.startswith("~/") else shlex.quote(first)
    return _SCRIPT.format(
        program=found,
        # What pipx, uv and pip install for a user is not on the PATH of a command over ssh, as a rule.
        otherwise="" if program else 'command -v supervise >/dev/null 2>&1 || w="$HOME"/.local/bin/supervise\n',
        missing=_missing(host, first, command, named=bool(program)),
        not_found=int(Exit.NOT_FOUND),
        words=shlex.join([*more, Told(silence_s, __version__, host).flag, *words]),
        lost=ssh.LOST,
        instead=ssh.LOST - 1,
    )


def _missing(host: str, first: str, command: Sequence[str], *, named: bool) -> str:
    """The part that says that there is no supervise, and what installs it with what there is."""
    if named:
        return _said(f"supervise: {host} has no {first}, which {PROGRAM} names")
    told = f"supervise: {host} has no supervise on its PATH, nor in ~/.local/bin; this installs it: "

    def line(install: str) -> str:
        return _said(told + shlex.join([*command, host, install]))

    tests = [f"if command -v {program} >/dev/null 2>&1; then {line(install)}" for program, install in _INSTALLERS]
    return "\nel".join([*tests, f"se {line(_ANYWHERE)}\nfi"])


def _said(text: str) -> str:
    return f"printf '%s\\n' {shlex.quote(text)} >&2"


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
    pid = ssh.start(line, None, signal.pthread_sigmask(signal.SIG_BLOCK, ()))
    asking = _asking()
    signal.pthread_sigmask(signal.SIG_BLOCK, {*asking, signal.SIGCHLD})
    asked = None
    while (status := ssh.ended(pid)) is None:
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
    kept = signal.pthread_sigmask(signal.SIG_BLOCK, set(asking) - {signal.SIGTERM})
    # A Ctrl-C is ours alone to hear. SIGTERM ends ssh, also while it asks for a password.
    pid = ssh.start(line, reading, kept | (set(asking) - {signal.SIGTERM}))
    os.close(reading)
    signal.pthread_sigmask(signal.SIG_BLOCK, {*asking, signal.SIGCHLD})
    asked: list[int] = []
    while (status := ssh.ended(pid)) is None:
        told = signal.sigtimedwait({*asking, signal.SIGCHLD}, beat_s)
        if told is None:
            leash.say(BEAT)
        elif told.si_signo != signal.SIGCHLD:
            asked.append(told.si_signo)
            if len(asked) > _PATIENCE or not leash.begun:
                os.kill(pid, signal.SIGTERM)
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
