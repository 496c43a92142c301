"""Judgement: what dirties the slate, whose it is, and what may be done about it. Pure.

Only what is proven ours, or proven stale, gets an action. Everything else that stands in the way is an obstacle with
the exact command that resolves it; everything else that does not stand in the way is left alone and not mentioned.
"""

from __future__ import annotations

from supervise.model.slate import Finding
from supervise.model.snapshot import Snapshot
from supervise.slate import (
    artefacts,
    bytecode,
    caches,
    endpoints,
    gpus,
    locks,
    ports,
    processes,
    remains,
    segments,
    sessions,
    sysv,
    uds,
)
from supervise.slate.request import SlateRequest


def judge(snapshot: Snapshot, request: SlateRequest) -> tuple[Finding, ...]:
    """All findings of one reading, in the order in which they are to be dealt with.

    Args:
        snapshot: the reading.
        request: what the slate is for.

    Returns:
        Findings with an action for what is ours or stale; without one for obstacles and remarks.
    """
    owners = processes.judge(snapshot, request)
    found = [
        *owners,
        *ports.judge(snapshot, request, owners),
        *gpus.judge(snapshot, request, owners),
        *segments.judge(snapshot, request),
        *sysv.judge(snapshot, request),
        *uds.judge(snapshot, request, owners),
        *endpoints.judge(snapshot, request),
        *locks.judge(snapshot, request),
        *bytecode.judge(snapshot, request),
        *caches.judge(snapshot, request),
        *artefacts.judge(snapshot, request),
        *sessions.judge(snapshot, request),
        *remains.judge(snapshot, request, owners),
    ]
    return tuple(found)
