"""What a program under test has told about its processes: `role pid` lines in a file, `ready` as the last one."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from supervise.host import procfs, signals
from supervise.model.process import ProcessId
from tests.support.waiting import DEADLINE_S, survivors, wait_gone, wait_until


class Family:
    """Reads such a file, and remembers who the pids were when they were told.

    Args:
        path: the file; it need not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.members: dict[str, ProcessId] = {}
        self.ready = False

    def refresh(self) -> Family:
        """Take in what is new."""
        text = self.path.read_text() if self.path.exists() else ""
        for line in text[: text.rfind("\n") + 1].splitlines():
            if line == "ready":
                self.ready = True
                continue
            role, pid = line.split()
            if role not in self.members:
                self.members[role] = procfs.identify(int(pid)) or ProcessId(int(pid), 0)
        return self

    def wait_ready(self, deadline_s: float = DEADLINE_S, *, failure: object = "") -> Family:
        """Wait until all members are there."""
        wait_until(lambda: self.refresh().ready, deadline_s, failure=lambda: f"told so far: {self.members} {failure}")
        return self

    def wait_for(self, role: str, deadline_s: float = DEADLINE_S) -> ProcessId:
        """Wait until this one is there."""
        wait_until(lambda: role in self.refresh().members, deadline_s, failure=lambda: f"no {role}: {self.members}")
        return self.members[role]

    def wait_gone(self, deadline_s: float = DEADLINE_S) -> None:
        """Wait until none of them runs."""
        wait_gone(self.refresh().members.values(), deadline_s)

    @property
    def survivors(self) -> list[str]:
        """Those that run, described."""
        return survivors(self.refresh().members.values())

    @property
    def living(self) -> set[str]:
        """The roles of those that run."""
        return {role for role, member in self.refresh().members.items() if signals.alive(member)}

    def kill(self) -> None:
        """End what is left of it: for tear-down."""
        for member in self.refresh().members.values():
            signals.send(member, signal.SIGKILL)
            _reap(member)


def _reap(member: ProcessId) -> None:
    try:
        os.waitpid(member.pid, 0)
    except ChildProcessError:
        pass
