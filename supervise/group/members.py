"""Who belongs to a group: all that descend from its container."""

from __future__ import annotations

from typing import Any

from supervise.host import procfs
from supervise.model.process import Process


def living_below(root: int) -> list[Process]:
    """All running descendants of a process, with their command lines, parents first."""
    found = procfs.descendants(procfs.scan(cmdline=False, environ=False), root)
    living = (procfs.read(process.pid, environ=False) for process in found if not process.gone)
    return [process for process in living if process is not None and not process.gone]


def describe(process: Process) -> dict[str, Any]:
    """A member as JSON: who it is, what it calls itself, and the state the kernel has it in."""
    return {"pid": process.pid, "ticks": process.id.ticks, "title": process.title[:200], "state": process.state}
