"""The door to System V shared memory: the kernel's table of it, and the removal of one segment (shmctl(2)).

Such a segment lives until it is removed, whether or not anybody is attached; whoever is, keeps it until it detaches.
"""

from __future__ import annotations

import ctypes
import os
import time

from supervise.model.litter import SysvSegment
from supervise.model.slate import Verdict

_TABLE = "/proc/sysvipc/shm"
_IPC_RMID = 0


def segments() -> tuple[SysvSegment, ...] | None:
    """All segments of our IPC namespace (proc(5), /proc/sysvipc/shm), None if the kernel does not tell them.

    A creator of 0 is a process of a PID namespace that we cannot see.
    """
    try:
        with open(_TABLE, encoding="ascii") as table:
            names, *rows = (line.split() for line in table)
    except (OSError, ValueError):
        return None
    now = time.time()
    return tuple(_segment(dict(zip(names, map(int, row), strict=False)), now) for row in rows)


def remove(id_: int, key: int, creator: int) -> Verdict:
    """Remove a segment of ours, if it still is the one that this process created and nobody is attached.

    Args:
        id_: its identifier, as shmget(2) returns it.
        key: its key, 0 for a private one.
        creator: pid of the process that created it.

    Returns:
        GONE if that segment is not there any more, REMAINS if somebody is attached or it is another user's, UNKNOWN if
        that could not be told or the kernel refused.
    """
    table = segments()
    if table is None:
        return Verdict.UNKNOWN
    there = next((s for s in table if (s.id, s.key, s.creator) == (id_, key, creator)), None)
    if there is None:
        return Verdict.GONE
    if there.attached or there.uid != os.geteuid():
        return Verdict.REMAINS
    # Whoever attaches at this very moment loses nothing: it is only marked then, and goes with the last to detach.
    if ctypes.CDLL(None, use_errno=True).shmctl(id_, _IPC_RMID, None) != 0:
        return Verdict.UNKNOWN
    return Verdict.GONE


def _segment(row: dict[str, int], now: float) -> SysvSegment:
    return SysvSegment(
        id=row["shmid"],
        key=row["key"],
        size=row["size"],
        uid=row["uid"],
        creator=row["cpid"],
        attached=row["nattch"],
        age_s=now - max(row["atime"], row["dtime"], row["ctime"]),
    )
