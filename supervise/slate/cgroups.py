"""Cgroups that attempts wrote down: who is in them, and the removal of those that nobody is in any more.

Only a directory of cgroup v2 (cgroups(7)) whose name says that supervise made it is ever looked at or removed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from supervise.host import cgroupfs, procfs
from supervise.model.process import Process, ProcessId
from supervise.model.snapshot import Record


class Population(NamedTuple):
    """Who is where: `inside` maps a process to the innermost recorded cgroup, `empty` are those that nobody is in."""

    inside: dict[ProcessId, str]
    empty: frozenset[str]


def population(records: Iterable[Record], processes: Mapping[int, Process]) -> Population:
    """Read the cgroups of these records.

    Args:
        records: of this boot and PID namespace.
        processes: those of one reading.

    Returns:
        Where those processes are; a pid that was reused since the reading is in none.

    Raises:
        OSError: a cgroup is there and cannot be read: what could not be looked at must not pass for empty.
    """
    inside: dict[ProcessId, str] = {}
    # A run may have been started inside another: the longest path comes last and wins.
    directories = sorted({r.cgroup for r in records if r.cgroup and _is_ours(r.cgroup)}, key=len)
    for directory in directories:
        listed = [processes[pid] for pid in cgroupfs.pids(directory) if pid in processes]
        inside.update({process.id: directory for process in listed if procfs.identify(process.pid) == process.id})
    return Population(inside, frozenset(directory for directory in directories if not cgroupfs.populated(directory)))


def remove(directory: str) -> None:
    """Remove a cgroup and those below it; the kernel refuses if somebody is inside (rmdir(2), EBUSY)."""
    if _is_ours(directory):
        cgroupfs.remove(directory)


def _is_ours(directory: str) -> bool:
    """Whether it is a cgroup (no other directory can be removed while this file is in it) and named like ours."""
    plain = os.path.isabs(directory) and os.path.normpath(directory) == directory
    named = os.path.basename(directory).startswith(cgroupfs.PREFIX) and not os.path.islink(directory)
    return plain and named and os.path.isfile(os.path.join(directory, "cgroup.procs"))
