"""Ports on the slate: held by whom, and what would free them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from supervise.model.process import Process
from supervise.model.slate import Await, Finding, Ownership
from supervise.model.snapshot import PortState, Snapshot
from supervise.slate.holders import Holder, describe, settle, whose
from supervise.slate.processes import ending
from supervise.slate.request import SlateRequest

_MOST_NAMED = 4


def judge(snapshot: Snapshot, request: SlateRequest, owners: Iterable[Finding]) -> Iterator[Finding]:
    """A finding for every needed port that could not be bound."""
    passing = ending(owners) | {process.pid for process in snapshot.ended}
    for reading in snapshot.ports:
        name = f"port {reading.number}"
        if reading.state is PortState.UNKNOWN:
            address = f"{reading.host or '*'}:{reading.number}"
            remedy = f"choose an address of this host, and a port that you may bind, instead of {address}"
            yield Finding("port", name, Ownership.UNKNOWN, (reading.error,), remedy=remedy)
        elif reading.state is PortState.HELD:
            holders = [snapshot.processes[h.pid] for h in reading.holders if h.pid in snapshot.processes]
            if reading.listening and not holders and not passing:
                yield _hidden(name, reading.listening)
            else:
                yield held("port", name, holders, passing, snapshot, request)


def _hidden(name: str, uids: Sequence[int]) -> Finding:
    """Whoever listens on a port although no process can be seen to: the kernel tells whose the socket is."""
    whose = ", ".join(f"uid {uid}" for uid in uids)
    told = (f"a socket of {whose} listens on it", "of a process whose descriptors we may not read, or of a container")
    number = name.removeprefix("port ")
    remedy = f"find the holder as root (ss -tlnp sport = :{number}); or choose another port than {number}"
    return Finding("port", name, Ownership.FOREIGN, told, remedy=remedy)


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
        Something to wait for, the end of all holders where the policy goes as far, or an obstacle that names them and
        what would make them let go.
    """
    staying = [process for process in holders if process.pid not in passing]
    another = f"choose another {kind} than {name.removeprefix(f'{kind} ')}"
    if staying:
        told = [describe(process, snapshot, request) for process in staying]
        action, eviction = settle(told, request)
        remedy = "; or ".join((*dict.fromkeys(holder.remedy for holder in told), another))
        return Finding(kind, name, whose(told), tuple(_evidence(told)), action, remedy=remedy, eviction=eviction)
    if holders or passing:
        # The kernel frees what a process held only at the end of its exit; a driver may hold that up for a minute.
        return Finding(
            kind, name, Ownership.STALE, ("held by what is being ended",), Await("its holder is being ended")
        )
    nobody_s = "another namespace's" if snapshot.uid == 0 else "another user's, or another namespace's"
    evidence = (
        "held, but no holder is visible",
        f"{nobody_s}, or of a process whose end the kernel has not finished, or bound and not listening yet",
    )
    find = "ss -tlnp, ps, the same in each container" if kind == "port" else "ss -xlp, ps, the same in each container"
    who = "" if snapshot.uid == 0 else " as root"
    remedy = f"try again in a minute, a driver may hold an end up; or find the holder{who} ({find}); or {another}"
    return Finding(kind, name, Ownership.UNKNOWN, evidence, remedy=remedy)


def _evidence(told: Sequence[Holder]) -> Iterator[str]:
    """All holders: several may share a port (SO_REUSEPORT), or have inherited the socket."""
    for holder in told[:_MOST_NAMED]:
        yield f"held by {holder.evidence[0]}"
        yield from holder.evidence[1:]
    if (more := len(told) - _MOST_NAMED) > 0:
        yield f"and by {more} more"
