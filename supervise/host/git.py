"""The door to git: what a working tree has that its last commit has not; no hook is run, nothing is written.

Git itself refuses the repository of another user, so what its attributes may run (filters) is its owner's own.
"""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass

from supervise.host import program

_DEADLINE_S = 5.0
# No monitor and no hook that the repository names, and no lock taken from somebody who works in it (git-config(1)).
_SAFE = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.untrackedCache=false")
_STATUS = ("status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=normal", "--ignore-submodules=dirty")
_HASH = re.compile(r"[0-9a-f]{4,64}")


class GitError(Exception):
    """There is no answer; the message is one phrase that says why."""


@dataclass(frozen=True, slots=True)
class GitState:
    """A directory in a working tree: short hash of HEAD, and names below it, relative to the top of the tree.

    Of a directory in which nothing is tracked `untracked` has but the name, with a `/`. Those of `new` are among the
    changed ones: they have been added since the last commit.
    """

    directory: str
    head: str
    changed: tuple[str, ...] = ()
    untracked: tuple[str, ...] = ()
    new: frozenset[str] = frozenset()


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
    new: set[str] = set()
    for entry in _run(directory, (*_STATUS, "--", below), deadline).split("\0"):
        if entry:
            (untracked if entry.startswith("??") else changed).append(entry[3:])
            if entry[0] == "A":
                new.add(entry[3:])
    if not untracked and not _run(directory, ("ls-files", "--", below), deadline):
        raise GitError("which no git repository tracks")
    return GitState(directory, head, tuple(changed), tuple(untracked), frozenset(new))


def top(directory: str) -> str:
    """The directory that all names of its working tree are relative to; blocking.

    Raises:
        GitError: as of `state`.
    """
    return _run(directory, ("rev-parse", "--show-toplevel"), time.monotonic() + _DEADLINE_S).removesuffix("\n")


def untracked(directory: str, below: str = ".") -> list[str]:
    """Every untracked file below a directory that is not ignored, relative to the top of the tree; blocking.

    Raises:
        GitError: as of `state`.
    """
    words = ("ls-files", "--others", "--exclude-standard", "--full-name", "-z", "--", below)
    return [name for name in _run(directory, words, time.monotonic() + _DEADLINE_S).split("\0") if name]


def committed(directory: str, commit: str, path: str) -> bytes | None:
    """A file as a commit has it; None if it has none, or nobody can tell.

    Args:
        directory: in the working tree.
        commit: its hash, or the beginning of it.
        path: relative to the top of the tree.
    """
    if not _HASH.fullmatch(commit):
        return None
    try:
        printed = _run(directory, ("cat-file", "blob", f"{commit}:{path}"), time.monotonic() + _DEADLINE_S)
    except GitError:
        return None
    return printed.encode("utf-8", "surrogateescape")


def _run(directory: str, words: tuple[str, ...], deadline: float) -> str:
    """What git printed.

    Its exit status proves nothing where a supervise that reaps all its children may have taken it before we can: an
    answer without complaint is one.
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1", "LC_ALL": "C"}
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
