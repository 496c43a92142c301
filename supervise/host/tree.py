"""The door through which a whole directory of ours is emptied: nothing is entered that is not the directory's own.

Users mount things below the directory for temporary files, and what is mounted there is theirs. A bind mount shows
another place of the same device, so that st_dev alone does not tell; the kernel's list of mounts does (proc(5),
mountinfo), and so does the number of the mount that a descriptor was opened through (proc(5), fdinfo).
"""

from __future__ import annotations

import contextlib
import os
from typing import NamedTuple

from supervise.host import mounts
from supervise.model.litter import FileId

_ENTER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class _Place(NamedTuple):
    """Where a directory lies: its mount and its device."""

    mount: bytes
    device: int


class _Level(NamedTuple):
    """A directory on the way down: its name in the one above, its identity, and what is still to be entered in it."""

    name: str
    file: FileId
    below: list[str]


def mounts_at(path: str) -> tuple[str, ...]:
    """Whatever is mounted at a directory or below it, in our mount namespace. The directory itself is not looked at.

    Args:
        path: absolute, its last part no link.

    Returns:
        The mount points.

    Raises:
        OSError: they cannot be listed.
    """
    real = os.fsencode(os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path)))
    points = (mount.point for mount in mounts.listed())
    return tuple(os.fsdecode(point) for point in points if point == real or point.startswith(real + b"/"))


def empty(top: int, *, but: str) -> bool:
    """Remove all that is in a directory, as far as it may be removed, and nothing that is not on its mount.

    However deep it is: neither the depth of calls nor the number of descriptors grows with it.

    Args:
        top: a descriptor of the directory.
        but: the name in it that stays.

    Returns:
        Whether nothing but that is in it now. It ends at once, with the rest left, where it meets another mount or
        device, or a directory that is being moved.

    Raises:
        OSError: a directory cannot be looked at.
    """
    home = _place(top)
    current = os.dup(top)
    levels = [_Level("", _identity(current), _strip(current, but))]
    try:
        while levels:
            if levels[-1].below:
                name = levels[-1].below.pop()
                below = _enter(name, current)
                if below is None:
                    continue
                os.close(current)
                current = below
                if _place(current) != home:
                    return False
                levels.append(_Level(name, _identity(current), _strip(current)))
                continue
            done = levels.pop()
            if levels:
                current = _climb(current)
                if _identity(current) != levels[-1].file:
                    return False
                with contextlib.suppress(OSError):
                    os.rmdir(done.name, dir_fd=current)
    finally:
        os.close(current)
    return os.listdir(top) == [but]


def _strip(directory: int, but: str | None = None) -> list[str]:
    """Remove the names in a directory that are none of directories; returns those that are."""
    below = []
    with os.scandir(directory) as entries:
        found = list(entries)
    for entry in found:
        if entry.is_dir(follow_symlinks=False):
            below.append(entry.name)
        elif entry.name != but:
            with contextlib.suppress(OSError):
                os.unlink(entry.name, dir_fd=directory)
    return below


def _enter(name: str, directory: int) -> int | None:
    """A descriptor of a directory in another; None for one that may not be read, which goes if it is empty."""
    try:
        return os.open(name, _ENTER, dir_fd=directory)
    except OSError:
        with contextlib.suppress(OSError):
            os.rmdir(name, dir_fd=directory)
        return None


def _climb(directory: int) -> int:
    """Exchange the descriptor of a directory for that of the one above."""
    above = os.open("..", _ENTER, dir_fd=directory)
    os.close(directory)
    return above


def _place(directory: int) -> _Place:
    with open(f"/proc/self/fdinfo/{directory}", "rb") as file:
        mount = next(line for line in file.read().splitlines() if line.startswith(b"mnt_id:"))
    return _Place(mount, os.fstat(directory).st_dev)


def _identity(directory: int) -> FileId:
    state = os.fstat(directory)
    return FileId(state.st_dev, state.st_ino)
