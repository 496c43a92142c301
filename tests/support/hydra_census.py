"""What is left of a hostile tree, looked at in every way that finds some of it: pids, a lock, names, environments."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from supervise.group.members import living_below
from supervise.host import procfs, signals
from supervise.model.process import ProcessId
from tests.support.family import Family
from tests.support.hydra import HOP_COMM, STORM_COMM, any_left
from tests.support.leaks import reap
from tests.support.waiting import DEADLINE_S, describe, wait_until


class Tree(Family):
    """A family that may live in a PID namespace of its own, where its pids are other ones than here.

    Args:
        path: where it tells; it was started with `--tell-namespace`.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.overlapped = False
        self._read = 0

    @property
    def told(self) -> int:
        """How many lines there are."""
        return self._text().count("\n")

    def refresh(self) -> Tree:
        """Take in what is new."""
        lines = self._text().splitlines(keepends=True)
        fresh = [line.split() for line in lines[self._read :] if line.endswith("\n")]
        if not fresh:
            return self
        namespace = int(lines[0].split()[1])
        foreign = namespace != os.stat("/proc/self/ns/pid").st_ino
        outside = _outside(namespace) if foreign else {}
        self._read += len(fresh)
        for words in fresh:
            match words:
                case ["ready"]:
                    self.ready = True
                case ["overlap", _, _]:
                    self.overlapped = True
                case [role, pid, ticks]:
                    told = ProcessId(int(pid), int(ticks))
                    found = outside.get(told.pid) if foreign else told
                    # The inode of a dead namespace is given to the next one: only the ticks tell their members apart.
                    known = found is not None and found.ticks == told.ticks
                    self.members[role] = found if found and known else ProcessId(told.pid, 0)
        return self

    def left(self, marker_id: str = "") -> list[str]:
        """Everything that can still be found of it, described.

        Args:
            marker_id: of the attempt; without it environments are not looked at.
        """
        return [
            *self.survivors,
            *(["somebody forked by it holds its lock"] if any_left(str(self.path)) else []),
            *(describe(target) for target in _hopping(str(self.path))),
            *(describe(target) for target in marked(marker_id)),
        ]

    def wait_nothing_left(self, marker_id: str, deadline_s: float = DEADLINE_S) -> None:
        """Wait until nothing of it is left, for an end that nobody reports."""
        wait_until(lambda: not self.left(marker_id), deadline_s, failure=lambda: self.left(marker_id))

    def kill(self) -> None:
        """End what is left of it; whoever had died before we could tell who it was is nobody of ours by now."""
        self.members = {role: member for role, member in self.refresh().members.items() if member.ticks}
        super().kill()

    def _text(self) -> str:
        return self.path.read_text() if self.path.exists() else ""


def hunt_down(path: Path) -> bool:
    """For tear-down: kill what is below us, again and again, a second at most; True once nobody holds the lock.

    What is restless is gone by the time that its pid is known, but not every time.
    """
    deadline = time.monotonic() + 1.0
    while any_left(str(path)) and time.monotonic() < deadline:
        for process in living_below(os.getpid()):
            signals.send(process.id, signal.SIGKILL)
        reap()
    return not any_left(str(path))


def marked(marker_id: str) -> list[ProcessId]:
    """Running processes with this attempt's id anywhere in their environment."""
    sought = marker_id.encode()
    return [target for target in _running() if sought and sought in _slurp(target, "environ")]


def _hopping(path: str) -> list[ProcessId]:
    """Restless ones of the tree that tells in `path`; one look can miss them, their lock cannot."""
    names = {f"{name}\n".encode() for name in (HOP_COMM, STORM_COMM)}
    hopping = [target for target in _running() if _slurp(target, "comm") in names]
    return [target for target in hopping if path.encode() in _slurp(target, "cmdline").split(b"\0")]


def _outside(namespace: int) -> dict[int, ProcessId]:
    """The members of a PID namespace by the pid they have inside (proc(5), NSpid: outermost first)."""
    found = {}
    for target in _running():
        if procfs.pid_namespace(target.pid) == namespace:
            pids = _slurp(target, "status").partition(b"\nNSpid:")[2].partition(b"\n")[0].split()
            if pids:
                found[int(pids[-1])] = target
    return found


def _running() -> list[ProcessId]:
    return [process.id for process in procfs.scan(cmdline=False, environ=False).values() if not process.gone]


def _slurp(target: ProcessId, name: str) -> bytes:
    try:
        return Path(f"/proc/{target.pid}/{name}").read_bytes()
    except OSError:
        return b""
