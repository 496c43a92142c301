"""Lock files whose holder is gone.

A baton (torch's extension builder) is held for as long as it exists: after a kill, every later build waits for ever
(FIELD.md A3 row 53). A soft lock holds the pid of its owner (row 54). What flock(2) locks is free as soon as its holder
is dead: such a file means nothing, is left alone, and is not mentioned.
"""

from __future__ import annotations

import os
import re
import shlex
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from supervise.host import globbing, lockfiles, mounts, procfs, usage
from supervise.model.evict import Evict
from supervise.model.litter import FileId, FileType, FoundFile, LockKind, LockReading, Unfinished, unfinished
from supervise.model.process import FIRST_PID_NAMESPACE
from supervise.model.slate import Finding, Ownership, Remove
from supervise.model.snapshot import Snapshot
from supervise.profiles.leftovers import expand
from supervise.slate.request import SlateRequest
from supervise.text import duration, plural

_KIND = "lock"
_WITHIN_S = 1.0
# At a time: what is beyond is found by the next reading, and between readings the deadline is looked at.
_MOST = 1000
_LONGEST = 1024
# Between taking a baton and the first compiler nothing can be seen of a build but its open file.
_YOUNG_S = 60.0
# The clock that files are dated by may have been set since; a process that is younger by less proves nothing.
_SLACK_S = 10.0
_MOST_NAMED = 8
# filelock: `pid host [start]` on lines of their own, and since 4.0 `key=value` lines below a title.
_OWNER = re.compile(r"(?P<pid>[0-9]{1,10})\n(?P<host>[!-~]+)\n(?:[0-9]+\n)?")
_MARKER = re.compile(r"filelock/2\n(?:[a-z]+=[!-~]+\n)+")
_MARKER_MODES = ("exclusive", "lease")
_WILD = re.compile(r"[*?[]")
_WHAT = {LockKind.BATON: "build lock", LockKind.SOFT: "download lock"}


class Owner(NamedTuple):
    """Who a soft lock says has taken it."""

    pid: int
    host: str


def survey(request: SlateRequest) -> tuple[LockReading, ...]:
    """Batons, and soft locks that say whose they are.

    Args:
        request: its rules say where they are.

    Returns:
        `owner_alive` is True if somebody of the lock's user has it open, or builds what it guards, or is the owner
        written in it; None if that cannot be told. Blocking, for two seconds at most; the first thousand of each, and
        an `Unfinished` for each directory that may hold more.
    """
    keep = expand(request.rules.keep, request.env)
    executable, rest = _files(expand(request.rules.batons, request.env), keep)
    missed = [LockReading(each, LockKind.BATON) for each in rest]
    batons = [file for file in executable if lockfiles.executable(file)]
    written, rest = _files(expand(request.rules.soft_locks, request.env), keep)
    missed += [LockReading(each, LockKind.SOFT) for each in rest]
    soft = [(file, owner) for file in written if (owner := _owner(file))]
    if not batons and not soft:
        return tuple(missed)
    # A lock is held by whoever made it: nobody but its own user's processes can be its holder.
    held, known = usage.users({file.file: file.path for file in (*batons, *(file for file, _ in soft))}, private=True)
    return (
        *_batons(batons, held, known=known),
        *(LockReading(file, LockKind.SOFT, owner.pid, _lives(owner, file, held, known=known)) for file, owner in soft),
        *missed,
    )


def judge(snapshot: Snapshot, request: SlateRequest) -> Iterator[Finding]:
    """One finding for each that is to be removed, and a remark for all that are left for the same reason."""
    left: dict[tuple[LockKind, Ownership, str, str], list[FoundFile]] = defaultdict(list)
    for lock in snapshot.litter.locks:
        if isinstance(lock.found, Unfinished):
            yield _missed(lock.kind, lock.found)
            continue
        if lock.owner_alive or lock.found.users:
            continue
        if why := _why_not(lock, snapshot, request):
            left[(lock.kind, *why)].append(lock.found)
            continue
        found = lock.found
        action = Remove(found.path, found.file, found.type, found.uid)
        blocking = lock.kind is LockKind.BATON
        yield Finding(_KIND, found.path, Ownership.STALE, _evidence(lock), action, blocking=blocking)
    for (kind, ownership, why_not, remedy), files in left.items():
        yield _remark(kind, files, ownership, why_not, remedy)


def parse_owner(data: bytes) -> Owner | None:
    """Who has written a soft lock. Pure.

    Args:
        data: what stands in it.

    Returns:
        None for an empty file (flock(2) locks it), one that was not written to its end, and whatever else is no soft
        lock of a kind that we know.
    """
    text = data.decode("utf-8", "replace")
    if match := _OWNER.fullmatch(text):
        return _plausible(match["pid"], match["host"])
    if not _MARKER.fullmatch(text):
        return None
    fields = dict(line.split("=", 1) for line in text.splitlines()[1:])
    if fields.get("mode") not in _MARKER_MODES or not fields.get("pid", "").isdigit() or "host" not in fields:
        return None
    return _plausible(fields["pid"], fields["host"])


def _plausible(pid: str, host: str) -> Owner | None:
    return Owner(int(pid), host) if 0 < int(pid) < 2**31 else None


def _files(globs: Iterable[str], keep: Iterable[str]) -> tuple[list[FoundFile], list[Unfinished]]:
    """What they match, and where there may be more."""
    deadline = time.monotonic() + _WITHIN_S
    files: dict[str, FoundFile] = {}
    missed = []
    for glob in globs:
        found = globbing.find([glob], keep=keep, within_s=deadline - time.monotonic())
        files.update((file.path, file) for file in found.files if file.type is FileType.REGULAR)
        if not found.complete:
            missed.append(unfinished(_literal(glob)))
    return [files[path] for path in sorted(files)[:_MOST]], missed


def _literal(glob: str) -> str:
    """The directory where the search for a glob begins."""
    wild = _WILD.search(glob)
    return os.path.dirname(glob[: wild.start()] if wild else glob) or "/"


def _owner(file: FoundFile) -> Owner | None:
    data = lockfiles.content(file, _LONGEST)
    return parse_owner(data) if data else None


def _batons(batons: list[FoundFile], held: Mapping[FileId, object], *, known: bool) -> Iterator[LockReading]:
    shared = mounts.remote().devices
    compilers = lockfiles.compilers() if batons else ()
    for file in batons:
        alive: bool | None = file.file in held or lockfiles.built_by(file, compilers)
        if not alive and (not known or file.file.dev in shared):
            # Whoever builds on another machine is not seen.
            alive = None
        yield LockReading(file, LockKind.BATON, None, alive)


def _lives(owner: Owner, file: FoundFile, held: Mapping[FileId, object], *, known: bool) -> bool | None:
    if file.file in held:
        return True
    if owner.host != _host() or not known:
        return None
    process = procfs.read(owner.pid, cmdline=False, environ=False)
    if process is None or process.gone:
        return False
    return procfs.age_s(process.id.ticks) + _SLACK_S >= file.age_s


def _host() -> str:
    """Our name in a soft lock.

    Pids of two containers with the name of one host mean nothing to each other: filelock then adds the namespace, and a
    bare name in a container may be anybody's.
    """
    namespace = procfs.host_id().pid_namespace
    return os.uname().nodename + ("" if namespace == FIRST_PID_NAMESPACE else f"?pidns-{namespace:x}")


def _why_not(lock: LockReading, snapshot: Snapshot, request: SlateRequest) -> tuple[Ownership, str, str] | None:
    """Whose it is, why it is left alone, and what would change that; "rm" stands for removal by hand."""
    found, root = lock.found, snapshot.uid == 0
    if lock.kind is LockKind.BATON and found.age_s < _YOUNG_S:
        return Ownership.UNKNOWN, "younger than a minute", ""
    if found.uid != snapshot.uid and not (root and found.uid in request.evict_uids):
        return Ownership.FOREIGN, f"uid {found.uid}", f"--evict-user {found.uid}" if root else ""
    if lock.owner_alive is None:
        return Ownership.UNKNOWN, "its holder may live on another machine or in another container", "rm"
    if not request.evict.covers(Evict.STALE):
        return Ownership.STALE, "nobody holds it", f"--evict {Evict.STALE}"
    return None


def _evidence(lock: LockReading) -> tuple[str, ...]:
    age = f"{duration(lock.found.age_s)} old"
    if lock.kind is LockKind.BATON:
        return "a build's lock, others wait for it for ever", "nobody has it open, no compiler works there", age
    return f"a lock of pid {lock.owner}, which is gone", age


def _missed(kind: LockKind, found: Unfinished) -> Finding:
    evidence = (f"the search in {found.path} could not be finished", f"old {_WHAT[kind]}s may be left there")
    return Finding(_KIND, found.path, Ownership.UNKNOWN, evidence, blocking=False)


def _remark(kind: LockKind, files: list[FoundFile], ownership: Ownership, why_not: str, remedy: str) -> Finding:
    what = _WHAT[kind]
    if remedy == "rm":
        remedy = f"if it does not: rm -- {shlex.join(file.path for file in files[:_MOST_NAMED])}"
    if len(files) == 1:
        return Finding(_KIND, files[0].path, ownership, (what, why_not), blocking=False, remedy=remedy)
    where = os.path.commonpath([file.path for file in files])
    return Finding(_KIND, where, ownership, (plural(len(files), what), why_not), blocking=False, remedy=remedy)
