"""Compile caches that the user asked to have moved aside: never deleted, and never under somebody who uses them.

A start that was killed while it wrote leaves a cache with which every later start fails the same way.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace

from supervise.host import globbing, occupants
from supervise.model.litter import CacheReading, FileId, FileType, FoundFile
from supervise.model.slate import Finding, MoveAside, Ownership, Snapshot
from supervise.profiles.leftovers import expand
from supervise.slate.request import SlateRequest
from supervise.text import duration, shorten

_KIND = "cache"
_MOST_NAMED = 3
_WRITABLE = stat.S_IWGRP | stat.S_IWOTH


def survey(request: SlateRequest) -> tuple[CacheReading, ...]:
    """Look at the directories that the words of `--purge-cache` stand for.

    Args:
        request: has the words; without any nothing is read.

    Returns:
        Those that exist, each once, with who is in them and the name that they are to get; blocking.
    """
    stamp = time.strftime("%Y%m%d-%H%M%S")
    found: dict[str, CacheReading] = {}
    for word in dict.fromkeys(request.purge):
        for directory in expand(request.rules.caches.get(word, ()), request.env):
            reading = _read(directory, word, stamp)
            if reading is not None:
                found.setdefault(reading.found.path, reading)
    movable = [path for path, reading in found.items() if not reading.problem]
    inside, known = occupants.below(movable, private=all(map(_private, movable)))
    return tuple(
        replace(reading, found=replace(reading.found, users=inside.get(path, ()), users_known=known))
        for path, reading in found.items()
    )


def judge(snapshot: Snapshot, request: SlateRequest) -> Iterator[Finding]:
    """A move for each cache that nobody is in; whatever prevents what was asked for stands in the way."""
    for word in dict.fromkeys(request.purge):
        if not request.rules.caches.get(word):
            evidence, remedy = ("nothing is known about caches of this program",), "start it without --purge-cache"
            yield Finding(_KIND, f"--purge-cache {word}", Ownership.UNKNOWN, evidence, remedy=remedy)
    for reading in snapshot.litter.caches:
        if reading.word in request.purge:
            yield _judged(reading, snapshot)


def _judged(reading: CacheReading, snapshot: Snapshot) -> Finding:
    found = reading.found
    evidence = (f"{reading.word} cache", f"last changed {duration(found.age_s)} ago")
    by_hand = f"move it by hand, or start without --purge-cache {reading.word}"
    if reading.problem:
        return Finding(_KIND, found.path, Ownership.UNKNOWN, (f"{reading.word} cache", reading.problem), remedy=by_hand)
    if found.uid != snapshot.uid:
        return Finding(_KIND, found.path, Ownership.FOREIGN, (*evidence, f"uid {found.uid}"), remedy=by_hand)
    if found.users:
        users = [_described(pid, snapshot) for pid in found.users[:_MOST_NAMED]]
        remedy = f"end who uses it first: ps -fp {','.join(map(str, found.users))}"
        return Finding(_KIND, found.path, Ownership.LIVE, (*evidence, f"in use by {', '.join(users)}"), remedy=remedy)
    if not found.users_known:
        return Finding(_KIND, found.path, Ownership.UNKNOWN, (*evidence, "its users cannot be read"), remedy=by_hand)
    action = MoveAside(found.path, found.file, found.uid, reading.aside)
    return Finding(_KIND, found.path, Ownership.OURS, (*evidence, f"aside as {reading.aside}"), action)


def _described(pid: int, snapshot: Snapshot) -> str:
    process = snapshot.processes.get(pid)
    return f"pid {pid} {shorten(process.title, 40)}" if process else f"pid {pid}"


def _private(path: str) -> bool:
    """Whether only its owner has use of a cache: who may not write to it cannot keep there what is compiled."""
    try:
        return not os.lstat(path).st_mode & _WRITABLE
    except OSError:
        return False


def _read(directory: str, word: str, stamp: str) -> CacheReading | None:
    """One directory, None if there is nothing."""
    # Links on the way are common (~/.cache on another disk) and harmless if they are ours; the directory is none.
    parent = globbing.real_directory(os.path.dirname(directory))
    if parent is None:
        return _unusable(directory, word, "somebody else's link is on the way to it")
    path = os.path.join(parent, os.path.basename(directory))
    try:
        state = os.lstat(path)
        beside = set(os.listdir(parent))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return _unusable(path, word, f"cannot be read: {error.strerror}")
    found = globbing.found_file(path, state, time.time())
    if found.type is not FileType.DIRECTORY:
        return CacheReading(found, word, problem="a link" if stat.S_ISLNK(state.st_mode) else "no directory")
    return CacheReading(found, word, _free(f"{os.path.basename(path)}.aside-{stamp}", beside))


def _unusable(path: str, word: str, problem: str) -> CacheReading:
    return CacheReading(FoundFile(path, FileId(-1, -1), FileType.OTHER, 0, -1, 0.0), word, problem=problem)


def _free(name: str, taken: Iterable[str]) -> str:
    """The name itself, or with a number if somebody has it."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free
