"""The door to files that somebody works on: looked at as a whole, so that two looks tell whether one has changed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

MOST = 10_000
"""Files and directories that are looked at: some 0.1 s."""

_LEFT_OUT = ("__pycache__",)


class Look(NamedTuple):
    """What is there: size in bytes, time of change in ns and inode by path; `cut` says whether there is more of it."""

    files: dict[str, tuple[int, int, int]]
    cut: bool


def look(paths: Iterable[str], but: str | None = None, most: int = MOST) -> Look:
    """Look at files, and at all files in directories; blocking.

    Below a directory hidden names and `__pycache__` are left out: what editors and interpreters put there is not what
    anybody works on. Links to directories are followed only where one is named itself.

    Args:
        paths: absolute; what is not there is not in it.
        but: a directory of our own, which changes all the time.
        most: how much is looked at.
    """
    files: dict[str, tuple[int, int, int]] = {}
    ours = _identity(but)
    left = most
    pending = [path for path in reversed(list(paths)) if _identity(path) != ours]
    while pending and left > 0:
        path, left = pending.pop(), left - 1
        if os.path.isdir(path):
            # One that has as many names as we look at is not looked at to its end either.
            pending += sorted(islice(_within(path, ours), left + 1), reverse=True)
            continue
        try:
            state = os.stat(path)
        except OSError:
            continue
        files[path] = (state.st_size, state.st_mtime_ns, state.st_ino)
    return Look(files, cut=bool(pending))


def _within(directory: str, ours: tuple[int, int] | None) -> Iterator[str]:
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.name.startswith(".") or entry.name in _LEFT_OUT:
                    continue
                if entry.is_dir() and (entry.is_symlink() or _identity(entry.path) == ours):
                    continue
                yield entry.path
    except OSError:
        return


def _identity(path: str | None) -> tuple[int, int] | None:
    """None for what is not there; nothing else has it but another name of the same."""
    try:
        state = os.stat(path) if path is not None else None
    except OSError:
        return None
    return (state.st_dev, state.st_ino) if state is not None else None
