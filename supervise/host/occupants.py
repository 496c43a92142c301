"""The door to who is in a directory: processes with a file below it open or mapped, or that work in it.

By path as the kernel tells it, links resolved (proc(5): cwd, fd, maps). A container may have the directory elsewhere:
of a process in another mount namespace the place within the file system is compared (proc(5), mountinfo).
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from supervise.host import mounts
from supervise.host.usage import may_use


def below(directories: Collection[str], *, private: bool = False) -> tuple[dict[str, tuple[int, ...]], bool]:
    """Who is in these directories.

    Args:
        directories: absolute paths without links.
        private: whether only we ourselves may write to them: processes of others, which an ordinary user cannot read,
            then need not be.

    Returns:
        Pids for each directory that somebody is in, and whether every process was read that may be.
    """
    if not directories:
        return {}, True
    found: dict[str, list[int]] = defaultdict(list)
    known = True
    search = _Search(directories)
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            entered = search.entered_by(name)
        except OSError:
            known = known and not may_use(int(name), private=private)
            continue
        for directory in entered:
            found[directory].append(int(name))
    return {directory: tuple(pids) for directory, pids in found.items()}, known


class _Place(NamedTuple):
    """Where something is, whatever it is mounted as: device and path within the file system."""

    device: int
    path: bytes


class _Mount(NamedTuple):
    point: bytes
    place: _Place


class _Search:
    """The directories as each mount namespace has them."""

    def __init__(self, directories: Collection[str]) -> None:
        self._paths = {directory: _written(os.fsencode(directory)) for directory in directories}
        self._here = os.readlink("/proc/self/ns/mnt")
        here = _mounts("self")
        self._places = {directory: _place(path, here) for directory, path in self._paths.items()}
        self._mounts: dict[str, list[_Mount]] = {}

    def entered_by(self, pid: str) -> set[str]:
        """Which of them a process is in.

        Raises:
            OSError: it may not be read, or has ended.
        """
        inside = self._inside(pid)
        return {directory for path in set(_told(pid)) for directory in self._paths if inside(path, directory)}

    def _inside(self, pid: str) -> Callable[[bytes, str], bool]:
        namespace = os.readlink(f"/proc/{pid}/ns/mnt")
        if namespace == self._here:
            return lambda path, directory: _within(path, self._paths[directory])
        if namespace not in self._mounts:
            self._mounts[namespace] = _mounts(pid)
        table = self._mounts[namespace]
        return lambda path, directory: _same(_place(path, table), self._places[directory])


def _within(path: bytes, directory: bytes) -> bool:
    return (path + b"/").startswith(directory.rstrip(b"/") + b"/")


def _same(place: _Place | None, directory: _Place | None) -> bool:
    if place is None or directory is None:
        return False
    return place.device == directory.device and _within(place.path, directory.path)


def _place(path: bytes, table: list[_Mount]) -> _Place | None:
    """By the last mount on the longest way to it, which hides the others."""
    mount = max((m for m in table if _within(path, m.point)), key=lambda m: len(m.point), default=None)
    if mount is None:
        return None
    return _Place(mount.place.device, mount.place.path.rstrip(b"/") + b"/" + path[len(mount.point) :].lstrip(b"/"))


def _mounts(pid: str) -> list[_Mount]:
    """Of a process, the last one first."""
    found = [_Mount(_written(m.point), _Place(m.device, _written(m.root))) for m in mounts.listed(pid)]
    return found[::-1]


def _written(path: bytes) -> bytes:
    """A path as maps has it: a line feed is the only character that is escaped there, and cannot be told from it."""
    return path.replace(b"\n", rb"\012")


def _told(pid: str) -> Iterator[bytes]:
    """Every path that a process has something to do with."""
    yield _written(os.fsencode(os.readlink(f"/proc/{pid}/cwd")))
    with open(f"/proc/{pid}/maps", "rb") as maps:
        for line in maps:
            fields = line.rstrip(b"\n").split(maxsplit=5)
            if len(fields) == 6 and fields[5].startswith(b"/"):
                yield fields[5]
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            yield _written(os.fsencode(os.readlink(f"/proc/{pid}/fd/{fd}")))
        except FileNotFoundError:
            continue
