"""Processes on the slate: those of this run, orphaned engines, and whom they belong to. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from supervise.model.evict import Evict
from supervise.model.process import Process, ProcessId
from supervise.model.slate import Await, EndProcesses, Eviction, Finding, Ownership
from supervise.model.snapshot import LOST_ID, Record, Snapshot
from supervise.profiles.load import GENERIC
from supervise.slate import orphans, policy, runs
from supervise.slate.request import SlateRequest
from supervise.text import duration, plural


class _Proof(NamedTuple):
    """Why a process belongs to an attempt of this run: whose record says so, and how people are told."""

    record: Record
    evidence: str


def judge(snapshot: Snapshot, request: SlateRequest) -> tuple[Finding, ...]:
    """Findings for every process of this run and every orphaned engine of our user."""
    ours = {pid: proofs for pid, proofs in _of_this_run(snapshot, request).items() if pid not in snapshot.lineage}
    found = [_own(snapshot.processes[pid], proofs, snapshot, request) for pid, proofs in ours.items()]
    if request.need is None or request.need.profile != GENERIC:
        # A program that is no engine is not spoilt by what an engine left.
        others = (process for process in snapshot.processes.values() if process.pid not in ours)
        found.extend(finding for process in others if (finding := _orphan(process, snapshot, request)))
        found.extend(_compilers(snapshot, request, ours))
    found.extend(_nameless(snapshot, request, ours))
    return (*found, *_left_by_other_runs(snapshot, request, ending(found)))


def subject(process: Process) -> str:
    """How a process is named to people."""
    return f"pid {process.pid} {process.title[:60] or process.comm}"


def _of_this_run(snapshot: Snapshot, request: SlateRequest) -> dict[int, list[_Proof]]:
    """Members of this run's attempts by pid, each with everything that proves it, the most trustworthy first."""
    own = [record for record in snapshot.records if record.run == request.run]
    found: dict[int, list[_Proof]] = defaultdict(list)
    for search in (_leaders, _recorded, _marked, _writers, _contained):
        for record in own:
            for process, evidence in search(record, snapshot):
                if not process.gone and not runs.claimed(process, snapshot, request):
                    found[process.pid].append(_Proof(record, evidence))
    for process, proof in _of_our_raylets(found, snapshot):
        found[process.pid].append(proof)
    return found


def _of_our_raylets(found: Mapping[int, Sequence[_Proof]], snapshot: Snapshot) -> list[tuple[Process, _Proof]]:
    """Workers of a Ray cluster that a member of ours has started: its raylet starts them, outside of the group."""
    raylets = {pid: proofs[0].record for pid, proofs in found.items() if snapshot.processes[pid].comm == "raylet"}
    return [
        (process, _Proof(record, f"of the raylet of attempt {record.attempt}"))
        for process in snapshot.processes.values()
        if (record := raylets.get(process.ppid)) and process.title.startswith("ray::")
        if not process.gone and not _of_another_run(process, record, snapshot)
    ]


def _nameless(snapshot: Snapshot, request: SlateRequest, ours: Container[int]) -> Iterator[Finding]:
    """Processes that bear the name of an attempt whose record is lost: a run of that name elsewhere has the same."""
    lost = {record.attempt for record in snapshot.records if record.run == request.run and record.marker_id == LOST_ID}
    known = {record.marker_id for record in snapshot.records}
    for process in snapshot.processes.values() if lost else ():
        marker = process.marker
        if marker is None or process.gone or process.pid in ours or process.pid in snapshot.lineage:
            continue
        if marker.run == request.run and marker.attempt in lost and marker.id not in known:
            told = (f"marker of attempt {marker.attempt}, whose record is lost or damaged", f"ppid {process.ppid}")
            remedy = f"if it is yours: kill {process.pid}"
            yield Finding("process", subject(process), Ownership.UNKNOWN, told, remedy=remedy)


def _leaders(record: Record, snapshot: Snapshot) -> Iterator[tuple[Process, str]]:
    """The process that the attempt launched."""
    if record.host == snapshot.host and record.leader and (process := snapshot.living(record.leader)):
        yield process, f"leader of attempt {record.attempt} by its record"


def _recorded(record: Record, snapshot: Snapshot) -> Iterator[tuple[Process, str]]:
    """Processes that the attempt wrote down as members of its group."""
    for member in record.members if record.host == snapshot.host else ():
        process = snapshot.living(member)
        if process and not _of_another_run(process, record, snapshot):
            yield process, f"member of attempt {record.attempt} by its record"


def _marked(record: Record, snapshot: Snapshot) -> Iterator[tuple[Process, str]]:
    """Processes with the attempt's marker; its id must be the recorded one: a name alone can be anybody's."""
    for process in snapshot.processes.values():
        marker = process.marker
        if marker and (marker.run, marker.id) == (record.run, record.marker_id):
            if _of_another_run(process, record, snapshot):
                continue
            yield process, f"marker of attempt {marker.attempt}"


def _writers(record: Record, snapshot: Snapshot) -> Iterator[tuple[Process, str]]:
    """Processes whose standard output or error is the attempt's own log."""
    for writer, log in snapshot.writing.items():
        if log == record.log and (process := _later(writer, record, snapshot)):
            yield process, f"writes the log of attempt {record.attempt}"


def _contained(record: Record, snapshot: Snapshot) -> Iterator[tuple[Process, str]]:
    """Processes in the attempt's cgroup: every child is born there, whatever it does to its environment."""
    for member, cgroup in snapshot.inside.items():
        if cgroup == record.cgroup and (process := _later(member, record, snapshot)):
            yield process, f"in the cgroup of attempt {record.attempt}"


def _later(identity: ProcessId, record: Record, snapshot: Snapshot) -> Process | None:
    """Such a process, unless it cannot be the attempt's: older than its supervise, of another boot, of another run."""
    process = snapshot.living(identity)
    if process is None or record.host != snapshot.host or _of_another_run(process, record, snapshot):
        return None
    older = record.supervisor is not None and identity.ticks < record.supervisor.ticks
    return None if older else process


def _of_another_run(process: Process, record: Record, snapshot: Snapshot) -> bool:
    """Whether a run inside this one, or one that merely writes to its log, has the better claim."""
    if process.marker and process.marker.run != record.run:
        return True
    others = (other for other in snapshot.records if other.run != record.run and other.host == snapshot.host)
    return any(process.id in (other.supervisor, other.keeper, other.guard, other.leader) for other in others)


def _own(process: Process, proofs: Sequence[_Proof], snapshot: Snapshot, request: SlateRequest) -> Finding:
    told = (proofs[0].evidence, f"ppid {process.ppid}", duration(snapshot.ages_s.get(process.pid, 0.0)))
    roles = {runs.role_at_work(proof.record, snapshot, request) for proof in proofs}
    if "supervise" in roles:
        remedy = f"supervise stop {request.run}"
        return Finding("process", subject(process), Ownership.LIVE, told, remedy=remedy)
    if role := next((role for role in ("keeper", "guard") if role in roles), None):
        action = Await(f"its {role} is ending it", (process.id,))
        return Finding("process", subject(process), Ownership.OURS, (*told, f"its {role} lives"), action)
    if policy.kept(process, snapshot, request):
        remedy = f"if nobody needs it: kill {process.pid}"
        return Finding("process", subject(process), Ownership.PROTECTED, (*told, "protected"), None, False, remedy)
    if process.uid not in (snapshot.uid, None) and snapshot.uid != 0:
        evidence_uid = f"uid {process.uid}"
        remedy = f"sudo kill -KILL {process.pid}"
        return Finding("process", subject(process), Ownership.FOREIGN, (*told, evidence_uid), remedy=remedy)
    return Finding("process", subject(process), Ownership.STALE, told, EndProcesses((process.id,)))


def _orphan(process: Process, snapshot: Snapshot, request: SlateRequest) -> Finding | None:
    """An engine process without a launcher: ended if everything proves it, a remark if somebody may still use it."""
    profile = orphans.engine(process, request.profiles)
    found = profile or orphans.engine_by_comm(process, request.profiles)
    if found is None or not _touchable(process, snapshot, request):
        return None
    proofs = orphans.why_orphan(process, snapshot.processes)
    if runs.run_of(process, snapshot, request) is not None:
        return None
    if proofs is None:
        return _perhaps(process, snapshot, request) if profile else None
    name = f"run {process.marker.run}" if process.marker else found.name
    told = (f"orphan of {name}", *proofs, duration(snapshot.ages_s.get(process.pid, 0.0)))
    if doubt := _doubt(process, snapshot, request, known=profile is not None):
        remedy = f"if nobody needs it: kill {process.pid}"
        return Finding("process", subject(process), Ownership.UNKNOWN, (*told, doubt), blocking=False, remedy=remedy)
    action = EndProcesses((process.id,))
    eviction = Eviction(Evict.STALE, action)
    if policy.covered(eviction, request):
        return Finding("process", subject(process), Ownership.STALE, told, action)
    remedy = f"--evict {Evict.STALE} ends it; or kill {process.pid}"
    return Finding("process", subject(process), Ownership.STALE, told, blocking=False, remedy=remedy, eviction=eviction)


def _perhaps(process: Process, snapshot: Snapshot, request: SlateRequest) -> Finding | None:
    """A remark on the child of a first process that may be its launcher as well as the reaper of what it has lost."""
    first = snapshot.processes.get(process.ppid)
    if first is None or first.pid != 1 or orphans.is_engine(first, request.profiles):
        return None
    told = (f"ppid 1 {first.comm}: its launcher, or its launcher is gone",)
    remedy = f"if nobody needs it: kill {process.pid}"
    return Finding("process", subject(process), Ownership.UNKNOWN, told, blocking=False, remedy=remedy)


def _doubt(process: Process, snapshot: Snapshot, request: SlateRequest, *, known: bool) -> str | None:
    """Why an orphaned engine process is left alone nevertheless."""
    if elsewhere := policy.serves_elsewhere(process, snapshot, request):
        return f"serves port {min(elsewhere)}"
    if not known:
        return "known by the kernel's name for it alone"
    return policy.why_not((process,), snapshot, request)


def _compilers(snapshot: Snapshot, request: SlateRequest, spared: Container[int]) -> Iterator[Finding]:
    """What was compiling for a server that is gone: it ends by itself, mostly, and could be anybody's."""
    left = [
        process
        for process in snapshot.processes.values()
        if process.pid not in spared
        and orphans.compiler(process)
        and _touchable(process, snapshot, request)
        and orphans.why_orphan(process, snapshot.processes)
        and runs.run_of(process, snapshot, request) is None
    ]
    if left:
        names = ", ".join(dict.fromkeys(orphans.compiler(process) or "" for process in left))
        oldest = duration(max(snapshot.ages_s.get(process.pid, 0.0) for process in left))
        pids = " ".join(str(process.pid) for process in left)
        told = (names, "their launcher is gone", oldest)
        what = plural(len(left), "orphaned compiler")
        remedy = f"if nobody needs them: kill {pids}"
        yield Finding("process", what, Ownership.UNKNOWN, told, blocking=False, remedy=remedy)


def _touchable(process: Process, snapshot: Snapshot, request: SlateRequest) -> bool:
    """Whether it is worth a word at all: alive, of our user and namespace, not ourselves, not protected."""
    if process.gone or process.pid in snapshot.lineage or process.namespace != snapshot.host.pid_namespace:
        return False
    return policy.permitted(process, snapshot, request) and not orphans.protected(process, request.profiles)


def _left_by_other_runs(snapshot: Snapshot, request: SlateRequest, ending: frozenset[int]) -> Iterator[Finding]:
    """Other runs of which something runs on although nobody contains it any more: theirs to clean, ours to tell."""
    for record in snapshot.records:
        if record.run == request.run or record.host != snapshot.host or runs.at_work(record, snapshot, request):
            continue
        left = [process.pid for process, _ in _marked(record, snapshot) if not process.gone]
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
