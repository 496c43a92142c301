"""Who belongs to a group, and what can be done with all of them at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from supervise.host import procfs
from supervise.model.process import Process, ProcessId
from supervise.text import redact, shorten

_LONGEST_TITLE = 200


class Members:
    """The members of a group as the stop path needs them; what is more than reading /proc is for those who can do it.

    Attributes:
        last: helpers of ours among them, without which the others could not be ended in order. They go last.
    """

    last: frozenset[ProcessId] = frozenset()

    def living(self) -> list[Process]:
        """A fresh reading of all that run, with their command lines."""
        raise NotImplementedError

    def empty(self) -> bool:
        """Whether nobody is left."""
        return not self.living()

    def hold_still(self) -> bool:
        """See to it that nobody forks from now on, where who is forked could get away; True if that was done."""
        return False

    def strike(self) -> bool:
        """SIGKILL all of them in one step; False if there is no way to."""
        return False

    def chase(self) -> None:
        """SIGKILL those that appear and vanish faster than they can be read."""

    def settled(self) -> bool:
        """Whether nobody of them has ended since this was asked last: then one reading can be believed."""
        return False

    def unseen(self) -> list[Process]:
        """Those that are there for the kernel, but not in any reading."""
        return []


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


def told(described: Mapping[str, Any]) -> str:
    """One that was described, in a few words."""
    return f"pid {described['pid']} {described['title']}, state {described['state']}"
