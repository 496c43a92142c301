"""Socket files that engines strew over the temporary directory, hundreds of them after some kills.

Only a file that is a socket, bears a name that an engine gives, is our own and that nobody has bound is removed
(FIELD.md A3 rows 41 and 50).
"""

from __future__ import annotations

import glob
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby

from supervise.host import globbing, mounts, removal, socketfiles
from supervise.model.evict import Evict
from supervise.model.litter import FileType, FoundFile, Unfinished, unfinished
from supervise.model.slate import Finding, Ownership, Remove
from supervise.model.snapshot import Snapshot
from supervise.profiles.leftovers import expand, temporary
from supervise.slate.request import SlateRequest
from supervise.text import duration, plural

_KIND = "endpoint"
_USUAL = "/tmp"
_WITHIN_S = 1.0
# At a time: what is beyond is found by the next reading, and between readings the deadline is looked at.
_MOST = 1000
# Whoever makes one binds it at once; but a file may appear in its directory before we know its owner.
_YOUNG_S = 2.0


def survey(request: SlateRequest) -> tuple[FoundFile, ...]:
    """Socket files with an engine's name that nobody has bound.

    Args:
        request: its rules say which names, its environment where.

    Returns:
        Without those that somebody has bound; `users_known` is False where that cannot be told. Blocking, for a second
        at most; the first thousand, and an `Unfinished` for each directory that may hold more.
    """
    names = request.rules.sockets
    if not names:
        return ()
    deadline = time.monotonic() + _WITHIN_S
    keep = expand(request.rules.keep, request.env)
    sockets: dict[str, FoundFile] = {}
    missed = []
    for place in dict.fromkeys((temporary(request.env).rstrip("/"), _USUAL)):
        found = globbing.find(
            [f"{glob.escape(place)}/*"],
            keep=keep,
            wanted=lambda name: any(pattern.fullmatch(name) for pattern in names),
            within_s=deadline - time.monotonic(),
        )
        # By path: one directory may be a link to the other.
        sockets.update((file.path, file) for file in found.files if file.type is FileType.SOCKET)
        if not found.complete:
            missed.append(unfinished(place or "/"))
    first = [sockets[path] for path in sorted(sockets)[:_MOST]]
    return (*(_unbound(first) if first else ()), *missed)


def judge(snapshot: Snapshot, request: SlateRequest) -> Iterator[Finding]:
    """One finding for each that is to be removed, and a remark for all that are left for the same reason."""
    left: dict[tuple[Ownership, str, str], list[FoundFile]] = defaultdict(list)
    for found in snapshot.litter.sockets:
        if isinstance(found, Unfinished):
            missed = (f"the search in {found.path} could not be finished", "old socket files may be left there")
            yield Finding(_KIND, found.path, Ownership.UNKNOWN, missed, blocking=False)
            continue
        if found.age_s < _YOUNG_S or _owner_lives(found, snapshot, request):
            continue
        if why := _why_not(found, snapshot, request):
            left[why].append(found)
            continue
        evidence = ("a socket file that nobody has bound", f"{duration(found.age_s)} old")
        action = Remove(found.path, found.file, found.type, found.uid)
        yield Finding(_KIND, found.path, Ownership.STALE, evidence, action, blocking=False)
    for (ownership, why_not, remedy), files in left.items():
        yield _remark(files, ownership, why_not, remedy)


def _unbound(sockets: Iterable[FoundFile]) -> Iterator[FoundFile]:
    """Without those that are bound; the kernel's table is read once for all of them."""
    shared = mounts.remote().devices
    try:
        paths = socketfiles.listed()
    except OSError:
        yield from (replace(file, users_known=False) for file in sockets)
        return
    for directory, files in groupby(sockets, key=lambda file: os.path.dirname(file.path)):
        try:
            with removal.opened_directory(directory) as place:
                for file in files:
                    bound = socketfiles.in_use(place, os.path.basename(file.path), file.file, file.path, paths)
                    if not bound:
                        yield replace(file, users_known=bound is False and file.file.dev not in shared)
        except (OSError, ValueError):
            continue


def _owner_lives(found: FoundFile, snapshot: Snapshot, request: SlateRequest) -> bool:
    """Whether the process that the name tells of is there."""
    for pattern in request.rules.sockets:
        match = pattern.fullmatch(os.path.basename(found.path))
        pid = match.groupdict().get("pid") if match else None
        process = snapshot.processes.get(int(pid)) if pid else None
        if process and not process.gone:
            return True
    return False


def _why_not(found: FoundFile, snapshot: Snapshot, request: SlateRequest) -> tuple[Ownership, str, str] | None:
    """Whose it is, why it is left alone, and what would change that."""
    root = snapshot.uid == 0
    if found.uid != snapshot.uid and not (root and found.uid in request.evict_uids):
        return Ownership.FOREIGN, f"uid {found.uid}", f"--evict-user {found.uid}" if root else ""
    if not found.users_known:
        return Ownership.UNKNOWN, "whether they are bound cannot be told, on another machine perhaps", ""
    if found.links > 1:
        # Whoever has made a second name has a use for it.
        return Ownership.UNKNOWN, f"has {found.links} names, left alone", ""
    if not request.evict.covers(Evict.STALE):
        return Ownership.STALE, "nobody has bound them", f"--evict {Evict.STALE}"
    return None


def _remark(files: list[FoundFile], ownership: Ownership, why_not: str, remedy: str) -> Finding:
    if len(files) == 1:
        return Finding(_KIND, files[0].path, ownership, ("socket file", why_not), blocking=False, remedy=remedy)
    evidence = (plural(len(files), "socket file"), why_not)
    return Finding(_KIND, os.path.dirname(files[0].path), ownership, evidence, blocking=False, remedy=remedy)
