"""Who belongs to a group: all that descend from its container."""

from __future__ import annotations

from typing import Any

from supervise.host import procfs
from supervise.model.process import Process
from supervise.text import redact, shorten

_LONGEST_TITLE = 200


def living_below(root: int) -> list[Process]:
    """All running descendants of a process, with their command lines, parents first."""
    found = procfs.descendants(procfs.scan(cmdline=False, environ=False), root)
    living = (procfs.read(process.pid, environ=False) for process in found if not process.gone)
    return [process for process in living if process is not None and not process.gone]


def title(process: Process) -> str:
    """What a member calls itself, without the secrets of its command line."""
    return " ".join(redact(process.argv)).strip() if process.argv else process.comm


def describe(process: Process) -> dict[str, Any]:
    """A member as JSON: who it is, what it calls itself, whose it is, and the state the kernel has it in."""
    return {
        "pid": process.pid,
        "ticks": process.id.ticks,
        "title": shorten(title(process), _LONGEST_TITLE),
        "state": process.state,
        "uid": process.uid,
    }
