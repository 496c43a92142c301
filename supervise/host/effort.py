"""The door to what a group of processes does: CPU, memory, disk, network, GPUs.

What counts as read from disk and network, and what does not (proc(5), sock_diag(7)):

- `rchar` of /proc/PID/io: whatever read(2) and its like returned, also from the page cache. recv(2) is not in it.
- `read_bytes` there: what was fetched from disk, also for pages of a mapped file. A file system in user space or over
  the network may not count here; its pages still fault.
- Major faults and resident memory: a mapped safetensors file that is in the page cache shows as nothing else.
- Network: bytes received by TCP sockets that members hold, from anywhere but this host. /proc/PID/net/dev is not used:
  it counts a whole network namespace, and so everybody's.

None of it reads the memory of a process (its command line, its maps), which can wait for a lock that a hung process
holds for ever.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from supervise.host import nvml, procfs, sockdiag
from supervise.model.effort import NO_LOAD, Effort, Look
from supervise.model.process import ProcessId

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_GPU_TIMEOUT_S = 3.0


def look(root: int, *, gpus: bool) -> Look:
    """One look at all that run below a process; blocking, some 50 µs for each process of the host.

    Args:
        root: pid of the process.
        gpus: also ask the driver, which may take a few seconds to answer or not to.

    Raises:
        OSError: /proc could not be looked at; there may be no descriptor left.
    """
    below = procfs.descendants(procfs.scan(cmdline=False, environ=False), root)
    members = [process.id for process in below if not process.gone]
    read = {member: effort for member in members if (effort := _effort(member)) is not None}
    load = nvml.load(frozenset(member.pid for member in read), _GPU_TIMEOUT_S) if gpus else NO_LOAD
    return Look(read, _received(read), load)


def _effort(process: ProcessId) -> Effort | None:
    """None if it has ended."""
    try:
        with open(f"/proc/{process.pid}/stat", "rb") as file:
            data = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = data[data.rfind(b")") + 2 :].split()
    if int(fields[19]) != process.ticks:
        return None
    return Effort(
        cpu_s=(int(fields[11]) + int(fields[12])) * _TICK_S,
        faults=int(fields[9]),
        resident=int(fields[21]) * _PAGE,
        read=_read(process.pid),
        traced=fields[0] == b"t",
    )


def _read(pid: int) -> int | None:
    """Bytes that it has read; another user's are nobody's business, and some kernels do not count."""
    try:
        with open(f"/proc/{pid}/io", "rb") as file:
            told = dict(line.split(b": ") for line in file.read().splitlines())
        return max(int(told[b"rchar"]), int(told[b"read_bytes"]))
    except (OSError, KeyError, ValueError):
        return None


def _received(members: Iterable[ProcessId]) -> int | None:
    """Bytes that came to their sockets from other hosts; None if nobody tells."""
    held: set[int] = set()
    for member in members:
        with contextlib.suppress(ProcessLookupError):
            held |= procfs.sockets_of(member.pid) or frozenset()
    told = sockdiag.received() if held else {}
    return None if told is None else sum(count for inode, count in told.items() if inode in held)
