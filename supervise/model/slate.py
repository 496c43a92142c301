"""The words of the clean slate: finding, ownership, action, verdict."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from supervise.model.evict import Evict
from supervise.model.litter import FileId, FileType
from supervise.model.preflight import Check, Level
from supervise.model.process import ProcessId
from supervise.model.snapshot import NO_GPUS, Gpus


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
    gpus: Gpus = NO_GPUS
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
