"""Where the members of a group are found, and how all of them are struck at once."""

from __future__ import annotations

from supervise.group.members import living_below
from supervise.host import cgroupfs, procfs
from supervise.model.process import Process, ProcessId


class Enclosure:
    """The group below one subreaper and, where one could be had, in one cgroup leaf.

    Args:
        root: pid of the subreaper; itself no member.
        leaf: directory of the leaf, None without one.
        last: helpers of ours among the members, without which the others could not be ended in order: the init of a PID
            namespace, a guard. They go last.
    """

    def __init__(self, root: int, leaf: str | None = None, last: frozenset[ProcessId] = frozenset()) -> None:
        self.leaf, self.last = leaf, last
        self._root = root

    def living(self) -> list[Process]:
        """All members that run: those that descend from us, and those that the kernel counts into the leaf."""
        below = living_below(self._root)
        if self.leaf is None:
            return below
        known = {process.pid for process in below}
        strays = cgroupfs.pids(self.leaf) - known - procfs.lineage() - {self._root}
        readings = (procfs.read(pid, environ=False) for pid in strays)
        return [*below, *(process for process in readings if process is not None and not process.gone)]

    def populated(self) -> bool:
        """Whether the kernel counts anybody in the leaf; False without one."""
        return self.leaf is not None and cgroupfs.populated(self.leaf)

    def strike(self) -> bool:
        """SIGKILL every member in the leaf in one step; False if there is no leaf to do it with."""
        if self.leaf is None:
            return False
        try:
            cgroupfs.kill(self.leaf)
        except OSError:
            return False
        return True

    def remove(self) -> None:
        """Remove the leaf, which is empty."""
        if self.leaf is not None:
            cgroupfs.remove(self.leaf)
