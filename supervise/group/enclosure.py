"""A group below one subreaper and, where one could be had, in one cgroup leaf."""

from __future__ import annotations

from collections.abc import Callable

from supervise.group.members import Members, living_below
from supervise.group.reaping import Reaper
from supervise.host import cgroupfs, procfs
from supervise.model.process import Process, ProcessId


class Enclosure(Members):
    """What holds a group, and so knows who is in it.

    Args:
        root: pid of the subreaper; itself no member.
        childless: reaps what can be reaped and tells whether no child of the subreaper is left.
        leaf: directory of the leaf, None without one.
        last: who goes last.
        reaper: the subreaper's own, if it has one thread and no other children than members.
    """

    def __init__(
        self,
        root: int,
        childless: Callable[[], bool],
        leaf: str | None = None,
        last: frozenset[ProcessId] = frozenset(),
        reaper: Reaper | None = None,
    ) -> None:
        self.leaf, self.last = leaf, last
        self._root, self._childless, self._reaper = root, childless, reaper
        self._counted = 0

    @classmethod
    def of(cls, reaper: Reaper, root: int, leaf: str | None) -> Enclosure:
        """That of a process which does nothing but hold it."""
        return cls(root, reaper.reap, leaf, reaper=reaper)

    def living(self) -> list[Process]:
        """All members that run: those that descend from us, and those that the kernel counts into the leaf."""
        below = living_below(self._root)
        if self.leaf is None:
            return below
        known = {process.pid for process in below}
        strays = cgroupfs.pids(self.leaf) - known - procfs.lineage() - {self._root}
        readings = (procfs.read(pid, environ=False) for pid in strays)
        return [*below, *(process for process in readings if process is not None and not process.gone)]

    def empty(self) -> bool:
        """The kernel's own word for it, twice: no child is left, and nobody is counted in the leaf."""
        return self._childless() and not (self.leaf is not None and cgroupfs.populated(self.leaf))

    def strike(self) -> bool:
        """SIGKILL every member in the leaf in one step; False if there is no leaf to do it with."""
        if self.leaf is None:
            return False
        try:
            cgroupfs.kill(self.leaf)
        except OSError:
            return False
        return True

    def chase(self) -> None:
        """See `Reaper.chase`."""
        if self._reaper is not None:
            self._reaper.chase()

    def settled(self) -> bool:
        """Nobody has been reaped since: a chain of processes that fork and exit leaves one to reap at each step."""
        if self._reaper is None:
            return False
        before, self._counted = self._counted, self._reaper.count
        return before == self._counted and not self.unseen()

    def unseen(self) -> list[Process]:
        """Children that /proc hides from us (another user's, with hidepid): they are no zombies for all we know."""
        pids = procfs.children() if self._reaper is not None else None
        hidden = [pid for pid in pids or () if procfs.identify(pid) is None]
        return [Process(ProcessId(pid, 0), self._root, 0, 0, "?", "hidden by /proc", None) for pid in hidden]

    def remove(self) -> None:
        """Remove the leaf, which is empty."""
        if self.leaf is not None:
            cgroupfs.remove(self.leaf)
