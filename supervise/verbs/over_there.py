"""What the sh of another host is to do for `supervise -H HOST …`: find supervise, have it do that, pass on its end."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from supervise import __version__
from supervise.host import ssh
from supervise.host.leash import Told
from supervise.model.exits import Exit
from supervise.verbs import installing

PROGRAM = "SUPERVISE_REMOTE"
"""The variable with the supervise to use over there, as a shell would read it: `/opt/venv/bin/supervise`."""

# A mistake on a command line is 2 for us and for click; 111 is what the supervise of daemontools ends with.
_SCRIPT = """\
w={program}
{otherwise}{telling}
if ! command -v "$w" >/dev/null 2>&1; then
tell {missing}
exit {not_found}
fi
if [ -t 0 ]; then stty susp undef 2>/dev/null; else trap : HUP; fi
trap : INT QUIT TERM
"$w" {words}
s=$?
case $s in
2|111) "$w" {known} </dev/null >/dev/null 2>&1 || [ $? != $s ] || tell {strange};;
{lost}) s={instead};;
esac
exit $s"""


def scripted(
    host: str,
    words: Sequence[str],
    program: Sequence[str],
    silence_s: float | None,
    command: Sequence[str],
    origin: installing.Source | None = None,
) -> str:
    """What the other side's sh is to do: find supervise and have it do the same, and pass on how that ended.

    ssh tells a death by a signal as it tells a lost connection. So there is a shell which outlives every signal that
    means its child, and says 128+n. Only a terminal that hangs up tells nobody but whoever leads the session, which is
    that shell: the others are told by its end (setsid(2), NOTES).
    Nobody is there to continue what Ctrl-Z stops, so that key means nothing.
    A supervise that refuses our flag even where nothing is asked for is none of ours, or is from before there was one.

    Args:
        host: as the user names it.
        words: for the other supervise.
        program: that one, and its first words; none for the one on the PATH.
        silence_s: how long it is to wait for a sign of ours, in seconds; None where there is no leash.
        command: the user's ssh, for what is told.
        origin: of this supervise, for what is told; None to have it looked up.
    """
    first, *more = program or ["supervise"]
    found = f'"$HOME"/{shlex.quote(first[2:])}' if first.startswith("~/") else shlex.quote(first)
    known = Told(None, __version__, host).flag
    return _SCRIPT.format(
        program=found,
        # What pipx, uv and pip install for a user is not on the PATH of a command over ssh, as a rule.
        otherwise="" if program else 'command -v supervise >/dev/null 2>&1 || w="$HOME"/.local/bin/supervise\n',
        telling=_telling(None if program else installing.lines(command, host, origin or installing.source())),
        missing=_missing(host, first, named=bool(program)),
        not_found=int(Exit.NOT_FOUND),
        words=shlex.join([*more, Told(silence_s, __version__, host).flag, *words]),
        known=shlex.join([*more, known, "--version"]),
        strange=_strange(host, named=bool(program)),
        lost=ssh.LOST,
        instead=ssh.LOST - 1,
    )


def _telling(remedies: Mapping[str, str] | None) -> str:
    """The part that knows how to say something, and what installs supervise with what there is."""
    if remedies is None:
        return "tell() { printf '%s\\n' \"$1\" >&2; }"
    which = [f"if command -v {by} >/dev/null 2>&1; then r={shlex.quote(remedies[by])}" for by in installing.INSTALLERS]
    chosen = "\nel".join([*which, f"se r={shlex.quote(remedies[''])}\nfi"])
    return f'tell() {{\n{chosen}\nprintf \'%s; %s\\n\' "$1" "$r" >&2\n}}'


def _missing(host: str, first: str, *, named: bool) -> str:
    told = f"{first}, which {PROGRAM} names" if named else "supervise on its PATH, nor in ~/.local/bin"
    return shlex.quote(f"supervise: {host} has no {told}")


def _strange(host: str, *, named: bool) -> str:
    other = f"; {PROGRAM} names it" if named else f" ({PROGRAM} names another)"
    said = f" does not know -H: it is too old, or not ours{other}"
    return shlex.quote(f"supervise: {host}: ") + '"$(command -v "$w")"' + shlex.quote(said)
