"""Ports on the slate: held by whom, and what would free them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from supervise.model.process import Process
from supervise.model.slate import Await, Finding, Ownership, PortReading, PortState, Snapshot
from supervise.slate.processes import ending, run_at_work, subject
from supervise.slate.request import SlateRequest
from supervise.text import duration


def judge(snapshot: Snapshot, request: SlateRequest, owners: Iterable[Finding]) -> Iterator[Finding]:
    """A finding for every needed port that could not be bound."""
    doomed = ending(owners)
    waiting = any(isinstance(finding.action, Await) for finding in owners)
    for reading in snapshot.ports:
        if reading.state is PortState.UNKNOWN:
            remedy = f"choose an address and port of this host instead of {reading.host or '*'}:{reading.number}"
            yield Finding("port", f"port {reading.number}", Ownership.UNKNOWN, (reading.error,), remedy=remedy)
        elif reading.state is PortState.HELD:
            yield _held(reading, snapshot, request, doomed, waiting=waiting)


def _held(
    reading: PortReading, snapshot: Snapshot, request: SlateRequest, doomed: frozenset[int], *, waiting: bool
) -> Finding:
    name = f"port {reading.number}"
    holders = [snapshot.processes[h.pid] for h in reading.holders if h.pid in snapshot.processes]
    others = [holder for holder in holders if holder.pid not in doomed]
    if others:
        return _obstacle(name, others[0], snapshot, request)
    if holders or doomed or waiting:
        action = Await("its holder is being ended")
        return Finding("port", name, Ownership.STALE, ("held by what is being ended",), action)
    evidence = ("held, but no holder is visible", "bound and not listening yet, another user's, or another namespace's")
    remedy = f"see ps for a server that still loads, or choose another port than {reading.number}"
    return Finding("port", name, Ownership.UNKNOWN, evidence, remedy=remedy)


def _obstacle(name: str, holder: Process, snapshot: Snapshot, request: SlateRequest) -> Finding:
    marker = holder.marker
    told = (f"held by {subject(holder)}", f"uid {holder.uid}", duration(snapshot.ages_s.get(holder.pid, 0.0)))
    if marker and run_at_work(marker.run, marker.attempt, snapshot):
        return Finding(
            "port", name, Ownership.LIVE, (*told, f"run {marker.run}"), remedy=f"supervise stop {marker.run}"
        )
    if marker and marker.run != request.run:
        remedy = f"supervise clean --name {marker.run}"
        return Finding("port", name, Ownership.FOREIGN, (*told, f"left by run {marker.run}"), remedy=remedy)
    remedy = f"stop it (kill {holder.pid}), or choose another port"
    return Finding("port", name, Ownership.FOREIGN, told, remedy=remedy)
