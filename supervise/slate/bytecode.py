"""Bytecode that would be believed although its source changed: an edit that has no effect."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterator
from dataclasses import dataclass

from supervise.host import compiled
from supervise.host.compiled import Candidate
from supervise.model.evict import Evict
from supervise.model.litter import FileId, FileType, FoundFile
from supervise.model.slate import Finding, Ownership, Remove
from supervise.model.snapshot import Snapshot
from supervise.slate.request import SlateRequest
from supervise.text import plural, printable

KIND = "bytecode"
_DEADLINE_S = 10.0
_EVIDENCE = "Python believes it (time and size, or an unchecked hash, fit), but its source compiles to something else"
# A sweep looks several times, and nothing is compiled twice as long as neither file changes.
_REMEMBERED: dict[tuple[str, Candidate], bool] = {}
# Nor is what took too long tried again at the next look: until when, on the monotonic clock.
_GIVEN_UP: dict[tuple[str, Candidate], float] = {}
_RETRY_S = 60.0
_MOST = 100_000


@dataclass(frozen=True, slots=True)
class Unproven(FoundFile):
    """One of which it could not be told; `why` is a phrase."""

    why: str = ""


def survey(request: SlateRequest) -> tuple[FoundFile, ...]:
    """Look at the bytecode of the packages that were asked for, where the server's interpreter is known.

    Args:
        request: its packages, interpreter and environment.

    Returns:
        Files that are not what their source compiles to, and those of which that could not be told. Blocking: a few
        stats for each file, and for the doubtful ones at most ten seconds.
    """
    if not request.packages:
        return ()
    deadline = time.monotonic() + _DEADLINE_S
    prefix = request.env.get("PYTHONPYCACHEPREFIX", "")
    unread: list[str] = []
    found = [
        candidate
        for directory in request.packages
        if os.path.isabs(directory)
        for candidate in compiled.candidates(directory, deadline, prefix=prefix, unread=unread)
    ]
    told = _prove(found, request.python, deadline)
    why = "not compiled in time" if request.python else "the server's Python is not known"
    files = [
        *(_found(candidate) for candidate in found if told.get(candidate)),
        *(_unproven(candidate.path, why) for candidate in found if candidate not in told),
        *(_unproven(directory, "the directory could not be read in time") for directory in unread),
    ]
    return tuple(file for file in files if file is not None)


def _prove(found: list[Candidate], python: str | None, deadline: float) -> dict[Candidate, bool]:
    if python is None or not found:
        return {}
    now = time.monotonic()
    fresh = [c for c in found if (python, c) not in _REMEMBERED and now >= _GIVEN_UP.get((python, c), 0.0)]
    if fresh:
        if len(_REMEMBERED) + len(_GIVEN_UP) > _MOST:
            _REMEMBERED.clear()
            _GIVEN_UP.clear()
        proven = compiled.prove(fresh, python, deadline)
        _REMEMBERED.update({(python, candidate): differs for candidate, differs in proven.items()})
        _GIVEN_UP.update({(python, candidate): now + _RETRY_S for candidate in fresh if candidate not in proven})
    return {c: _REMEMBERED[python, c] for c in found if (python, c) in _REMEMBERED}


def _found(candidate: Candidate) -> FoundFile | None:
    """The file if it still is the one that was compared."""
    try:
        state = os.lstat(candidate.path)
    except OSError:
        return None
    if compiled.identity(state) != candidate.state:
        return None
    file = FileId(state.st_dev, state.st_ino)
    age = max(0.0, time.time() - state.st_mtime)
    return FoundFile(candidate.path, file, FileType.REGULAR, state.st_size, state.st_uid, age, state.st_nlink)


def _unproven(path: str, why: str) -> Unproven | None:
    try:
        state = os.lstat(path)
    except OSError:
        return None
    file = FileId(state.st_dev, state.st_ino)
    return Unproven(path, file, FileType.OTHER, state.st_size, state.st_uid, 0.0, why=why)


def judge(snapshot: Snapshot, request: SlateRequest) -> Iterator[Finding]:
    """What of it is removed: our own. An edit that silently has no effect is worse than a launch that waits for a word.

    Args:
        snapshot: the reading.
        request: how far to go.
    """
    for name in request.missing:
        told = "no such directory, and no such package where the server's Python looks"
        yield Finding("package", name, Ownership.UNKNOWN, (told,), None, blocking=False, remedy="correct --package")
    for found in snapshot.litter.bytecode:
        if not isinstance(found, Unproven):
            yield _stale(found, snapshot, request)
    unproven = [found for found in snapshot.litter.bytecode if isinstance(found, Unproven)]
    for why in dict.fromkeys(found.why for found in unproven):
        paths = [printable(found.path) for found in unproven if found.why == why]
        subject = f"{plural(len(paths), 'place')} with compiled Python not compared with the source"
        yield Finding(KIND, subject, Ownership.UNKNOWN, (why, *paths[:5]), None, blocking=False)


def _stale(found: FoundFile, snapshot: Snapshot, request: SlateRequest) -> Finding:
    subject = printable(found.path)
    command = f"rm -- {shlex.quote(subject)}"
    if found.uid != snapshot.uid:
        evidence = (_EVIDENCE, f"uid {found.uid}'s")
        return Finding(KIND, subject, Ownership.FOREIGN, evidence, None, blocking=False, remedy=command)
    if found.links > 1:  # conda's package cache has it, too; what has two names is never removed
        evidence = (_EVIDENCE, f"{found.links} names")
        return Finding(KIND, subject, Ownership.STALE, evidence, None, blocking=False, remedy=command)
    if not request.evict.covers(Evict.STALE):
        remedy = f"--evict stale, or {command}"
        return Finding(KIND, subject, Ownership.STALE, (_EVIDENCE,), None, blocking=False, remedy=remedy)
    action = Remove(found.path, found.file, found.type, found.uid)
    # Beside a process that cannot be looked into (an ssh-agent), nothing is removed; no launch is refused for that.
    return Finding(KIND, subject, Ownership.STALE, (_EVIDENCE,), action, blocking=found.users_known, remedy=command)
