"""The door to files that somebody works on: looked at as a whole, so that two looks tell whether one has changed."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

MOST = 10_000
"""Files and directories that are looked at: some 0.1 s."""
LARGEST = 8 * 1024 * 1024
"""Bytes of a file whose content is compared; of a larger one, only its state is."""

SUFFIXES = (
    *(".py", ".pyx", ".so", ".cu", ".cuh"),
    *(".json", ".yaml", ".yml", ".toml", ".ini", ".cfg"),
    *(".jinja", ".jinja2", ".j2"),
)
"""Of files below a directory: code, settings, profiles and templates, nothing that a server writes as it runs."""

_LEFT_OUT = ("__pycache__", "node_modules")
# Emacs and its checkers leave copies of what is edited beside it: #x.py#, x.py~, flycheck_x.py, x_flymake.py.
_COPIES = ("flycheck_", "flymake_", "#")
_COPIED = ("~", "#", "_flymake.py")
# The kernel stamps files with a clock that ticks every 1 to 10 ms: a second change within a tick shows in no stamp.
_TICK_NS = 50_000_000

State = tuple[int, int, int, int]


class Look(NamedTuple):
    """What is there, by path: size in bytes, time of change in ns, inode, time of modification in ns.

    `cut` says whether there is more of it. `fresh` are files which have changed so shortly before that a later change
    may leave the same state.
    """

    files: dict[str, State]
    cut: bool
    fresh: frozenset[str] = frozenset()


def look(paths: Iterable[str], but: str | None = None, most: int = MOST) -> Look:
    """Look at files, and at those in directories that count; blocking.

    Links to directories are followed only where one is named itself.

    Args:
        paths: absolute; what is not there is not in it.
        but: a directory of our own, which changes all the time.
        most: how much is looked at.
    """
    files: dict[str, State] = {}
    began_ns, fresh = time.time_ns(), set()
    ours = _identity(but)
    left = most
    pending = [(path, os.path.isdir(path)) for path in reversed(list(paths)) if _identity(path) != ours]
    while pending and left > 0:
        (path, is_directory), left = pending.pop(), left - 1
        if is_directory:
            # One that has as many names as we look at is not looked at to its end either.
            pending += sorted(islice(_within(path, ours), left + 1), reverse=True)
            continue
        try:
            state = os.stat(path)
        except OSError:
            continue
        files[path] = _state(state)
        if state.st_ctime_ns > began_ns - _TICK_NS:
            fresh.add(path)
    return Look(files, bool(pending), frozenset(fresh))


def counts(name: str) -> bool:
    """Whether a change of a file of this name, below a directory, is one of what somebody works on."""
    return name.endswith(SUFFIXES) and not is_hidden(name)


def is_hidden(name: str) -> bool:
    """Whether neither a file nor a directory of this name counts: what editors, tools and interpreters put there."""
    return name.startswith((".", *_COPIES)) or name.endswith(_COPIED) or name in _LEFT_OUT


def digest(path: str, state: State) -> str | None:
    """The SHA-256 of a file, in hex; blocking.

    Args:
        path: its path.
        state: as it was looked at.

    Returns:
        None if it is not as it was any more, is too large, or cannot be read.
    """
    if state[0] > LARGEST:
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            before = os.fstat(descriptor)
            if not stat.S_ISREG(before.st_mode) or _state(before) != state:
                return None
            content = file.read(LARGEST + 1)
            return hashlib.sha256(content).hexdigest() if _state(os.fstat(descriptor)) == state else None
    except OSError:
        return None


def content_of(state: State) -> tuple[int, ...]:
    """What of a state is another one when the content is: not after chmod(1), and not for who sets times back."""
    return (state[0], *state[2:])


def _state(state: os.stat_result) -> State:
    # The time of change, which nobody can set: of a file that is copied with its times, too.
    return (state.st_size, state.st_ctime_ns, state.st_ino, state.st_mtime_ns)


def _within(directory: str, ours: tuple[int, int] | None) -> Iterator[tuple[str, bool]]:
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if is_hidden(entry.name):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if ours is None or _identity(entry.path) != ours:
                        yield entry.path, True
                elif counts(entry.name) and not (entry.is_symlink() and entry.is_dir()):
                    yield entry.path, False
    except OSError:
        return


def _identity(path: str | None) -> tuple[int, int] | None:
    """None for what is not there; nothing else has it but another name of the same."""
    try:
        state = os.stat(path) if path is not None else None
    except OSError:
        return None
    return (state.st_dev, state.st_ino) if state is not None else None
