"""Compile caches that the user asked to have moved aside: never deleted, and never under somebody who uses them.

A start that was killed while it wrote leaves a cache with which every later start fails the same way.
"""

from __future__ import annotations

import os
import pwd
import re
import shlex
import stat
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace

from supervise.host import globbing, occupants
from supervise.model.litter import CacheReading, FileId, FileType, FoundFile
from supervise.model.slate import Finding, MoveAside, Ownership
from supervise.model.snapshot import Snapshot
from supervise.profiles.leftovers import expand, temporary
from supervise.slate.request import SlateRequest
from supervise.text import duration, shorten

_KIND = "cache"
_MOST_NAMED = 3
_WRITABLE = stat.S_IWGRP | stat.S_IWOTH
# A variable may name anything, a project's directory by mistake; moved, it would be missed.
_LOOKS_LIKE_ONE = re.compile("cache|torchinductor|triton|compile", re.IGNORECASE)
_VARIABLE = re.compile(r"\$\{(\w+)")
# With these alone a template gives the place that its library has chosen.
_USUAL = ("HOME", "USER", "TMPDIR", "XDG_CACHE_HOME")
_FEWEST_PARTS = 3


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
        for template in request.rules.caches.get(word, ()):
            for directory in expand([template], request.env):
                reading = _read(directory, word, stamp)
                if reading is not None:
                    found.setdefault(reading.found.path, _checked(reading, template, request))
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
        evidence, remedy = (f"{reading.word} cache", reading.problem), reading.remedy or by_hand
        return Finding(_KIND, found.path, Ownership.UNKNOWN, evidence, remedy=remedy)
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


def _checked(reading: CacheReading, template: str, request: SlateRequest) -> CacheReading:
    """With a problem where moving it would take away more than a cache, or what may be none."""
    if reading.problem:
        return reading
    path = reading.found.path
    variable = _named_by(template, request)
    without = f"start without --purge-cache {reading.word}"
    if why := _too_much(path, variable, request):
        remedy = f"correct {variable}, or {without}" if variable else without
        return replace(reading, problem=why, remedy=remedy)
    if variable and not _LOOKS_LIKE_ONE.search(os.path.basename(path)):
        aside = os.path.join(os.path.dirname(path), reading.aside)
        remedy = f"if it is one: mv -- {shlex.quote(path)} {shlex.quote(aside)}; or {without}"
        return replace(reading, problem=f"{variable} names it, and by its name it is no cache", remedy=remedy)
    return reading


def _named_by(template: str, request: SlateRequest) -> str:
    """The variable that has put a cache elsewhere than where its library would, "" if none has."""
    usual = {name: value for name in _USUAL if (value := request.env.get(name))}
    if expand([template], request.env) == expand([template], usual):
        return ""
    return next((name for name in _VARIABLE.findall(template) if request.env.get(name)), "")


def _too_much(path: str, variable: str, request: SlateRequest) -> str | None:
    """Why a directory is never moved, whatever it is called; None if it may be."""
    if variable and len(path.split("/")) - 1 < _FEWEST_PARTS:
        return f"{variable} names it, and it is too near to the top of the file system"
    for what, place in _places(request):
        if os.path.realpath(place) == path:
            return f"it is {what}"
        if os.path.realpath(place).startswith(path + "/"):
            return f"{what} is in it"
    if globbing.keeper(expand(request.rules.keep, request.env))(path):
        return "it is kept for ever"
    return "it is a mount point" if os.path.ismount(path) else None


def _places(request: SlateRequest) -> Iterator[tuple[str, str]]:
    """Directories that must stay where they are, with how they are called."""
    home = request.env.get("HOME") or os.path.expanduser("~")
    yield "the home directory", home
    try:
        yield "the home directory", pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        pass
    try:
        yield "the current directory", os.getcwd()
    except OSError:
        pass
    yield "the directory of all caches", request.env.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
    yield "the directory for temporary files", temporary(request.env)


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
