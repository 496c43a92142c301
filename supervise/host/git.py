"""The door to git: what a working tree has that its last commit has not; no hook is run, nothing is written.

Git itself refuses the repository of another user, so what its attributes may run (filters) is its owner's own.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from supervise.host import program

_DEADLINE_S = 5.0
# No monitor and no hook that the repository names, and no lock taken from somebody who works in it (git-config(1)).
_SAFE = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.untrackedCache=false")
_STATUS = ("status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=normal", "--ignore-submodules=dirty")


class GitError(Exception):
    """There is no answer; the message is one phrase that says why."""


@dataclass(frozen=True, slots=True)
class GitState:
    """A directory in a working tree: short hash of HEAD, and names below it, relative to the top of the tree."""

    directory: str
    head: str
    changed: tuple[str, ...] = ()
    untracked: tuple[str, ...] = ()


def state(directory: str, below: str = ".") -> GitState:
    """What is changed or untracked below a directory.

    Args:
        directory: absolute.
        below: what of it is meant; relative to it.

    Returns:
        Its state; blocking, at most about five seconds.

    Raises:
        GitError: no git, no repository, one of another user (git refuses it), one that ignores this directory (as that
            of a project does with its virtual environment), too late.
    """
    deadline = time.monotonic() + _DEADLINE_S
    head = _run(directory, ("rev-parse", "--short", "HEAD"), deadline).strip()
    changed: list[str] = []
    untracked: list[str] = []
    for entry in _run(directory, (*_STATUS, "--", below), deadline).split("\0"):
        if entry:
            (untracked if entry.startswith("??") else changed).append(entry[3:])
    if not untracked and not _run(directory, ("ls-files", "--", below), deadline):
        raise GitError("which no git repository tracks")
    return GitState(directory, head, tuple(changed), tuple(untracked))


def _run(directory: str, words: tuple[str, ...], deadline: float) -> str:
    """What git printed.

    Its exit status proves nothing where a supervise that reaps all its children may have taken it before we can: an
    answer without complaint is one.
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    try:
        answer = program.ask(["git", *_SAFE, "-C", directory, *words], deadline - time.monotonic(), env=env)
    except TimeoutError:
        raise GitError(f"git did not answer in {_DEADLINE_S:.0f} s") from None
    except OSError as error:
        raise GitError(f"git cannot be started ({error.strerror})") from None
    if answer.status or "fatal:" in answer.complaint:
        raise GitError(_phrase(answer.complaint))
    return answer.printed


def _phrase(complaint: str) -> str:
    """Its first fatal line, in fewer words where everybody knows it."""
    lines = [line.removeprefix("fatal: ") for line in complaint.splitlines() if line.startswith("fatal: ")]
    if lines and lines[0].startswith("not a git repository"):
        return "no git repository"
    return f"git: {lines[0]}" if lines else "git failed without a word"
