"""The door to why processes do nothing: stopped, waiting in the kernel, held by a debugger."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable

from supervise.host import procfs
from supervise.model.process import Process

STOPPED, WAITING = "T", "D"
"""States of proc(5): stopped by a signal, and waiting in the kernel for what cannot be interrupted."""

# Accelerators that NVML knows nothing of: ROCm, the kernel's own class (Gaudi, TPU), Ascend.
_OTHERS = ("/dev/kfd", "/dev/accel*", "/dev/accel/accel*", "/dev/davinci[0-9]*")


def members(root: int) -> list[Process]:
    """All that run below a process, without their command lines: to read those can wait for a process that hangs."""
    below = procfs.descendants(procfs.scan(cmdline=False, environ=False), root)
    return [process for process in below if not process.gone]


def title(process: Process) -> str:
    """What a process calls itself, whole: the kernel cuts that at 15 bytes (proc(5), comm).

    To read it can wait for one that waits in the kernel; of one that was not renamed it is a command line, with secrets
    perhaps, and not told.
    """
    found = procfs.read(process.pid, environ=False)
    if found is None or found.id != process.id or found.argv is None or len(found.argv) != 1:
        return process.comm
    return found.title if found.title.startswith(process.comm) else process.comm


def debugged(processes: Iterable[Process]) -> int | None:
    """The first of these that has a debugger (proc(5), TracerPid of status), None if none has."""
    return next((process.pid for process in processes if _tracer(process.pid)), None)


def _tracer(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            return next((int(line.split()[1]) for line in file if line.startswith(b"TracerPid:")), 0)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return 0


def other_accelerators() -> bool:
    """Whether there are accelerators of which nobody tells us what they do."""
    return any(os.path.exists(path) for pattern in _OTHERS for path in glob.glob(pattern))
