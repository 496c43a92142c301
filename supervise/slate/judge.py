"""Judgement: what dirties the slate, whose it is, and what may be done about it. Pure.

Only what is proven ours, or proven stale, gets an action. Everything else that stands in the way is an obstacle with
the exact command that resolves it; everything else that does not stand in the way is left alone and not mentioned.
"""

from __future__ import annotations

from collections.abc import Iterable

from supervise.model.slate import (
    Finding,
    Ownership,
    RemoveCgroup,
    RemoveTree,
    Snapshot,
    Unlink,
)
from supervise.slate import gpus, ports, processes, uds
from supervise.slate.request import SlateRequest


def judge(snapshot: Snapshot, request: SlateRequest) -> tuple[Finding, ...]:
    """All findings of one reading, in the order in which they are to be dealt with.

    Args:
        snapshot: the reading.
        request: what the slate is for.

    Returns:
        Findings with an action for what is ours or stale; without one for obstacles and remarks.
    """
    owners = processes.judge(snapshot, request)
    found = [
        *owners,
        *ports.judge(snapshot, request, owners),
        *gpus.judge(snapshot, request, owners),
        *_segments(snapshot, request),
        *uds.judge(snapshot, request, owners),
        *_trees(snapshot, request, owners),
        *_cgroups(snapshot, request),
    ]
    return tuple(found)


def _segments(snapshot: Snapshot, request: SlateRequest) -> Iterable[Finding]:
    """Segments that an ended attempt of this run wrote down as its own."""
    busy = {f for record in snapshot.records if processes.at_work(record, snapshot, request) for f in record.segments}
    for segment in snapshot.segments:
        if segment.file in busy:
            continue
        evidence = (f"recorded by an earlier attempt, {segment.size / 2**20:.0f} MiB",)
        subject = f"/dev/shm/{segment.name}"
        if segment.uid != snapshot.uid:
            yield Finding("shm", subject, Ownership.FOREIGN, (*evidence, f"uid {segment.uid}"), blocking=False)
        elif segment.users:
            # Its users are findings themselves if they are ours; if not, it is not ours any more either.
            continue
        elif not segment.users_known:
            yield Finding("shm", subject, Ownership.UNKNOWN, (*evidence, "its users cannot be read"), blocking=False)
        else:
            yield Finding("shm", subject, Ownership.STALE, (*evidence, "unmapped"), Unlink(segment.name, segment.file))


def _trees(snapshot: Snapshot, request: SlateRequest, owners: Iterable[Finding]) -> Iterable[Finding]:
    """Private directories of attempts that ended without cleaning up; not while a process of theirs still runs."""
    if any(finding.blocking for finding in owners):
        return
    for record in snapshot.records:
        path = record.runtime_dir
        if (
            path in snapshot.directories
            and record.run == request.run
            and not processes.at_work(record, snapshot, request)
        ):
            evidence = (f"private directory of attempt {record.attempt}",)
            action = RemoveTree(path, record.marker_id)
            yield Finding("directory", path, Ownership.OURS, evidence, action, blocking=False)


def _cgroups(snapshot: Snapshot, request: SlateRequest) -> Iterable[Finding]:
    """Cgroups of dead attempts that nobody is in any more: nobody else will ever remove them."""
    for record in snapshot.records:
        path = record.cgroup
        if (
            path in snapshot.empty_cgroups
            and record.run == request.run
            and record.host == snapshot.host
            and not processes.at_work(record, snapshot, request)
        ):
            evidence = (f"empty cgroup of attempt {record.attempt}",)
            yield Finding("cgroup", path, Ownership.OURS, evidence, RemoveCgroup(path), blocking=False)
