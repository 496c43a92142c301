"""Who holds what a launch needs: whose it is, how we know, and what would make him let go. Pure."""

from __future__ import annotations

from typing import NamedTuple

from supervise.model.process import Process
from supervise.model.slate import Ownership, Snapshot
from supervise.slate.processes import run_at_work, subject
from supervise.slate.request import SlateRequest
from supervise.text import duration


class Holder(NamedTuple):
    """A process that is in the way and not ours to end. `remedy` is the command that makes it let go."""

    ownership: Ownership
    evidence: tuple[str, ...]
    remedy: str


def describe(process: Process, snapshot: Snapshot, request: SlateRequest) -> Holder:
    """Name a holder.

    Args:
        process: the holder.
        snapshot: the reading it is from.
        request: whose slate it is in the way of.

    Returns:
        LIVE with the run it belongs to, or FOREIGN.
    """
    told = (subject(process), f"uid {process.uid}", duration(snapshot.ages_s.get(process.pid, 0.0)))
    marker = process.marker
    if marker and run_at_work(marker.run, marker.attempt, snapshot, request):
        return Holder(Ownership.LIVE, (*told, f"run {marker.run}"), f"supervise stop {marker.run}")
    if marker and marker.run != request.run:
        remedy = f"supervise clean --name {marker.run}"
        if process.uid != snapshot.uid:
            remedy = f"as uid {process.uid}: {remedy}"
        return Holder(Ownership.FOREIGN, (*told, f"left by run {marker.run}"), remedy)
    sudo = "" if snapshot.uid in (0, process.uid) else "sudo "
    return Holder(Ownership.FOREIGN, told, f"{sudo}kill {process.pid}")
