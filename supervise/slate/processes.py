"""Processes on the slate: those of this run, orphaned engines, and whom they belong to. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from supervise.model.process import Process
from supervise.model.slate import Await, EndProcesses, Finding, Ownership, Record, Snapshot
from supervise.profiles.load import GENERIC
from supervise.slate import orphans
from supervise.slate.request import SlateRequest
from supervise.text import duration, plural


def judge(snapshot: Snapshot, request: SlateRequest) -> tuple[Finding, ...]:
    """Findings for every process of this run and every orphaned engine of our user."""
    seen: set[int] = set()
    found = []
    for process, evidence in _of_this_run(snapshot, request):
        if process.pid not in seen and process.pid not in snapshot.lineage:
            seen.add(process.pid)
            found.append(_own(process, evidence, snapshot, request))
    others = (process for process in snapshot.processes.values() if process.pid not in seen)
    found.extend(finding for process in others if (finding := _orphan(process, snapshot, request)))
    return (*found, *_left_by_other_runs(snapshot, request, ending(found)))


def at_work(record: Record, snapshot: Snapshot, request: SlateRequest) -> bool:
    """Whether the supervise or the keeper of a recorded attempt is alive: its group is theirs to end, not ours."""
    return _role(record, snapshot, request) is not None


def run_at_work(run: str, attempt: int, snapshot: Snapshot, request: SlateRequest) -> bool:
    """The same for a marker: whether somebody still contains the group of that attempt."""
    return any(
        record.run == run and record.attempt == attempt and at_work(record, snapshot, request)
        for record in snapshot.records
    )


def subject(process: Process) -> str:
    """How a process is named to people."""
    return f"pid {process.pid} {process.title[:60] or process.comm}"


def _of_this_run(snapshot: Snapshot, request: SlateRequest) -> Iterator[tuple[Process, str]]:
    """Members of this run's attempts, by record first, then by marker."""
    for record in snapshot.records:
        if record.run == request.run and record.host == snapshot.host and record.leader:
            process = snapshot.processes.get(record.leader.pid)
            if process and process.id == record.leader and not process.gone:
                yield process, f"leader of attempt {record.attempt} by its record"
    for process in snapshot.processes.values():
        marker = process.marker
        if marker and marker.run == request.run and not process.gone and _known(marker.id, snapshot, request):
            yield process, f"marker of attempt {marker.attempt}"


def _known(marker_id: str, snapshot: Snapshot, request: SlateRequest) -> bool:
    """A marker counts if its id is that of an attempt that we have a record of: a name alone can be anybody's."""
    return any(record.run == request.run and record.marker_id == marker_id for record in snapshot.records)


def _own(process: Process, evidence: str, snapshot: Snapshot, request: SlateRequest) -> Finding:
    proofs = (evidence, f"ppid {process.ppid}", duration(snapshot.ages_s.get(process.pid, 0.0)))
    record = _record_of(process, snapshot, request)
    role = _role(record, snapshot, request) if record else None
    if role == "supervise":
        remedy = f"supervise stop {request.run}"
        return Finding("process", subject(process), Ownership.LIVE, proofs, remedy=remedy)
    if role == "keeper":
        action = Await("its keeper is ending it", (process.id,))
        return Finding("process", subject(process), Ownership.OURS, (*proofs, "its keeper lives"), action)
    if process.uid not in (snapshot.uid, None) and snapshot.uid != 0:
        evidence_uid = f"uid {process.uid}"
        remedy = f"sudo kill {process.pid}"
        return Finding("process", subject(process), Ownership.FOREIGN, (*proofs, evidence_uid), remedy=remedy)
    return Finding("process", subject(process), Ownership.STALE, proofs, EndProcesses((process.id,)))


def _record_of(process: Process, snapshot: Snapshot, request: SlateRequest) -> Record | None:
    for record in snapshot.records:
        by_marker = process.marker is not None and process.marker.id == record.marker_id
        if record.run == request.run and (by_marker or process.id == record.leader):
            return record
    return None


def _role(record: Record, snapshot: Snapshot, request: SlateRequest) -> str | None:
    """Who of an attempt is alive; for this run we ourselves do not count, we are only about to begin the next one."""
    if record.host != snapshot.host:
        return None
    for name, identity in (("supervise", record.supervisor), ("keeper", record.keeper)):
        if identity is None or (record.run == request.run and identity.pid in snapshot.lineage):
            continue
        process = snapshot.processes.get(identity.pid)
        if process is not None and process.id == identity and not process.gone:
            return name
    return None


def _orphan(process: Process, snapshot: Snapshot, request: SlateRequest) -> Finding | None:
    """An engine process without a launcher: ended if everything proves it, a remark if somebody may still use it."""
    if request.need is not None and request.need.profile == GENERIC:
        # A program that is no engine is not spoilt by what an engine left.
        return None
    profile = orphans.engine(process, request.profiles)
    if profile is None or process.gone or process.pid in snapshot.lineage:
        return None
    if orphans.protected(process, request.profiles) or process.uid != snapshot.uid:
        return None
    if process.namespace != snapshot.host.pid_namespace:
        return None
    marker = process.marker
    if marker and run_at_work(marker.run, marker.attempt, snapshot, request):
        return None
    proofs = orphans.why_orphan(process, snapshot.processes)
    if proofs is None:
        return None
    age = duration(snapshot.ages_s.get(process.pid, 0.0))
    told = (f"orphan of {f'run {marker.run}' if marker else profile.name}", *proofs, age)
    elsewhere = set(snapshot.serving.get(process.pid, ())) - _wanted_ports(request)
    if elsewhere:
        evidence = (*told, f"serves port {min(elsewhere)}")
        remedy = f"if nobody needs it: kill {process.pid}"
        return Finding("process", subject(process), Ownership.UNKNOWN, evidence, blocking=False, remedy=remedy)
    return Finding("process", subject(process), Ownership.STALE, told, EndProcesses((process.id,)))


def _wanted_ports(request: SlateRequest) -> set[int]:
    return {port.number for port in request.need.ports} if request.need else set()


def _left_by_other_runs(snapshot: Snapshot, request: SlateRequest, ending: frozenset[int]) -> Iterator[Finding]:
    """Other runs of which something runs on although nobody contains it any more: theirs to clean, ours to tell."""
    for record in snapshot.records:
        if record.run == request.run or record.host != snapshot.host or at_work(record, snapshot, request):
            continue
        left = [
            process.pid
            for process in snapshot.processes.values()
            if process.marker and process.marker.id == record.marker_id and not process.gone
        ]
        if alone := sorted(set(left) - ending - snapshot.lineage):
            told = f"{plural(len(alone), 'process')} without a supervise, pid {alone[0]}{' …' if alone[1:] else ''}"
            name = f"run {record.run} attempt {record.attempt}"
            remedy = f"supervise clean --name {record.run}"
            yield Finding("run", name, Ownership.STALE, (told,), blocking=False, remedy=remedy)


def ending(findings: Iterable[Finding]) -> frozenset[int]:
    """Pids that are about to be ended, or awaited, by these findings."""
    actions = (finding.action for finding in findings)
    return frozenset(
        target.pid for action in actions if isinstance(action, EndProcesses | Await) for target in action.targets
    )
