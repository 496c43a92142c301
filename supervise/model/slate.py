"""The words of the clean slate: reading, finding, ownership, action, verdict."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from supervise.model.evict import Evict
from supervise.model.litter import FileId, FileType, Litter
from supervise.model.preflight import Check, Level
from supervise.model.process import Container, HostId, Process, ProcessId


class Ownership(StrEnum):
    """Whose a finding is. Only OURS and STALE are ever acted upon."""

    OURS = "ours"
    STALE = "stale"
    LIVE = "live"
    FOREIGN = "foreign"
    PROTECTED = "protected"
    UNKNOWN = "unknown"


class Verdict(StrEnum):
    """What a second look found after an action. UNKNOWN never counts as clean."""

    GONE = "gone"
    REMAINS = "remains"
    UNKNOWN = "unknown"


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
    gpus: Gpus = Gpus(GpuStatus.ABSENT)
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


class EndProcesses(NamedTuple):
    """End these processes by the one stop path."""

    targets: tuple[ProcessId, ...]


class Remove(NamedTuple):
    """Remove this name if it still is this very file or socket of this user, and nobody uses it."""

    path: str
    file: FileId
    type: FileType
    uid: int


class RemoveSysv(NamedTuple):
    """Remove this System V segment if it still is the one that this process created and nobody is attached."""

    id: int
    key: int
    creator: int


class MoveAside(NamedTuple):
    """Rename this directory to `aside` beside it if it still is this very one of this user, and nobody uses it."""

    path: str
    file: FileId
    uid: int
    aside: str


class RemoveTree(NamedTuple):
    """Remove the private directory of an ended attempt of ours; `owner` is the marker id that must stand in it."""

    path: str
    owner: str


class RemoveCgroup(NamedTuple):
    """Remove this cgroup of a dead attempt of ours, with those below it, as far as they are empty."""

    path: str


class Await(NamedTuple):
    """Nothing to do but wait: somebody else is already ending it (a keeper, the kernel, the driver).

    `targets` are the processes that are being ended, if it is them that are waited for.
    """

    why: str
    targets: tuple[ProcessId, ...] = ()


Action = EndProcesses | Remove | RemoveSysv | MoveAside | RemoveTree | RemoveCgroup | Await


class Eviction(NamedTuple):
    """What would clear a holder out of the way if the policy went as far as `level`."""

    level: Evict
    action: EndProcesses


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that dirties the slate.

    `subject` names it ("pid 4711 VLLM::EngineCore"), `evidence` says how we know whose it is. A finding without an
    `action` is an obstacle if it is `blocking`, else a remark; `remedy` is the option or command that resolves it, and
    `eviction` what the user may consent to.
    """

    kind: str
    subject: str
    ownership: Ownership
    evidence: tuple[str, ...]
    action: Action | None = None
    blocking: bool = True
    remedy: str = ""
    eviction: Eviction | None = None

    @property
    def key(self) -> tuple[str, str]:
        """What makes two findings of two snapshots the same."""
        return (self.kind, self.subject)


class Outcome(NamedTuple):
    """A finding with what was done about it and what a second look found."""

    finding: Finding
    verdict: Verdict
    did: str
    seconds: float


@dataclass(frozen=True, slots=True)
class SlateResult:
    """The slate, judged.

    `outcomes` are findings that something was done about, `obstacles` those that nothing may be done about, `remarks`
    those that stand in nobody's way. `checks` are the sentences of what was verified. `gpus` is the last reading: what
    memory the launch began with.
    """

    run: str
    outcomes: tuple[Outcome, ...]
    obstacles: tuple[Finding, ...]
    remarks: tuple[Finding, ...]
    checks: tuple[str, ...]
    seconds: float
    gpus: Gpus = Gpus(GpuStatus.ABSENT)
    preflight: tuple[Check, ...] = ()

    @property
    def clean(self) -> bool:
        """Whether a launch may follow."""
        done = all(outcome.verdict is Verdict.GONE for outcome in self.outcomes if outcome.finding.blocking)
        return done and not self.obstacles and not self.refusals

    @property
    def refusals(self) -> tuple[Check, ...]:
        """What makes the launch fail for certain."""
        return tuple(check for check in self.preflight if check.level is Level.REFUSAL)
