"""The words of diagnosis: line, signature, cause, how an attempt ended."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a server's log, taken apart.

    `number` counts from 1 in the attempt's log; lines end at LF or CR. `process` is the name in the prefix
    ("Worker_TP0", "EngineCore", "TP0"), None without one; `raw` is the whole line and `text` the line without its
    prefix, both without escape sequences and control characters: safe to print. `record` is True if a logger's prefix
    began the line. `rank` is the number of the rank that the prefix names, `time` its moment, as it stands there.
    """

    number: int
    raw: str
    text: str
    process: str | None = None
    pid: int | None = None
    level: str | None = None
    source: str | None = None
    record: bool = False
    rank: int | None = None
    time: str | None = None


class Kind(StrEnum):
    """Who reports a failure: Python, native code, a compiler, or a command that refuses to start as it was called."""

    PYTHON = "python"
    NATIVE = "native"
    BUILD = "build"
    USAGE = "usage"


class Owner(StrEnum):
    """Whose code a frame is in: the engine's, the user's own, or a library's."""

    ENGINE = "engine"
    USER = "user"
    LIBRARY = "library"


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a traceback. `line` counts from 1; `source` is the line of code, None where it was not printed."""

    file: str
    line: int
    function: str | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Traceback:
    """One report of a failure that goes over several lines, known up to the line that names it.

    `header` is what its process said right before ("WorkerProc failed to start."), None if nothing; `frames` are the
    last lines between the first and the exception. `process` is the one that raised, as far as prefixes and header
    tell. `chain` counts the blocks of a chain from 0: the first one is what went wrong, the later ones are what that
    led to. `cause` is a line that says more exactly what went wrong than `exception` does, mostly one inside of its
    message; None while none was seen. `stage` is the phase that its frames tell, None if they tell none. (`process`,
    `pid`, `first`, `chain`) tell a report from all others.
    """

    exception: Line
    first: int
    header: Line | None = None
    frames: tuple[Line, ...] = ()
    process: str | None = None
    pid: int | None = None
    chain: int = 0
    kind: Kind = Kind.PYTHON
    cause: Line | None = None
    stage: str | None = None


class Role(StrEnum):
    """What a match says.

    ROOT is a cause. CASCADE is an echo of a cause that was printed elsewhere and is never reported as one. CONFIRMATION
    is an echo that quotes its cause, good where the cause itself is missing. CONTEXT is worth quoting, not more. ASKED
    says that somebody asked the server to end, ENDING that it ends in order, whoever wanted it: servers print that of a
    failure as well.
    """

    ROOT = "root"
    CASCADE = "cascade"
    CONFIRMATION = "confirmation"
    CONTEXT = "context"
    ASKED = "asked"
    ENDING = "ending"


class FailureClass(StrEnum):
    """Whether a relaunch can help (FIELD.md B10)."""

    DETERMINISTIC = "deterministic"
    TRANSIENT = "transient"
    LOAD = "load"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Signature:
    """A known failure, as data (profiles/signatures/*.toml).

    `literals` are cheap substrings of which at least one is in every matching line; `pattern` is searched in a line's
    text. `fatal` is True if a server cannot go on after it. `phase` is the phase that the failure belongs to, None for
    any. `at_run` is the class of the same failure in a server that had been ready, None where it is the same. `meaning`
    and `advice` may use named groups of the pattern as {name}. `constraint` says when the advice must not be
    followed, or what it costs; None if it costs nothing. `match` and `nomatch` are lines as they stand in a log.
    `explains` are ids of failures to which it adds who met them: where it is raised from one of these, what it advises
    counts.
    """

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
    constraint: str | None = None
    at_run: FailureClass | None = None
    explains: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Trap:
    """A line that looks fatal and is not (FIELD.md B9). It hides the line from every signature.

    `covers` is True if it also says that the traceback below it was handled.
    """

    id: str
    literals: tuple[str, ...]
    pattern: re.Pattern[str]
    why: str
    match: tuple[str, ...]
    nomatch: tuple[str, ...]
    covers: bool = False


@dataclass(frozen=True, slots=True)
class SignatureSet:
    """Signatures and traps of all sets that a profile includes."""

    signatures: tuple[Signature, ...] = ()
    traps: tuple[Trap, ...] = ()


@dataclass(frozen=True, slots=True)
class Fatal:
    """A live server's log says that it cannot go on: `line` with its `text`, and what is known about it."""

    line: Line
    text: str
    signature: str | None = None
    meaning: str = ""


@dataclass(frozen=True, slots=True)
class End:
    """How the leader ended, as far as the kernel and our own doing can tell.

    `code` is the exit code, `signal` the signal that killed it; both None while it lives. `sent` are the signals we
    sent to the group, None if nobody noted them: 137 proves nothing by itself. `requested` is True if the stop was
    asked of us. `known` is False for a log from anywhere, of which nobody can tell how its server ended, or whether it
    did. `oom_kills` counts those of the group's cgroup during the attempt (memory.events), None where that cannot be
    read; `kernel` are lines of the kernel's log that concern the group.
    """

    code: int | None = None
    signal: int | None = None
    requested: bool = False
    sent: tuple[int, ...] | None = ()
    ready: bool = False
    phase: str | None = None
    known: bool = True
    oom_kills: int | None = None
    kernel: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The first cause.

    `text` is the line as in the log without its prefix; None together with `line` when nobody printed one. `fatal` is
    False if the log shows no failure: a server that runs, or that ended as it was asked to. `fingerprint` is the same
    for the same failure whatever its pids, ranks, addresses, sizes and dates; None where there is no cause. `end` is
    how it ended in a few words ("exited with 4"), where nobody printed a cause and that much is known.
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
    fatal: bool = True
    rank: int | None = None
    fingerprint: str | None = None
    end: str | None = None

    @property
    def deterministic(self) -> bool:
        """Whether the same launch would fail the same way."""
        return self.failure is FailureClass.DETERMINISTIC


@dataclass(frozen=True, slots=True)
class Progress:
    """Where start-up is: the phase, and percent with counts when a bar was seen."""

    phase: str
    percent: int | None = None
    done: int | None = None
    total: int | None = None
