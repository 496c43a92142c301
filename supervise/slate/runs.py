"""Runs at work: whose supervise, keeper or guard lives, and which processes are theirs to end, not ours. Pure."""

from __future__ import annotations

from supervise.model.process import Process
from supervise.model.snapshot import Record, Snapshot
from supervise.profiles.match import started
from supervise.slate.request import SlateRequest

_KEEPERS = frozenset({"supervise-keep", "supervise-guard", "supervise-init"})


def at_work(record: Record, snapshot: Snapshot, request: SlateRequest) -> bool:
    """Whether supervise, keeper or guard of a recorded attempt is alive: its group is theirs to end, not ours."""
    return role_at_work(record, snapshot, request) is not None


def role_at_work(record: Record, snapshot: Snapshot, request: SlateRequest) -> str | None:
    """Who of an attempt is alive; for this run we ourselves do not count, we are only about to begin the next one."""
    if record.host != snapshot.host:
        return None
    for name, identity in (("supervise", record.supervisor), ("keeper", record.keeper), ("guard", record.guard)):
        if identity is None or (record.run == request.run and identity.pid in snapshot.lineage):
            continue
        if snapshot.living(identity):
            return name
    return None


def run_of(process: Process, snapshot: Snapshot, request: SlateRequest) -> str | None:
    """The run at work that a process belongs to, told by the marker or the record, its own or that of an ancestor.

    Args:
        process: the process.
        snapshot: the reading it is from.
        request: whose slate it is.

    Returns:
        Its name, None if it belongs to none. A supervise of another state directory has no record here: then it is
        what the marker says, or an empty name.
    """
    active = [record for record in snapshot.records if at_work(record, snapshot, request)]
    line = [process, *snapshot.above(process)]
    for each in line:
        for record in active:
            if _belongs(each, record, snapshot):
                return record.run
    if any(_supervises(each) and each.pid not in snapshot.lineage for each in line):
        return process.marker.run if process.marker else ""
    return None


def claimed(process: Process, snapshot: Snapshot, request: SlateRequest) -> bool:
    """Whether another run at work has a nearer claim on a process than the run of this request.

    The nearest wins, from the process upwards: a run may have been started inside another, either way round, and what
    is orphaned falls to the keeper of the outer one.

    Args:
        process: the process.
        snapshot: the reading it is from.
        request: whose slate it is.
    """
    others = [r for r in snapshot.records if r.run != request.run and at_work(r, snapshot, request)]
    own = [record for record in snapshot.records if record.run == request.run]
    for each in (process, *snapshot.above(process)):
        if any(_belongs(each, record, snapshot) for record in others):
            return True
        if any(_is_of(each, record, snapshot) for record in own):
            return False
        if _supervises(each) and each.pid not in snapshot.lineage:
            return True
    return False


def _belongs(process: Process, record: Record, snapshot: Snapshot) -> bool:
    if _is_of(process, record, snapshot):
        return True
    if record.cgroup is not None and snapshot.inside.get(process.id) == record.cgroup:
        return True
    return process.id in record.members


def _is_of(process: Process, record: Record, snapshot: Snapshot) -> bool:
    """Whether only that attempt can have made it: `members` of an outer run may be an inner one's as well."""
    marker = process.marker
    if marker and (marker.run, marker.attempt) == (record.run, record.attempt):
        return True
    if record.host != snapshot.host:
        return False
    return process.id in (record.supervisor, record.keeper, record.guard, record.leader)


def _supervises(process: Process) -> bool:
    return process.comm in _KEEPERS or started(process.argv or ()) == "supervise"
