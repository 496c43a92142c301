"""One reading of the host: its processes, ports and GPUs, and what earlier attempts wrote down about themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from supervise.model.litter import FileId, Litter
from supervise.model.process import Container, HostId, Process, ProcessId


class PortState(StrEnum):
    """Result of binding without SO_REUSEADDR, the only test that sees bound but not yet listening sockets."""

    FREE = "free"
    HELD = "held"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class PortReading:
    """One look at one needed port. `holders` may be empty although the port is held: bound, not listening.

    `listening` are the users whose sockets listen on it, told by the kernel also where their processes are hidden.
    """

    number: int
    host: str
    state: PortState
    holders: tuple[ProcessId, ...] = ()
    error: str = ""
    listening: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One look at one GPU, or at one MIG instance of one, through NVML.

    Bytes; a `total` of 0 says that it shares the host's memory. `holders` maps pid to bytes, None where the driver does
    not say. With an `error`, the driver's words, nothing but what it told before is known. `parent` is the index of the
    GPU that an instance is part of, `index` then counts the instances of that one; a GPU with `mig` is divided into
    instances, of which alone memory and holders are told. `minor` is the number in /dev/nvidia<minor>.
    """

    index: int
    uuid: str
    name: str
    total: int
    free: int
    holders: tuple[tuple[int, int | None], ...] = ()
    error: str = ""
    parent: int | None = None
    mig: bool = False
    minor: int | None = None

    @property
    def label(self) -> str:
        """How it is named to people."""
        return f"GPU {self.index}" if self.parent is None else f"GPU {self.parent} MIG {self.index}"


class GpuStatus(StrEnum):
    """Whether GPUs could be read at all."""

    ABSENT = "absent"
    READ = "read"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Gpus:
    """All GPUs of one reading. FAILED carries the driver's words in `error` and is never clean."""

    status: GpuStatus
    devices: tuple[GpuReading, ...] = ()
    error: str = ""


NO_GPUS = Gpus(GpuStatus.ABSENT)

# No marker has it: ids are hexadecimal.
LOST_ID = "lost"


@dataclass(frozen=True, slots=True)
class Record:
    """What an earlier attempt of some run wrote down about itself: who supervised it, whom it launched.

    One with the id `LOST_ID` stands for an attempt whose own words are lost or damaged: its marker proves nobody.
    `members` are all processes that were ever seen in its group, `guard` the one that stands in for its keeper;
    `cgroup` is the absolute directory of the leaf that they were put into, `log` the path of what they wrote to.
    """

    run: str
    attempt: int
    marker_id: str
    host: HostId
    supervisor: ProcessId | None
    keeper: ProcessId | None
    leader: ProcessId | None
    segments: tuple[FileId, ...] = ()
    runtime_dir: str | None = None
    members: tuple[ProcessId, ...] = ()
    guard: ProcessId | None = None
    cgroup: str | None = None
    log: str | None = None


class SocketPath(NamedTuple):
    """What is where the server wants its Unix socket: whatever it is, a bind there fails (errno 98).

    `real` is the same path without links in its directories. `in_use` is True if it is a socket that somebody has
    bound, or may have; `holders` are those of them that can be seen.
    """

    path: str
    real: str
    file: FileId
    uid: int
    is_socket: bool = True
    in_use: bool = False
    holders: tuple[ProcessId, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One reading of the host.

    `lineage` holds ourselves, our helpers and all our ancestors: never touched, whatever they match. `ages_s` are
    seconds by pid; `serving` the TCP ports that engine processes listen on, by pid; `directories` those private
    directories of recorded attempts that exist. `ended` are processes that this very sweep has ended: what they held
    may return late. `writing` maps a process to the recorded log that it has as its standard output or error, `inside`
    to the innermost recorded cgroup that lists it; `empty_cgroups` are those recorded ones that exist and list nobody.
    `gpu_files` maps device files of GPUs to the pids that have them open, read only where NVML names nobody.
    `containers` are those in which holders of what the launch needs live, by pid.
    """

    host: HostId
    uid: int
    lineage: frozenset[int]
    processes: dict[int, Process]
    records: tuple[Record, ...] = ()
    ports: tuple[PortReading, ...] = ()
    gpus: Gpus = NO_GPUS
    litter: Litter = field(default_factory=Litter)
    ages_s: dict[int, float] = field(default_factory=dict)
    serving: dict[int, tuple[int, ...]] = field(default_factory=dict)
    socket_path: SocketPath | None = None
    directories: frozenset[str] = frozenset()
    ended: frozenset[ProcessId] = frozenset()
    writing: dict[ProcessId, str] = field(default_factory=dict)
    inside: dict[ProcessId, str] = field(default_factory=dict)
    empty_cgroups: frozenset[str] = frozenset()
    containers: dict[int, Container] = field(default_factory=dict)
    gpu_files: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def living(self, identity: ProcessId) -> Process | None:
        """The process with this identity, if it is there and has not ended."""
        process = self.processes.get(identity.pid)
        return process if process and process.id == identity and not process.gone else None

    def above(self, process: Process) -> Iterator[Process]:
        """All its ancestors, the nearest first."""
        seen = {process.pid}
        while (parent := self.processes.get(process.ppid)) and parent.pid not in seen:
            seen.add(parent.pid)
            yield parent
            process = parent

    def with_all_below(self, roots: Iterable[int]) -> Iterator[Process]:
        """Them and all their descendants. Each line is followed up to the first known answer, so that it is one pass.

        Args:
            roots: their pids.
        """
        below = dict.fromkeys(roots, True)
        for process in self.processes.values():
            path: list[int] = []
            pid = process.pid
            while pid not in below and pid in self.processes and pid not in path:
                path.append(pid)
                pid = self.processes[pid].ppid
            below.update(dict.fromkeys(path, below.get(pid, False)))
            if below[process.pid]:
                yield process
