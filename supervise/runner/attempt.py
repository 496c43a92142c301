"""The book-keeping of one attempt: what is written down, when, so that the next start can rely on it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from supervise.attempts.store import Attempt, Run
from supervise.host import files, procfs
from supervise.model.litter import FileId
from supervise.model.need import Need
from supervise.model.process import Marker, ProcessId
from supervise.model.snapshot import Gpus
from supervise.model.tier import Tiers
from supervise.runner import circumstances
from supervise.text import redact, settings, url

if TYPE_CHECKING:
    from supervise.group.handle import Keeper
    from supervise.runner.plan import Plan


@dataclass(slots=True)
class Opened:
    """An attempt that has begun: its directory, its marker, its private directory, and who runs in it.

    `about` is what is known of its circumstances at the launch, as JSON.
    """

    attempt: Attempt
    marker: Marker
    private: str | None
    command: Sequence[str]
    need: Need
    supervisor: ProcessId
    guard: ProcessId
    keeper: ProcessId
    tiers: Tiers
    about: dict[str, Any]
    leader: ProcessId | None = None
    members: tuple[ProcessId, ...] = ()
    segments: tuple[FileId, ...] = ()
    limits_raised: tuple[str, ...] = ()
    began_at: float = field(default_factory=time.time)

    @classmethod
    def begin(
        cls, run: Run, command: Sequence[str], planned: Plan, gpus: Gpus, *, keeper: Keeper, tiers: Tiers
    ) -> Opened:
        """Open the run's next attempt and record it before anything is launched.

        Raises:
            StoreError: the state directory cannot be written.
            OSError: likewise.
        """
        marker_id = os.urandom(16).hex()
        attempt = run.open_attempt()
        private: str | None = None
        try:
            private = files.private_directory(marker_id)
        finally:
            if private is None:
                run.forget(attempt)
        opened = cls(
            attempt=attempt,
            marker=Marker(run.name, attempt.number, marker_id),
            private=private,
            command=command,
            need=planned.need,
            supervisor=procfs.self_id(),
            guard=keeper.guard,
            keeper=keeper.id,
            tiers=tiers,
            about=circumstances.told(command, planned, gpus),
        )
        try:
            opened.record()
        except OSError:
            # Nobody would ever know whose it is.
            files.remove_private_directory(private, marker_id)
            run.forget(attempt)
            raise
        return opened

    def record(self) -> None:
        """Write attempt.json: identities for the next start, circumstances for people."""
        self.attempt.write(
            "attempt",
            {
                "run": self.attempt.run,
                "attempt": self.attempt.number,
                "id": self.marker.id,
                "began": round(self.began_at, 3),
                **identities(self.supervisor, self.guard, self.keeper, self.leader),
                "tiers": list(self.tiers.held),
                "tiers_refused": dict(self.tiers.refused),
                "cgroup": self.tiers.leaf,
                "members": sorted(self.members),
                "segments": sorted(self.segments),
                "runtime_dir": self.private,
                "limits_raised": list(self.limits_raised),
                "profile": self.need.profile,
                "argv": redact(self.command),
                "model": self.need.model,
                "environment": settings(os.environ),
                "cwd": os.getcwd(),
                "python": sys.version.split()[0],
                "ports": [port.number for port in self.need.ports],
                "url": url(self.need),
                **self.about,
            },
        )


def identities(
    supervisor: ProcessId | None, guard: ProcessId | None, keeper: ProcessId | None, leader: ProcessId | None
) -> dict[str, dict[str, Any] | None]:
    """Who runs an attempt, as JSON, with the boot and PID namespace without which the numbers mean nothing."""
    host = procfs.host_id()
    return {
        "host": host._asdict(),
        "supervisor": supervisor._asdict() if supervisor else None,
        "guard": guard._asdict() if guard else None,
        "keeper": keeper._asdict() if keeper else None,
        "leader": leader._asdict() if leader else None,
    }
