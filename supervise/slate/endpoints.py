"""Socket files that engines strew over the temporary directory."""

from __future__ import annotations

from collections.abc import Iterator

from supervise.model.litter import FoundFile
from supervise.model.slate import Finding, Snapshot
from supervise.slate.request import SlateRequest


def survey(request: SlateRequest) -> tuple[FoundFile, ...]:
    """Not built yet."""
    del request
    return ()


def judge(snapshot: Snapshot, request: SlateRequest) -> Iterator[Finding]:
    """Not built yet."""
    del snapshot, request
    yield from ()
