"""What is known about how an attempt ended, gathered from whoever ended it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from supervise.group.leftovers import Left
from supervise.group.members import describe
from supervise.host import condition
from supervise.model.process import Process, ProcessId
from supervise.slate.aftermath import Aftermath


@dataclass(slots=True)
class Ended:
    """Filled in as the end proceeds; `group_is_over` from the moment that somebody has proven the group empty.

    `log_unread` are the bytes of the log that there was no time to read.
    """

    group_is_over: bool = False
    survivors: list[dict[str, Any]] = field(default_factory=list)
    pids: list[int] = field(default_factory=list)
    sent: list[tuple[int, int]] = field(default_factory=list)
    seconds: float = 0.0
    removed: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    log_unread: int = 0
    aftermath: Aftermath = field(default_factory=Aftermath)

    def by_keeper(self, message: dict[str, Any]) -> None:
        """Take the keeper's report."""
        self.group_is_over = True
        self.survivors = message["survivors"]
        self.sent = [(pid, signum) for pid, signum in message["sent"]]
        self.seconds, self.pids = message["seconds"], message["pids"]
        self.removed, self.left = message["removed"], message["left"]

    def by_adoption(
        self, survivors: Sequence[Process], left: Left, seconds: float, sent: Sequence[tuple[ProcessId, int]]
    ) -> None:
        """Take our own: we ended the group in the keeper's place."""
        self.group_is_over = True
        self.survivors = [describe(process) for process in survivors]
        self.removed, self.left, self.seconds = left.removed, left.remaining, seconds
        self.sent = [(target.pid, signum) for target, signum in sent]

    def look_closer(self) -> None:
        """Find out of survivors what they wait for in the kernel and what they hold; blocking."""
        for survivor in self.survivors:
            pid = survivor["pid"]
            survivor["wchan"] = condition.wchan(pid)
            survivor["seconds"] = round(self.seconds, 1)
            survivor["devices"] = list(condition.devices(pid) or ())
            survivor["ports"] = list(condition.ports(pid) or ())

    def sent_to(self, pid: int) -> tuple[int, ...]:
        """Signals that we sent to that process, in order, each once."""
        return tuple(dict.fromkeys(signum for target, signum in self.sent if target == pid))
