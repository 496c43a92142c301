"""Session directories of clusters (Ray): reported only, with the command that clears them.

What a session holds (logs, spilled objects) may still be wanted, and `ray stop` ends the processes of all clusters of a
user: both are for a person to decide.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from dataclasses import replace

from supervise.host import globbing, occupants
from supervise.model.litter import FileType, FoundFile, SessionReading
from supervise.model.process import Process
from supervise.model.slate import Finding, Ownership
from supervise.model.snapshot import Snapshot
from supervise.profiles.leftovers import expand
from supervise.slate.request import SlateRequest
from supervise.text import duration, plural

_KIND = "session"
_WITHIN_S = 0.5
_MOST_NAMED = 8
_RAYLET = "raylet"


def survey(request: SlateRequest) -> tuple[SessionReading, ...]:
    """Find the directories of sessions, with who is in them.

    Args:
        request: its rules say where they are.

    Returns:
        Directories only: Ray's `session_latest` is a link. Blocking; what is in them is not looked at: the spilled
        objects of a session can be millions of files.
    """
    globs = expand(request.rules.sessions, request.env)
    matched = globbing.find(globs, within_s=_WITHIN_S).files if globs else ()
    found = [file for file in matched if file.type is FileType.DIRECTORY]
    # Everybody may write to a session, but it is its own user's processes that make it live.
    inside, known = occupants.below([file.path for file in found], private=True)
    return tuple(SessionReading(replace(file, users=inside.get(file.path, ()), users_known=known)) for file in found)


def judge(snapshot: Snapshot, request: SlateRequest) -> Iterator[Finding]:
    """A remark for all that nobody is in, and one for each that somebody else's cluster is in."""
    sessions = [reading.found for reading in snapshot.litter.sessions]
    idle = [found for found in sessions if not found.users and found.uid == snapshot.uid]
    if idle:
        yield _idle(idle)
    for found in sessions:
        users = [process for pid in found.users if (process := snapshot.processes.get(pid))]
        if found.users and not any(_ours(process, request) for process in users):
            yield _live(found, users, snapshot.uid)


def _idle(sessions: list[FoundFile]) -> Finding:
    newest_first = sorted(sessions, key=lambda found: found.age_s)
    where = newest_first[0].path if len(sessions) == 1 else os.path.dirname(newest_first[0].path)
    evidence = (
        plural(len(sessions), "session"),
        f"the newest {duration(newest_first[0].age_s)} old",
    )
    them = "it" if len(sessions) == 1 else "them"
    if not all(found.users_known for found in sessions):
        unread = (*evidence, f"who uses {them} cannot be read")
        return Finding(_KIND, where, Ownership.UNKNOWN, unread, blocking=False)
    oldest = [found.path for found in newest_first[::-1][:_MOST_NAMED]]
    remedy = f"rm -rf -- {shlex.join(oldest)}"
    return Finding(_KIND, where, Ownership.STALE, (*evidence, f"no process uses {them}"), blocking=False, remedy=remedy)


def _live(found: FoundFile, users: list[Process], uid: int) -> Finding:
    raylet = next((process for process in users if process.comm == _RAYLET), None)
    used = f"raylet pid {raylet.pid}" if raylet else f"in use by pid {', '.join(map(str, found.users[:3]))}"
    if found.uid != uid:
        return Finding(_KIND, found.path, Ownership.FOREIGN, (used, f"uid {found.uid}"), blocking=False)
    remedy = "ray stop ends it, with every other cluster of this user here"
    return Finding(_KIND, found.path, Ownership.LIVE, (used,), blocking=False, remedy=remedy)


def _ours(process: Process, request: SlateRequest) -> bool:
    return process.marker is not None and process.marker.run == request.run
