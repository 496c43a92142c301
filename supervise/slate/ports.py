"""Ports on the slate: held by whom, and what would free them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from supervise.model.process import Process
from supervise.model.slate import Await, Finding, Ownership, PortState, Snapshot
from supervise.slate.holders import describe
from supervise.slate.processes import ending
from supervise.slate.request import SlateRequest


def judge(snapshot: Snapshot, request: SlateRequest, owners: Iterable[Finding]) -> Iterator[Finding]:
    """A finding for every needed port that could not be bound."""
    passing = ending(owners) | {process.pid for process in snapshot.ended}
    for reading in snapshot.ports:
        name = f"port {reading.number}"
        if reading.state is PortState.UNKNOWN:
            remedy = f"choose an address and port of this host instead of {reading.host or '*'}:{reading.number}"
            yield Finding("port", name, Ownership.UNKNOWN, (reading.error,), remedy=remedy)
        elif reading.state is PortState.HELD:
            holders = [snapshot.processes[h.pid] for h in reading.holders if h.pid in snapshot.processes]
            yield held("port", name, holders, passing, snapshot, request)


def held(
    kind: str,
    name: str,
    holders: Sequence[Process],
    passing: frozenset[int],
    snapshot: Snapshot,
    request: SlateRequest,
) -> Finding:
    """The finding about an address that somebody has bound.

    Args:
        kind: kind of the finding.
        name: the address, as people read it.
        holders: those who can be seen to hold it.
        passing: pids that are being ended, or have just been: what they hold returns by itself.
        snapshot: the reading.
        request: what the slate is for.

    Returns:
        Something to wait for, or an obstacle that names the holder and what would make him let go.
    """
    staying = [process for process in holders if process.pid not in passing]
    if staying:
        holder = describe(staying[0], snapshot, request)
        remedy = f"{holder.remedy}, or choose another {kind} than {name.removeprefix(f'{kind} ')}"
        return Finding(
            kind, name, holder.ownership, ("held by " + holder.evidence[0], *holder.evidence[1:]), remedy=remedy
        )
    if holders or passing:
        # The kernel frees what a process held only at the end of its exit; a driver may hold that up for a minute.
        return Finding(
            kind, name, Ownership.STALE, ("held by what is being ended",), Await("its holder is being ended")
        )
    evidence = (
        "held, but no holder is visible",
        "another user's, or another namespace's, or bound and not listening yet",
    )
    remedy = f"find the holder as root (ss -tlnp, ps), or choose another {kind} than {name.removeprefix(f'{kind} ')}"
    return Finding(kind, name, Ownership.UNKNOWN, evidence, remedy=remedy)
