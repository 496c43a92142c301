"""Who holds what a launch needs: whose it is, how we know, and what would make him let go. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from supervise.model.evict import Evict
from supervise.model.process import Process
from supervise.model.slate import EndProcesses, Eviction, Ownership
from supervise.model.snapshot import Snapshot
from supervise.slate import orphans, policy, runs
from supervise.slate.processes import subject
from supervise.slate.request import SlateRequest
from supervise.text import duration

_PUBLISHED = re.compile(r"-host-port[ =](\d+)")
_OWNERSHIP = {Evict.STALE: Ownership.STALE, Evict.ENGINES: Ownership.LIVE}


class Holder(NamedTuple):
    """A process that is in the way. `remedy` is what makes it let go; `eviction` the policy's way, if there is one."""

    ownership: Ownership
    evidence: tuple[str, ...]
    remedy: str
    eviction: Eviction | None = None


def describe(process: Process, snapshot: Snapshot, request: SlateRequest) -> Holder:
    """Name a holder.

    Args:
        process: the holder.
        snapshot: the reading it is from.
        request: whose slate it is in the way of.

    Returns:
        LIVE with the run or the server it belongs to, STALE if it is nobody's any more, PROTECTED, or FOREIGN.
    """
    told = tuple(_evidence(process, snapshot))
    run = runs.run_of(process, snapshot, request)
    if run is not None:
        remedy = f"supervise stop {run}" if run else "stop the supervise that it belongs to"
        return Holder(Ownership.LIVE, (*told, f"run {run}" if run else "of a supervise at work"), remedy)
    eviction = policy.eviction(process, snapshot, request)
    remedies = tuple(_remedies(process, eviction, snapshot, request))
    if eviction is None and (guard := policy.guarded(process, snapshot, request)):
        why = "protected" if guard is process else f"below pid {guard.pid} {guard.comm}, protected"
        return Holder(Ownership.PROTECTED, (*told, why), "; or ".join(remedies))
    marker = process.marker
    if marker and marker.run != request.run:
        told = (*told, f"left by run {marker.run}")
    top = policy.server(process, snapshot, request)
    if top is not None and top is not process:
        told = (*told, f"of the server {subject(top)}")
    ownership = _OWNERSHIP.get(eviction.level, Ownership.FOREIGN) if eviction else Ownership.FOREIGN
    return Holder(ownership, told, "; or ".join(remedies), eviction)


def settle(holders: Sequence[Holder], request: SlateRequest) -> tuple[EndProcesses | None, Eviction | None]:
    """What is done about those who hold one thing together.

    Args:
        holders: all of them, described.
        request: whose slate they are in the way of.

    Returns:
        The action if the policy goes as far, else none, and what the user may consent to instead.
    """
    asked = policy.together(holder.eviction for holder in holders)
    if asked is not None and policy.covered(asked, request):
        return asked.action, None
    return None, asked


def whose(holders: Iterable[Holder]) -> Ownership:
    """Whose a thing is that several hold: what is hardest to be rid of is told."""
    order = (Ownership.LIVE, Ownership.PROTECTED, Ownership.FOREIGN)
    found = {holder.ownership for holder in holders}
    return next((ownership for ownership in order if ownership in found), Ownership.STALE)


def _evidence(process: Process, snapshot: Snapshot) -> Iterator[str]:
    yield subject(process)
    yield f"uid {process.uid}"
    yield duration(snapshot.ages_s.get(process.pid, 0.0))
    if container := snapshot.containers.get(process.pid):
        yield f"in {container}"
    elif process.namespace not in (None, snapshot.host.pid_namespace):
        yield "of another PID namespace"
    if name := orphans.old_name(process):
        for proof in orphans.why_orphan(process, snapshot.processes) or ():
            yield f"perhaps left by an old engine: {name}, {proof}"


def _remedies(process: Process, eviction: Eviction | None, snapshot: Snapshot, request: SlateRequest) -> Iterator[str]:
    """The option first, then what one would type, the gentlest first."""
    if process.pid in snapshot.lineage:
        # To end it may end the shell that this is typed into.
        yield "it is supervise's own parent: stop it by hand"
        return
    if eviction is not None and not policy.covered(eviction, request):
        yield f"--evict {eviction.level} ends it"
    if process.marker and process.marker.run != request.run:
        other = process.uid != snapshot.uid
        yield f"{f'as uid {process.uid}: ' if other else ''}supervise clean --name {process.marker.run}"
        return
    container = snapshot.containers.get(process.pid)
    published = _PUBLISHED.search(process.title) if process.comm == "docker-proxy" else None
    if container is not None:
        yield container.stop
    elif published is not None:
        yield f"docker stop $(docker ps -q --filter publish={published[1]})"
    else:
        top = policy.server(process, snapshot, request) or process
        yield f"{'' if snapshot.uid in (0, process.uid) else 'sudo '}kill {top.pid}"
