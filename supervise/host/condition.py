"""The door to what the kernel says of one process: what it waits for, what it holds, what has happened to its memory.

Every reader is tolerant: None says that it could not be told, be it that the process has ended or is another user's.
None of them reads the memory of the process (/proc/PID/cmdline, environ and maps do), which can wait for a lock that a
hung process holds for ever. Files and fields are those of proc(5).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from supervise.host import cgroupfs, procfs, sockets

MOST_THREADS = 128

_DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri")
_LONGEST = 256 * 1024


class Thread(NamedTuple):
    """One thread: `state` is the letter of proc(5), `wchan` the kernel function it sleeps in, if that can be told."""

    tid: int
    comm: str
    state: str
    wchan: str | None


def status(pid: int) -> str | None:
    """The text of /proc/PID/status."""
    return _text(f"/proc/{pid}/status")


def wchan(pid: int) -> str | None:
    """The kernel function that the main thread sleeps in; None if it does not sleep, too."""
    return _waiting(f"/proc/{pid}")


def kernel_stack(pid: int) -> str | None:
    """Where in the kernel the main thread is; only root (CAP_SYS_ADMIN) may know."""
    return _text(f"/proc/{pid}/stack")


def rss(pid: int) -> int | None:
    """Resident memory in bytes; a zombie and a kernel thread have none."""
    found = re.search(r"^VmRSS:\s*(\d+) kB$", status(pid) or "", re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def catches(pid: int, signum: int) -> bool | None:
    """Whether a process has a handler of its own for a signal (SigCgt of its status).

    Args:
        pid: the process.
        signum: the signal.

    Returns:
        True or False (a zombie catches nothing), None if it cannot be told.
    """
    found = re.search(r"^SigCgt:\s*([0-9a-f]+)$", status(pid) or "", re.MULTILINE)
    return bool(int(found[1], 16) >> (signum - 1) & 1) if found else None


def threads(pid: int) -> tuple[Thread, ...] | None:
    """The threads of a process, the main one first, at most `MOST_THREADS` of them."""
    try:
        tids = sorted(map(int, os.listdir(f"/proc/{pid}/task")))
    except OSError:
        return None
    found = (_thread(f"/proc/{pid}/task/{tid}", tid) for tid in tids[:MOST_THREADS])
    return tuple(thread for thread in found if thread is not None)


def devices(pid: int) -> tuple[str, ...] | None:
    """The GPU devices that a process holds open: files below /dev of NVIDIA, AMD's kfd, and DRI."""
    held = procfs.opened_by(pid)
    return None if held is None else tuple(sorted({target for target in held if target.startswith(_DEVICES)}))


def ports(pid: int, listening: Mapping[int, int] | None = None) -> tuple[int, ...] | None:
    """The TCP ports that a process listens on, in our network namespace.

    Args:
        pid: the process.
        listening: `sockets.listening_ports()`, for who asks about many processes; None to have it read now.
    """
    held = procfs.sockets_of(pid)
    if held is None:
        return None
    table = sockets.listening_ports() if listening is None else listening
    return tuple(sorted({table[inode] for inode in held if inode in table}))


def memory_events(pid: int) -> str | None:
    """What the memory controller counts for the cgroup of a process, `oom_kill` among it.

    That is memory.events (cgroup v2, of the nearest cgroup that has the controller; it counts for all below it) or
    memory.oom_control (v1). A host has the controller in one of the two hierarchies, never in both (cgroups(7)).
    """
    for line in (_text(f"/proc/{pid}/cgroup") or "").splitlines():
        hierarchy, controllers, path = line.split(":", 2)
        if hierarchy == "0":
            files = _memory_files(path)
        elif "memory" in controllers.split(","):
            directory, _ = cgroupfs.located(path, "memory")
            files = iter([f"{directory}/memory.oom_control"] if directory else [])
        else:
            continue
        for name in files:
            if (text := _text(name)) is not None:
                return text
    return None


def _memory_files(path: str) -> Iterator[str]:
    """The memory.events of a cgroup v2 and of those above it, up to where the hierarchy is mounted."""
    directory, top = cgroupfs.located(path)
    while directory is not None:
        yield f"{directory}/memory.events"
        directory = os.path.dirname(directory) if directory != top else None


def _thread(base: str, tid: int) -> Thread | None:
    stat = _text(f"{base}/stat")
    if not stat:
        return None
    opening, closing = stat.find("("), stat.rfind(")")
    return Thread(tid, stat[opening + 1 : closing], stat[closing + 2 : closing + 3], _waiting(base))


def _waiting(base: str) -> str | None:
    """The content of `wchan`; the kernel writes 0 for what runs and for what it hides."""
    text = _text(f"{base}/wchan")
    return text if text and text != "0" else None


def _text(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_LONGEST)
    except OSError:
        return None
