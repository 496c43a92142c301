"""`supervise unit`: a unit file for systemd that does what the command line does, on standard output."""

from __future__ import annotations

import os
import pwd
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from supervise.report.private import is_secret
from supervise.report.unitfile import UnitFile, render
from supervise.report.unitwords import UnwritableError, is_reference
from supervise.runner import launch, plan
from supervise.runner.plan import Options
from supervise.text import HIDDEN, redact, settings

# Besides what engines themselves read: where programs, files and networks are to be found.
_PLACES = (
    "PATH", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "SUPERVISE_CONFIG",
    "SUPERVISE_STOP_TIMEOUT", "CONDA_PREFIX", "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY",
    "NO_PROXY", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE",
)  # fmt: skip
# A system unit has a state directory of systemd's making.
_NOT_OF_THE_SYSTEM = frozenset({"XDG_STATE_HOME"})
_PASSWORD = re.compile(r"://[^/@\s]*@")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def unit(command: Sequence[str], options: Options, given: Sequence[str], *, user: bool) -> int:
    """Print it.

    Args:
        command: the server's command line.
        options: what the user chose, understood.
        given: the same as it was written.
        user: for the service manager of a user.

    Returns:
        0.

    Raises:
        NotExecutableError: there is no such program here.
        ProfileError: a profile is damaged.
        UnwritableError: a unit file cannot say this, or must not.
    """
    env = os.environ
    program = os.path.abspath(launch.resolve(command[0], env))
    planned = plan.make(command, env, options)
    name = planned.need.run
    named = given if options.name is not None else ("--name", name, *given)
    known, withheld = _settings(env, user=user)
    text = render(
        UnitFile(
            run=name,
            user=user,
            account=_account(),
            supervise=ourselves(sys.argv, sys.orig_argv, sys.executable),
            options=tuple(named),
            command=(program, *command[1:]),
            secret=_secret(command, name, user=user),
            directory=os.getcwd(),
            env=known,
            withheld=withheld,
            slate_s=planned.options.slate_timeout_s,
            stop_s=planned.deadlines.attended().total_s,
            relaunches=options.restart is not None,
        )
    )
    sys.stdout.write(text)
    return 0


def ourselves(argv: Sequence[str], original: Sequence[str], python: str) -> tuple[str, ...]:
    """How we were started, so that systemd can do the same.

    Args:
        argv: sys.argv.
        original: sys.orig_argv.
        python: sys.executable.
    """
    script = os.path.abspath(argv[0])
    if os.path.basename(script) == "supervise" and os.access(script, os.X_OK):
        return (script,)
    return (python, *original[1 : len(original) - len(argv) + 1])


def _account() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def _secret(command: Sequence[str], name: str, *, user: bool) -> frozenset[int]:
    """Which words are secret; each has to be a reference to a variable.

    Raises:
        UnwritableError: one is not.
    """
    found = frozenset(_hidden(command))
    for at in sorted(found):
        if not is_reference(command[at]):
            text = command[at]
            flag = text.partition("=")[0] if "=" in text and not _PASSWORD.search(text) else command[at - 1]
            where = f"{'~/.config' if user else '/etc'}/supervise/{name}.env"
            raise UnwritableError(
                f"{flag} has a secret, and everybody can read a unit: write '${{API_KEY}}' in its place, quoted, and "
                f"API_KEY=… into {where}"
            )
    return found


def _hidden(command: Sequence[str]) -> Iterator[int]:
    """Indexes of words that are secret: a flag ends the values of the one before it."""
    starts = [0, *(at for at, text in enumerate(command) if at and text.startswith("-")), len(command)]
    for start, end in pairwise(starts):
        shown = redact(command[start:end])
        yield from (at for at in range(start, end) if shown[at - start] != command[at] or is_secret(command[at]))


def _settings(env: Mapping[str, str], *, user: bool) -> tuple[dict[str, str], tuple[str, ...]]:
    """The variables that matter, and the names of those that are secret."""
    known, withheld = {}, []
    for name, value in _matters(env, user=user):
        if value == HIDDEN or _PASSWORD.search(value):
            withheld.append(name)
        elif _can_be_said(name, value):
            known[name] = value
    return known, tuple(withheld)


def _matters(env: Mapping[str, str], *, user: bool) -> Iterator[tuple[str, str]]:
    yield from ((name, value) for name, value in settings(env).items() if _NAME.fullmatch(name))
    for name in _PLACES:
        if name in env and (user or name not in _NOT_OF_THE_SYSTEM):
            yield name, env[name]


def _can_be_said(name: str, value: str) -> bool:
    """systemd drops a variable with control characters (systemd.exec(5), Environment=)."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return _NAME.fullmatch(name) is not None and not any((ord(c) < 32 and c != "\t") or ord(c) == 127 for c in value)
