"""System V shared memory on the slate: segments that nobody is attached to and whose creator is dead.

The kernel counts who is attached, of all namespaces, so that in use is never a guess (shmctl(2), shm_nattch).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from supervise.host import sysv
from supervise.model.evict import Evict
from supervise.model.litter import SysvSegment
from supervise.model.rules import LeftoverRules
from supervise.model.slate import Finding, Ownership, RemoveSysv
from supervise.model.snapshot import Snapshot
from supervise.slate import runs
from supervise.slate.request import SlateRequest
from supervise.slate.segments import SETTLED_S, Told, made_by_the_living


def survey(request: SlateRequest) -> tuple[SysvSegment, ...]:
    """Segments that nobody is attached to and whose creator can be told; none if nobody would be interested."""
    if not (request.records or _engine(request)):
        return ()
    return tuple(segment for segment in sysv.segments() or () if not segment.attached and segment.creator)


def judge(snapshot: Snapshot, request: SlateRequest) -> Iterator[Finding]:
    """Those of ended attempts of this run go; of the others, where an engine is to be launched, one line each."""
    members = _dead_members(snapshot, request)
    others: list[SysvSegment] = []
    for segment in snapshot.litter.sysv:
        if segment.attached or made_by_the_living(segment.creator, segment.age_s, snapshot):
            continue
        if segment.uid == snapshot.uid and segment.creator in members:
            yield _removal(segment, "created by a member of an earlier attempt")
        elif _engine(request) and segment.age_s >= SETTLED_S:
            others.append(segment)
    mine = [segment for segment in others if segment.uid == snapshot.uid]
    if request.evict.covers(Evict.ENGINES):
        yield from (_removal(segment, "its creator is gone") for segment in mine)
    elif mine:
        remedy = f"--evict {Evict.ENGINES} removes {'them' if len(mine) > 1 else 'it'}"
        yield _remark(mine, Ownership.UNKNOWN, "", remedy)
    if foreign := [segment for segment in others if segment.uid != snapshot.uid]:
        uids = ", ".join(str(uid) for uid in sorted({segment.uid for segment in foreign}))
        yield _remark(foreign, Ownership.FOREIGN, f" of uid {uids}", "")


def _engine(request: SlateRequest) -> bool:
    """Whether an engine's leftovers are looked for: a program that is none is not spoilt by them."""
    return request.rules != LeftoverRules()


def _dead_members(snapshot: Snapshot, request: SlateRequest) -> frozenset[int]:
    """Pids of whoever belonged to attempts of this run that have ended, here."""
    ended = (
        record
        for record in snapshot.records
        if record.run == request.run and record.host == snapshot.host and not runs.at_work(record, snapshot, request)
    )
    known = (member for record in ended for member in (*record.members, record.leader, record.keeper))
    return frozenset(member.pid for member in known if member)


def _removal(segment: SysvSegment, why: str) -> Finding:
    """No engine asks for a segment by a key of an earlier one, so that no launch fails of one that does not go."""
    evidence = (why, f"pid {segment.creator}", "nobody attached", *Told(1, segment.size, segment.age_s).evidence)
    action = RemoveSysv(segment.id, segment.key, segment.creator)
    return Finding("sysv", f"System V segment {segment.id}", Ownership.STALE, evidence, action, blocking=False)


def _remark(segments: Sequence[SysvSegment], ownership: Ownership, whose: str, remedy: str) -> Finding:
    subject = f"System V segment {segments[0].id}{whose}"
    if len(segments) > 1:
        subject = f"{len(segments)} System V segments{whose}, {min(segment.id for segment in segments)} …"
    gone = "their creators are" if len(segments) > 1 else "its creator is"
    told = Told(len(segments), sum(s.size for s in segments), max(s.age_s for s in segments))
    evidence = (f"{gone} gone, nobody attached", *told.evidence)
    return Finding("sysv", subject, ownership, evidence, blocking=False, remedy=remedy)
