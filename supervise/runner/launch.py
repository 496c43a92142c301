"""From the user's command line to what is executed: the program, its environment, its private directory."""

from __future__ import annotations

import errno
import getpass
import os
import shutil
from collections.abc import Mapping

from supervise.host import procfs
from supervise.model.exits import Exit
from supervise.model.process import Marker

_STRIPPED_PREFIXES = ("WATCHDOG_", "LISTEN_", "SUPERVISE_")
_STRIPPED = frozenset({"NOTIFY_SOCKET", "JOURNAL_STREAM"})
# SPT_NOENV keeps setproctitle from wiping the environment, and our marker in it, from exactly the processes that one
# must find (FIELD.md A4). The other two make output arrive when it is written and a hang show its stacks.
_ALWAYS = {"SPT_NOENV": "1", "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}
# Where huggingface_hub looks for a token first (its constants.py and utils/_auth.py).
_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH")


class NotExecutableError(Exception):
    """The command cannot be started: exit status (126 or 127), the program, and one clear line."""

    def __init__(self, status: int, program: str, text: str) -> None:
        super().__init__(text)
        self.status, self.program, self.text = status, program, text


def resolve(program: str, env: Mapping[str, str]) -> str:
    """Find the executable as a shell would.

    Args:
        program: the first word of the command.
        env: the environment whose PATH counts.

    Returns:
        A path that may be executed.

    Raises:
        NotExecutableError: not found, or found and not executable.
    """
    if found := shutil.which(program, path=env.get("PATH", os.defpath)):
        return found
    if os.path.exists(program) and "/" in program:
        raise NotExecutableError(
            Exit.CANNOT_EXECUTE, program, f"{program}: not an executable file; check its mode with ls -l"
        )
    raise NotExecutableError(Exit.NOT_FOUND, program, f"{program}: command not found; check the spelling and PATH")


def explain_errno(program: str, code: int) -> str:
    """One line for an exec that the kernel refused."""
    hint = {
        errno.ENOEXEC: "no interpreter line (#!) and not a binary",
        errno.ENOENT: "its interpreter (the #! line) does not exist",
        errno.E2BIG: "arguments and environment are too large",
    }.get(code, os.strerror(code))
    return f"{program}: cannot execute: {hint}"


def environment(
    base: Mapping[str, str], marker: Marker, additions: Mapping[str, str], private: str | None
) -> dict[str, str]:
    """The server's environment: the user's, the marker, and what its profile adds unless the user has set it.

    Taken out is what was addressed to supervise alone (sd_notify(3), sd_watchdog_enabled(3), sd_listen_fds(3)).

    Args:
        base: the environment we were given.
        marker: the attempt's marker.
        additions: the profile's; `{dir}`, `{tmp}` and `{user}` are filled in.
        private: the attempt's private directory; without one, additions that mention it are left out.

    Returns:
        A complete environment.
    """
    env = {k: v for k, v in base.items() if k not in _STRIPPED and not k.startswith(_STRIPPED_PREFIXES)}
    values = {"dir": private or "", "tmp": base.get("TMPDIR", "/tmp"), "user": _user()}
    for name, template in additions.items():
        if (private or "{dir}" not in template) and (name == "TMPDIR" or name not in env):
            env[name] = template.format_map(values)
    for name, value in _ALWAYS.items():
        env.setdefault(name, value)
    if token := _token(base):
        env["HF_TOKEN_PATH"] = token
    if not _has_name():
        # torch names its caches after the user, and getpass knows no other way than this to be told (getpass.getuser).
        env.setdefault("USER", values["user"])
    env["SPT_NOENV"] = "1"
    env[procfs.MARKER_RUN] = marker.run
    env[procfs.MARKER_ATTEMPT] = str(marker.attempt)
    env[procfs.MARKER_ID] = marker.id
    return env


def _token(base: Mapping[str, str]) -> str | None:
    """systemd's credential HF_TOKEN, as the path that huggingface_hub reads it from; None if the user has set a token.

    Only the path is passed on: what is in the environment can be read by whoever may read /proc (systemd.exec(5)).
    """
    directory = base.get("CREDENTIALS_DIRECTORY")
    if not directory or any(map(base.get, _TOKENS)):
        return None
    paths = (os.path.join(directory, name) for name in ("HF_TOKEN", "hf_token"))
    return next((path for path in paths if os.path.isfile(path)), None)


def _has_name() -> bool:
    """Whether anybody can find out what our user is called; a container's uid often stands in no passwd."""
    try:
        getpass.getuser()
    except (OSError, KeyError):
        return False
    return True


def _user() -> str:
    return getpass.getuser() if _has_name() else str(os.geteuid())
