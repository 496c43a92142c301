"""Processes as values: identity, marker, one reading of one process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class ProcessId(NamedTuple):
    """Identity of a process that pid reuse cannot forge: pid plus start time.

    `ticks` is field 22 of /proc/PID/stat, in clock ticks since boot (proc(5)); unique together with the pid
    within one boot and one PID namespace.
    """

    pid: int
    ticks: int

    def __str__(self) -> str:
        return f"pid {self.pid}"


FIRST_PID_NAMESPACE = 0xEFFFFFFC
"""The one that the kernel begins with (PROC_PID_INIT_INO, linux/proc_ns.h): its /proc shows every process."""


class HostId(NamedTuple):
    """Where a (pid, ticks) pair means something: one boot of one kernel, one PID namespace.

    `boot_id` is /proc/sys/kernel/random/boot_id; `pid_namespace` is the inode of /proc/self/ns/pid.
    """

    boot_id: str
    pid_namespace: int


class Marker(NamedTuple):
    """The environment marker that every member of a group inherits: SUPERVISE_RUN, _ATTEMPT and _ID."""

    run: str
    attempt: int
    id: str


@dataclass(frozen=True, slots=True)
class Process:
    """One reading of one process.

    `argv` is None when it could not be read; a kernel thread has an empty one. A renamed process shows its title as
    the only argument. `marker` is None both without one and when the environment is unreadable: `environ_read`
    tells the two apart. `namespace` is the inode of its PID namespace, None when unreadable.
    """

    id: ProcessId
    ppid: int
    pgid: int
    sid: int
    state: str
    comm: str
    uid: int | None
    argv: tuple[str, ...] | None = None
    marker: Marker | None = None
    environ_read: bool = False
    namespace: int | None = None

    @property
    def pid(self) -> int:
        """The bare number, for display and look-ups in one snapshot; never for signalling."""
        return self.id.pid

    @property
    def gone(self) -> bool:
        """Whether it has ended: a zombie holds no memory, port or device any more and only waits to be reaped."""
        return self.state in ("Z", "X")

    @property
    def title(self) -> str:
        """What `ps` shows: the command line, or the 15-byte comm where there is none."""
        return " ".join(self.argv).strip() if self.argv else self.comm


class Container(NamedTuple):
    """A container of this host: what runs it (docker, podman, nerdctl, cri, lxc), and its id or name."""

    engine: str
    id: str

    @property
    def short(self) -> str:
        """Its name as people write it: ids are cut to 12 digits, as the runtimes show them."""
        return self.id if self.engine == "lxc" else self.id[:12]

    @property
    def stop(self) -> str:
        """The command that stops it."""
        words = {"cri": "crictl stop", "lxc": "lxc-stop -n"}
        return f"{words.get(self.engine, f'{self.engine} stop')} {self.short}"

    def __str__(self) -> str:
        return f"container {self.short} ({self.engine})"
