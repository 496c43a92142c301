"""Everything that may be left over apart from processes, ports and GPUs: one reading of all kinds."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TypeVar

from supervise.host import shm, usage
from supervise.model.litter import FileId, FoundFile, Litter, Segment
from supervise.slate import artefacts, bytecode, caches, endpoints, locks, segments, sessions, sysv
from supervise.slate.request import Host, SlateRequest

_Found = TypeVar("_Found", FoundFile, Segment)


def survey(request: SlateRequest, host: Host) -> Litter:
    """Read what lies about, with who uses it: all kinds share one look at every process.

    Args:
        request: what the slate is for: it decides what is looked for.
        host: the readers.
    """
    found = Litter(
        segments=segments.survey(request, host),
        sysv=sysv.survey(request),
        sockets=endpoints.survey(request),
        locks=locks.survey(request),
        artefacts=artefacts.survey(request),
        bytecode=bytecode.survey(request),
        caches=caches.survey(request),
        sessions=sessions.survey(request),
    )
    plain = (*found.artefacts, *found.bytecode, *(lock.found for lock in found.locks))
    paths = {f.file: f.path for f in plain} | {s.file: f"{shm.DIRECTORY}/{s.name}" for s in found.segments}
    closed = {s.file for s in found.segments if s.private and s.uid == os.geteuid()}
    told = usage.read(paths, closed)
    return replace(
        found,
        segments=tuple(_with_users(each, each.file, told) for each in found.segments),
        locks=tuple(replace(lock, found=_with_users(lock.found, lock.found.file, told)) for lock in found.locks),
        artefacts=tuple(_with_users(each, each.file, told) for each in found.artefacts),
        bytecode=tuple(_with_users(each, each.file, told) for each in found.bytecode),
    )


def _with_users(found: _Found, file: FileId, told: usage.Usage) -> _Found:
    return replace(found, users=told.users.get(file, ()), users_known=file in told.known)
