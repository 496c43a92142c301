"""Names in /dev/shm on the slate: what an earlier attempt wrote down, and what engines and their libraries leave there.

A segment that is mapped or held open by anybody is never looked at twice; whether it is, the caller of `survey` finds
out by inode. Of the others go, at once, those that an ended attempt of this run wrote down, and those whose names say
whose they were: a process that is gone, or an engine, which would use them if it were alive. The rest could be
anybody's, and is told in one line.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from re import Match, Pattern
from typing import NamedTuple

from supervise.group.leftovers import ENGINE_NAMES
from supervise.host import shm
from supervise.model.evict import Evict
from supervise.model.litter import FileId, FileType, Segment
from supervise.model.slate import Finding, Ownership, Remove
from supervise.model.snapshot import Record, Snapshot
from supervise.profiles.leftovers import expand
from supervise.slate import runs
from supervise.slate.request import Host, SlateRequest
from supervise.text import duration

# Somebody may just be handing it on: between fork and the first use of a segment that is passed on by name lies the
# start of a Python interpreter. What names its owner is in use from the first moment to the last, or left over.
SETTLED_S = 10.0
_SETTLED_NAMED_S = 1.0
# How far apart one moment may be told by a file's time stamp (of whole seconds in System V tables) and by ticks.
_CLOCKS_S = 2.0


@dataclass(frozen=True, slots=True)
class VeiledSegment(Segment):
    """One that nobody may be seen to use although somebody does: see `shm.users_hidden`."""


class _Lot(Enum):
    """Segments that are told in one line: whose they are, and how that is said."""

    NAMED = (Ownership.STALE, "owner gone, unused")
    ANONYMOUS = (Ownership.UNKNOWN, "unused, names no owner")
    FOREIGN = (Ownership.FOREIGN, "another user's")
    UNREAD = (Ownership.UNKNOWN, "users cannot be read")
    # Never removed: whoever has made a second name has a use for it.
    LINKED = (Ownership.UNKNOWN, "has {} names, left alone")
    VEILED = (Ownership.UNKNOWN, "in the host's /dev/shm, users invisible from this container")


# What must be consented to for a lot to be removed; others never are.
_LEVELS = {_Lot.NAMED: Evict.STALE, _Lot.ANONYMOUS: Evict.ENGINES}


class Told(NamedTuple):
    """Many things in one line: how many there are, their bytes, seconds since the oldest was changed."""

    number: int
    size: int
    age_s: float

    @property
    def evidence(self) -> tuple[str, ...]:
        """As people read it."""
        age = duration(self.age_s)
        return (amount(self.size), f"oldest {age}" if self.number > 1 else f"{age} old")


def survey(request: SlateRequest, host: Host) -> tuple[Segment, ...]:
    """Segments that an ended attempt of this run wrote down, or that a rule of the request knows.

    Args:
        request: whose records and rules count.
        host: lists /dev/shm.

    Returns:
        Candidates only, nothing that is to be kept; who uses them is filled in by the caller.
    """
    rules = request.rules
    ours = _recorded(request.records, request.run, host.host_id().boot_id)
    if not (ours or rules.segments or rules.anonymous):
        return ()
    keep = expand(rules.keep, request.env)
    known = (*rules.segments, *rules.anonymous)
    veil = shm.users_hidden()
    found: list[Segment] = []
    for segment in host.segments():
        if _kept(segment.name, keep):
            continue
        # A group maps files that are not its own, a model in /dev/shm, say: the name must be an engine's, too.
        if segment.file in ours and ENGINE_NAMES.match(segment.name):
            found.append(segment)
        elif _match(segment.name, known):
            found.append(_veiled(segment) if veil else segment)
    return tuple(found)


def judge(snapshot: Snapshot, request: SlateRequest) -> Iterator[Finding]:
    """What is to be removed, one by one; what is only told, in one line for each reason."""
    busy = {f for record in snapshot.records if runs.at_work(record, snapshot, request) for f in record.segments}
    ours = _recorded(snapshot.records, request.run, snapshot.host.boot_id)
    lots: dict[_Lot, list[Segment]] = defaultdict(list)
    for segment in snapshot.litter.segments:
        # The users of ours are findings themselves if they are ours; if not, it is not ours any more either.
        if segment.file in busy or segment.users:
            continue
        if segment.file in ours:
            yield _ours(segment, snapshot)
        elif (lot := _lot(segment, snapshot, request)) is not None:
            lots[lot].append(segment)
    for lot, segments in lots.items():
        level = _LEVELS.get(lot)
        if level is not None and request.evict.covers(level):
            yield from (_removal(segment, request) for segment in segments)
        else:
            yield _remark(lot, segments, level)


def made_by_the_living(pid: int, age_s: float, snapshot: Snapshot) -> bool:
    """Whether a process may have made what was last changed so many seconds ago.

    Args:
        pid: who is said to have made it.
        age_s: seconds since it was last changed.
        snapshot: who lives, since when.

    Returns:
        False if there is no such process in our PID namespace, or one that clearly began later: the pid was reused.
    """
    process = snapshot.processes.get(pid)
    if process is None or process.gone:
        return False
    since = snapshot.ages_s.get(pid)
    return since is None or since + _CLOCKS_S >= age_s


def amount(size: int) -> str:
    """Bytes as people say them: 4 KiB, 12 MiB, 18.0 GiB."""
    if size < 2**20:
        return f"{size / 2**10:.0f} KiB"
    return f"{size / 2**20:.0f} MiB" if size < 2**30 else f"{size / 2**30:.1f} GiB"


def _recorded(records: Iterable[Record], run: str, boot: str) -> frozenset[FileId]:
    """An inode means something within one boot."""
    return frozenset(
        file for record in records if record.run == run and record.host.boot_id == boot for file in record.segments
    )


def _kept(name: str, globs: Iterable[str]) -> bool:
    """By the path that people know, or the one without links."""
    return any(fnmatchcase(f"{directory}/{name}", g) for directory in ("/dev/shm", shm.DIRECTORY) for g in globs)


def _match(name: str, patterns: Iterable[Pattern[str]]) -> Match[str] | None:
    return next((match for pattern in patterns if (match := pattern.fullmatch(name))), None)


def _veiled(segment: Segment) -> VeiledSegment:
    fields = (segment.name, segment.file, segment.size, segment.uid, segment.age_s)
    return VeiledSegment(*fields, private=segment.private, links=segment.links)


def _owner(match: Match[str]) -> int | None:
    """The process that a name gives as its owner."""
    pid = match.groupdict().get("pid")
    return int(pid) if pid else None


def _ours(segment: Segment, snapshot: Snapshot) -> Finding:
    path = f"{shm.DIRECTORY}/{segment.name}"
    evidence = ("recorded by an earlier attempt", amount(segment.size))
    if segment.uid != snapshot.uid:
        return Finding("shm", path, Ownership.FOREIGN, (*evidence, f"uid {segment.uid}"), blocking=False)
    if segment.links > 1:
        why = f"has {segment.links} names, left alone"
        return Finding("shm", path, Ownership.UNKNOWN, (*evidence, why), blocking=False)
    if not segment.users_known:
        return Finding("shm", path, Ownership.UNKNOWN, (*evidence, "its users cannot be read"), blocking=False)
    action = Remove(path, segment.file, FileType.REGULAR, segment.uid)
    return Finding("shm", path, Ownership.STALE, (*evidence, "unmapped"), action)


def _lot(segment: Segment, snapshot: Snapshot, request: SlateRequest) -> _Lot | None:
    """Where an unused segment that nobody of ours wrote down belongs; None if it is left alone."""
    named = _match(segment.name, request.rules.segments)
    if segment.age_s < (_SETTLED_NAMED_S if named else SETTLED_S):
        return None
    if not (named or _match(segment.name, request.rules.anonymous)):
        return None
    if segment.uid != snapshot.uid:
        return _Lot.FOREIGN
    if isinstance(segment, VeiledSegment):
        return _Lot.VEILED
    pid = _owner(named) if named else None
    if pid is not None and made_by_the_living(pid, segment.age_s, snapshot):
        return None
    if segment.links > 1:
        return _Lot.LINKED
    if not segment.users_known:
        return _Lot.UNREAD
    return _Lot.NAMED if named else _Lot.ANONYMOUS


def _removal(segment: Segment, request: SlateRequest) -> Finding:
    """One that goes.

    It is worth refusing the launch if it does not go only where the name is an engine's: with a pinned engine id the
    next server wants that very name, and fails with FileExistsError each time (FIELD.md A3 rows 43 and 44). A name with
    a pid in it, or with no owner at all, is never made twice.
    """
    path = f"{shm.DIRECTORY}/{segment.name}"
    named = _match(segment.name, request.rules.segments)
    pid = _owner(named) if named else None
    why = f"its owner, pid {pid}, is gone" if pid else "named after an engine" if named else "no owner in its name"
    evidence = (why, "nobody uses it", *Told(1, segment.size, segment.age_s).evidence)
    action = Remove(path, segment.file, FileType.REGULAR, segment.uid)
    return Finding("shm", path, Ownership.STALE, evidence, action, blocking=named is not None and pid is None)


def _remark(lot: _Lot, segments: Sequence[Segment], level: Evict | None) -> Finding:
    ownership, why = lot.value
    if lot is _Lot.FOREIGN:
        why += f", uid {', '.join(str(uid) for uid in sorted({segment.uid for segment in segments}))}"
    if lot is _Lot.LINKED:
        why = why.format(" or ".join(str(links) for links in sorted({segment.links for segment in segments})))
    first = min(segment.name for segment in segments)
    subject = f"{shm.DIRECTORY}/{first}"
    if len(segments) > 1:
        subject = f"{len(segments)} segments in {shm.DIRECTORY}, {first} …"
    told = Told(len(segments), sum(s.size for s in segments), max(s.age_s for s in segments))
    remedy = f"--evict {level} removes {'them' if len(segments) > 1 else 'it'}" if level else ""
    return Finding("shm", subject, ownership, (why, *told.evidence), blocking=False, remedy=remedy)
