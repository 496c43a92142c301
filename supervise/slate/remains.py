"""What dead attempts of this run leave beside processes and segments: private directories and cgroups. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from supervise.model.slate import Finding, Ownership, RemoveCgroup, RemoveTree
from supervise.model.snapshot import Snapshot
from supervise.slate import runs
from supervise.slate.request import SlateRequest


def judge(snapshot: Snapshot, request: SlateRequest, owners: Iterable[Finding]) -> Iterator[Finding]:
    """A finding for each of them that nobody needs any more."""
    yield from _trees(snapshot, request, owners)
    yield from _cgroups(snapshot, request)


def _trees(snapshot: Snapshot, request: SlateRequest, owners: Iterable[Finding]) -> Iterator[Finding]:
    """Private directories of attempts that ended without cleaning up; not while a process of theirs still runs."""
    if any(finding.blocking for finding in owners):
        return
    for record in snapshot.records:
        path = record.runtime_dir
        if path in snapshot.directories and record.run == request.run and not runs.at_work(record, snapshot, request):
            evidence = (f"private directory of attempt {record.attempt}",)
            action = RemoveTree(path, record.marker_id)
            yield Finding("directory", path, Ownership.OURS, evidence, action, blocking=False)


def _cgroups(snapshot: Snapshot, request: SlateRequest) -> Iterator[Finding]:
    """Cgroups of dead attempts that nobody is in any more: nobody else will ever remove them."""
    for record in snapshot.records:
        path = record.cgroup
        if (
            path in snapshot.empty_cgroups
            and record.run == request.run
            and record.host == snapshot.host
            and not runs.at_work(record, snapshot, request)
        ):
            evidence = (f"empty cgroup of attempt {record.attempt}",)
            yield Finding("cgroup", path, Ownership.OURS, evidence, RemoveCgroup(path), blocking=False)
