"""The door to how much memory, and how many processes, the kernel grants us.

Files are those of cgroup-v2.rst, cgroup-v1/memory.rst, cgroup-v1/pids.rst and proc(5).
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from supervise.host import cgroupfs

# cgroup v1 writes "no limit" as the largest multiple of a page.
_NO_LIMIT = 2**60


class Ceiling(NamedTuple):
    """A limit of a cgroup that we are in, what is used of it, and where it stands."""

    limit: int
    used: int
    path: str

    @property
    def left(self) -> int:
        """What can still be had."""
        return max(0, self.limit - self.used)


def available() -> int | None:
    """Bytes that can be had without swapping (MemAvailable); None if the kernel does not say."""
    found = re.search(r"^MemAvailable:\s*(\d+) kB$", _text("/proc/meminfo") or "", re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def memory_ceiling() -> Ceiling | None:
    """The lowest memory limit of our cgroup and those above it, in bytes; None if there is none that we can see."""
    found = _of(None, "memory.max", "memory.current")
    found = found or _of("memory", "memory.limit_in_bytes", "memory.usage_in_bytes")
    # What is left is no measure: the page cache counts as used and yields.
    return min(found, key=lambda ceiling: ceiling.limit, default=None)


def process_ceiling() -> Ceiling | None:
    """The limit of tasks, threads counted, that leaves least to our cgroup; None if there is none that we can see."""
    found = _of(None, "pids.max", "pids.current") or _of("pids", "pids.max", "pids.current")
    return min(found, key=lambda ceiling: ceiling.left, default=None)


def ceilings(directory: str, top: str, limit: str, used: str) -> tuple[Ceiling, ...]:
    """All limits that hold for a cgroup: its own and those above it.

    Args:
        directory: of the cgroup.
        top: where the hierarchy is mounted.
        limit: name of the file that holds a limit.
        used: name of the file that holds what is used.
    """
    found: list[Ceiling] = []
    while directory.startswith(top):
        if (most := _number(f"{directory}/{limit}")) is not None and most < _NO_LIMIT:
            found.append(Ceiling(most, _number(f"{directory}/{used}") or 0, f"{directory}/{limit}"))
        if directory == top:
            break
        directory = os.path.dirname(directory)
    return tuple(found)


def _of(controller: str | None, limit: str, used: str) -> tuple[Ceiling, ...]:
    for line in (_text("/proc/self/cgroup") or "").splitlines():
        _, names, path = line.split(":", 2)
        if (names == "") if controller is None else (controller in names.split(",")):
            directory, top = cgroupfs.located(path, controller)
            return () if directory is None else ceilings(directory, top, limit, used)
    return ()


def _number(path: str) -> int | None:
    text = (_text(path) or "").strip()
    return int(text) if text.isdecimal() else None


def _text(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return None
