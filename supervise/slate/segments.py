"""Names in /dev/shm on the slate: what an earlier attempt wrote down, and what names an engine as its owner."""

from __future__ import annotations

from collections.abc import Iterator

from supervise.group.leftovers import ENGINE_NAMES
from supervise.model.litter import FileType, Segment
from supervise.model.slate import Finding, Ownership, Remove, Snapshot
from supervise.slate import processes
from supervise.slate.request import Host, SlateRequest


def survey(request: SlateRequest, host: Host) -> tuple[Segment, ...]:
    """Segments that ended attempts of this run wrote down as theirs; who uses them is filled in by the caller."""
    boot = host.host_id().boot_id
    # An inode means something within one boot; and a group maps files that are not its own, a model in /dev/shm, say.
    records = [record for record in request.records if record.run == request.run and record.host.boot_id == boot]
    ours = {file for record in records for file in record.segments}
    return tuple(s for s in host.segments() if s.file in ours and ENGINE_NAMES.match(s.name)) if ours else ()


def judge(snapshot: Snapshot, request: SlateRequest) -> Iterator[Finding]:
    """Segments that an ended attempt of this run wrote down as its own."""
    busy = {f for record in snapshot.records if processes.at_work(record, snapshot, request) for f in record.segments}
    for segment in snapshot.litter.segments:
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
            action = Remove(subject, segment.file, FileType.REGULAR, segment.uid)
            yield Finding("shm", subject, Ownership.STALE, (*evidence, "unmapped"), action)
