"""The door to /proc: identities, one bulk scan, single reads.

All processes are read by hand because that is four to six times cheaper than psutil's iterator with the same fields;
single processes may as well be asked of psutil. Field numbers are those of proc(5).
"""

from __future__ import annotations

import functools
import os
import re
import time
from collections import defaultdict

from supervise.model.process import HostId, Marker, Process, ProcessId

MARKER_RUN = "SUPERVISE_RUN"
MARKER_ATTEMPT = "SUPERVISE_ATTEMPT"
MARKER_ID = "SUPERVISE_ID"

# PF_KTHREAD of linux/sched.h. That its parent is pid 2 says nothing within a PID namespace.
_KERNEL_THREAD = 0x00200000
_MARKER_PREFIX = MARKER_RUN.encode() + b"="
_READ = os.O_RDONLY | os.O_CLOEXEC
_CHUNK = 8 * 1024


@functools.cache
def host_id() -> HostId:
    """Identity of this boot and PID namespace, without which a recorded pid means nothing."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip()
    return HostId(boot, os.stat("/proc/self/ns/pid").st_ino)


class ForeignProcError(Exception):
    """/proc is not that of our PID namespace: every pid in it means somebody else."""


def self_id() -> ProcessId:
    """Our own identity.

    Raises:
        ForeignProcError: /proc shows another PID namespace, or none.
    """
    mine = identify(os.getpid())
    if mine is None or os.readlink("/proc/self") != str(os.getpid()):
        raise ForeignProcError("/proc does not belong to this PID namespace; mount a new one (unshare --mount-proc)")
    return mine


def identify(pid: int) -> ProcessId | None:
    """The identity behind a bare pid at this moment, None if there is no such process."""
    data = _slurp(f"/proc/{pid}/stat")
    if not data:
        return None
    return ProcessId(pid, int(data[data.rfind(b")") + 2 :].split()[19]))


def scan(*, cmdline: bool = True, environ: bool = True) -> dict[int, Process]:
    """One pass over every visible process; those that end meanwhile are simply not in it."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (process := read(int(name), cmdline=cmdline, environ=environ)):
            found[process.pid] = process
    return found


def read(pid: int, *, cmdline: bool = True, environ: bool = True) -> Process | None:
    """One reading of one process, None if it is not there.

    Args:
        pid: the process.
        cmdline: also read its argument vector.
        environ: also look for our marker in its environment (same uid or CAP_SYS_PTRACE, else unreadable).

    Returns:
        The reading; what could not be read is None in it, never a guess.
    """
    base = f"/proc/{pid}"
    data = _slurp(f"{base}/stat")
    if not data:
        return None
    close = data.rfind(b")")
    fields = data[close + 2 :].split()
    kernel = bool(int(fields[6]) & _KERNEL_THREAD)
    argv: tuple[str, ...] | None = ()
    marker, environ_read = None, kernel
    if cmdline and not kernel:
        argv = _arguments(_slurp(f"{base}/cmdline"))
    if environ and not kernel:
        marker, environ_read = _marker(_slurp(f"{base}/environ"))
    return Process(
        id=ProcessId(pid, int(fields[19])),
        ppid=int(fields[1]),
        pgid=int(fields[2]),
        sid=int(fields[3]),
        state=fields[0].decode("ascii", "replace"),
        comm=data[data.find(b"(") + 1 : close].decode("utf-8", "replace"),
        uid=_owner(base),
        argv=argv,
        marker=marker,
        environ_read=environ_read,
    )


def pid_namespace(pid: int) -> int | None:
    """Inode of the PID namespace of a process, None if it may not be read."""
    try:
        return os.stat(f"/proc/{pid}/ns/pid").st_ino
    except OSError:
        return None


def lineage() -> frozenset[int]:
    """Ourselves and all our ancestors: what a clean slate must never touch, whatever it looks like."""
    chain, pid = set(), os.getpid()
    while pid > 0 and pid not in chain:
        chain.add(pid)
        data = _slurp(f"/proc/{pid}/stat")
        pid = int(data[data.rfind(b")") + 2 :].split()[1]) if data else 0
    return frozenset(chain)


def children() -> list[int] | None:
    """Pids of our children, zombies included; the kernel keeps them per thread. None without CONFIG_PROC_CHILDREN."""
    pids: list[int] = []
    try:
        for task in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{task}/children", encoding="ascii") as file:
                pids.extend(map(int, file.read().split()))
    except OSError:
        return None
    return pids


def descendants(processes: dict[int, Process], root: int) -> list[Process]:
    """All processes below `root` in one reading, parents before children; `root` itself excluded."""
    children: dict[int, list[Process]] = defaultdict(list)
    for process in processes.values():
        children[process.ppid].append(process)
    found: list[Process] = []
    queue = [root]
    while queue:
        below = children.pop(queue.pop(), [])
        found.extend(below)
        queue.extend(process.pid for process in below)
    return found


def age_s(ticks: int) -> float:
    """Seconds since a process with these start ticks began (start times count from boot, suspend included)."""
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))


def ignores(pid: int, signum: int) -> bool:
    """Whether a process ignores a signal (proc(5), SigIgn of status); False if that cannot be read."""
    for line in (_slurp(f"/proc/{pid}/status") or b"").splitlines():
        if line.startswith(b"SigIgn:"):
            return bool(int(line.split()[1], 16) >> (signum - 1) & 1)
    return False


def opened_by(pid: int) -> list[str] | None:
    """What the descriptors of a process point to (proc(5), fd), None if they may not be read."""
    targets = []
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            try:
                targets.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
            except FileNotFoundError:
                continue
    except OSError:
        return None
    return targets


def sockets_of(pid: int) -> frozenset[int] | None:
    """Inodes of the sockets a process holds open, None if its descriptors may not be read."""
    targets = opened_by(pid)
    if targets is None:
        return None
    return frozenset(int(match[1]) for target in targets if (match := re.fullmatch(r"socket:\[(\d+)\]", target)))


def _slurp(path: str) -> bytes | None:
    """A /proc file, whole; None if the process is gone or hides it.

    Any other failure (no descriptor left, no memory) is raised: a scan that could not look must not pass for empty.
    """
    try:
        fd = os.open(path, _READ)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    try:
        data = chunk = os.read(fd, _CHUNK)
        while len(chunk) == _CHUNK:
            chunk = os.read(fd, _CHUNK)
            data += chunk
    except (ProcessLookupError, PermissionError):
        return None
    finally:
        os.close(fd)
    return data


def _arguments(data: bytes | None) -> tuple[str, ...] | None:
    """Split an argument vector; the NUL padding that renaming leaves behind is not an argument."""
    if data is None:
        return None
    stripped = data.rstrip(b"\0")
    return tuple(os.fsdecode(word) for word in stripped.split(b"\0")) if stripped else ()


def _marker(data: bytes | None) -> tuple[Marker | None, bool]:
    """Find the marker in an environment block; one that renaming has wiped to NULs counts as unread."""
    if data is None or not data.strip(b"\0"):
        return None, False
    if _MARKER_PREFIX not in data:
        return None, True
    pairs = dict(item.partition(b"=")[::2] for item in data.split(b"\0"))
    attempt = pairs.get(MARKER_ATTEMPT.encode(), b"")
    run = pairs.get(MARKER_RUN.encode())
    if run is None or not attempt.isdigit():
        return None, True
    return Marker(os.fsdecode(run), int(attempt), os.fsdecode(pairs.get(MARKER_ID.encode(), b""))), True


def _owner(base: str) -> int | None:
    try:
        return os.stat(base).st_uid
    except OSError:
        return None
