"""Compile caches that the user asked to have moved aside."""

from __future__ import annotations

from collections.abc import Iterator

from supervise.model.litter import CacheReading
from supervise.model.slate import Finding, Snapshot
from supervise.slate.request import SlateRequest


def survey(request: SlateRequest) -> tuple[CacheReading, ...]:
    """Not built yet."""
    del request
    return ()


def judge(snapshot: Snapshot, request: SlateRequest) -> Iterator[Finding]:
    """Not built yet."""
    del snapshot, request
    yield from ()
