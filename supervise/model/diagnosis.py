"""The words of diagnosis: line, signature, cause, how an attempt ended."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a server's log, taken apart.

    `number` counts from 1 in the attempt's log; lines end at LF or CR. `process` is the name in the prefix
    ("Worker_TP0", "EngineCore", "TP0"), None without one; `text` is the line without prefix and ANSI codes.
    """

    number: int
    raw: str
    text: str
    process: str | None = None
    pid: int | None = None
    level: str | None = None
    source: str | None = None


class Role(StrEnum):
    """What a match says: the cause itself, an echo of it, a proof for it, or background."""

    ROOT = "root"
    CASCADE = "cascade"
    CONFIRMATION = "confirmation"
    CONTEXT = "context"


class FailureClass(StrEnum):
    """Whether a relaunch can help (FIELD.md B10)."""

    DETERMINISTIC = "deterministic"
    TRANSIENT = "transient"
    LOAD = "load"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Signature:
    """A known failure, as data. `literals` are cheap substrings of which at least one is in every matching line."""

    id: str
    role: Role
    literals: tuple[str, ...]
    pattern: re.Pattern[str]
    failure: FailureClass
    fatal: bool
    phase: str | None
    meaning: str
    advice: tuple[str, ...]
    match: tuple[str, ...]
    nomatch: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Trap:
    """A line that looks fatal and is not (FIELD.md B9). It hides the line from every signature."""

    id: str
    literals: tuple[str, ...]
    pattern: re.Pattern[str]
    why: str
    match: tuple[str, ...]
    nomatch: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SignatureSet:
    """Signatures and traps of all sets that a profile includes."""

    signatures: tuple[Signature, ...] = ()
    traps: tuple[Trap, ...] = ()


@dataclass(frozen=True, slots=True)
class End:
    """How the leader ended, as far as the kernel and our own doing can tell.

    `code` is the exit code, `signal` the signal that killed it; both None while it lives. `sent` are the signals we sent
    to the group: 137 proves nothing by itself. `requested` is True if the stop was asked of us.
    """

    code: int | None = None
    signal: int | None = None
    requested: bool = False
    sent: tuple[int, ...] = ()
    ready: bool = False
    phase: str | None = None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The first cause.

    `text` is the line as in the log without its prefix; None together with `line` when nobody printed one.
    """

    text: str | None
    line: int | None
    process: str | None
    signature: str | None
    failure: FailureClass
    phase: str | None
    meaning: str
    advice: tuple[str, ...]
    evidence: tuple[Line, ...] = ()


@dataclass(frozen=True, slots=True)
class Progress:
    """Where start-up is: the phase, and percent with counts when a bar was seen."""

    phase: str
    percent: int | None = None
    done: int | None = None
    total: int | None = None
