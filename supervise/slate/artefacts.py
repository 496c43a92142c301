"""What an earlier debugging session dumped.

What the user names (`--artefacts`, the settings) is removed. What engines dump by themselves is only listed: a crash
dump may be the very evidence that somebody needs.
"""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase

from supervise.host import globbing
from supervise.model.litter import FileId, FileType, FoundFile
from supervise.model.slate import Finding, Ownership, Remove
from supervise.model.snapshot import Snapshot
from supervise.profiles.leftovers import available_rules, expand, load_rules, temporary
from supervise.slate.request import SlateRequest
from supervise.text import duration, plural

_KIND = "artefact"
_ASKED_WITHIN_S = 5.0
# They are looked for at every launch, and nothing depends on it.
_RULES_WITHIN_S = 0.5
_SHARED = ("/tmp", "/var/tmp", "/dev/shm")
_WILD = re.compile(r"[*?[]")
_BRACKET = re.compile(r"\[!?\]?[^\]]*\]")


@dataclass(frozen=True, slots=True)
class Match(FoundFile):
    """What one glob matches; `asked` if it is one of the user's."""

    glob: str = ""
    asked: bool = False


@dataclass(frozen=True, slots=True)
class Unfinished(Match):
    """In the place of what may have been missed: a search that was cut short or not allowed everywhere."""


def survey(request: SlateRequest) -> tuple[FoundFile, ...]:
    """Find what matches; who uses it is filled in by the caller.

    Args:
        request: its `artefacts` are the user's globs, its rules have those of engines.

    Returns:
        Each name once, as a `Match` of the first glob that has it, the user's first; and an `Unfinished` for each glob
        that may match more. Blocking, for 5 s at most, and 0.5 s for those of the rules.
    """
    named = [glob for glob in request.artefacts if refusal(glob, request) is None]
    dumped = expand(request.rules.artefacts, request.env)
    keep = _kept(request) if named or dumped else ()
    found: dict[str, Match] = {}
    for match in (*_matches(named, keep, asked=True), *_matches(dumped, keep, asked=False)):
        found.setdefault(match.path, match)
    return tuple(found.values())


def judge(snapshot: Snapshot, request: SlateRequest) -> Iterator[Finding]:
    """A removal for each file that the user has named, a remark for what is left alone, and what cannot be done."""
    for glob in dict.fromkeys(request.artefacts):
        if why := refusal(glob, request):
            remedy = "name the files more exactly, in --artefacts or the settings"
            yield Finding(_KIND, f"--artefacts {shlex.quote(glob)}", Ownership.UNKNOWN, (why,), remedy=remedy)
    matches = [found for found in snapshot.litter.artefacts if isinstance(found, Match)]
    for match in matches:
        if match.asked:
            yield from _asked(match, snapshot.uid)
    yield from _listed([match for match in matches if not match.asked], snapshot.uid, request)


def check(snapshot: Snapshot, request: SlateRequest) -> tuple[str, ...]:
    """What is left of what the user has named, a sentence for each glob. Pure.

    Args:
        snapshot: the last reading.
        request: has the globs.

    Returns:
        For the line of what was verified; what could not be searched whole is never said to be free.
    """
    told = []
    for glob in dict.fromkeys(request.artefacts):
        left = [m for m in snapshot.litter.artefacts if isinstance(m, Match) and m.asked and m.glob == glob]
        files = [m for m in left if m.type is FileType.REGULAR]
        opened = [m for m in files if m.users]
        if refusal(glob, request) or any(isinstance(m, Unfinished) for m in left):
            told.append(f"{glob} not searched whole")
        elif not files:
            told.append(f"no file matches {glob}")
        if opened:
            told.append(f"{plural(len(opened), 'open file')} {_verb(opened)} {glob}")
        if other := [m for m in files if not m.users]:
            told.append(f"{plural(len(other), 'file')} {_verb(other)} {glob}")
    return tuple(told)


def refusal(glob: str, request: SlateRequest) -> str | None:
    """Why nothing is removed by a glob of the user's. Pure.

    Args:
        glob: as given.
        request: has the environment, and the places that are kept.

    Returns:
        None if it names files narrowly enough and points at nothing that is kept.
    """
    parts = glob.split("/")[1:]
    if not glob.startswith("/") or any(part in ("", ".", "..") for part in parts):
        return "no plain absolute path"
    if kept := next((place for place in _kept(request) if _points_at(glob, place)), None):
        return f"{kept} is kept for ever"
    return _too_wide(parts, request)


def _too_wide(parts: list[str], request: SlateRequest) -> str | None:
    home = request.env.get("HOME", "").rstrip("/") or os.path.expanduser("~")
    named = _named(parts)
    if len(parts) < 2 or not named or _WILD.search(parts[0]):
        return "it would take everything at the top of the file system"
    if "**" in parts and _wide(begins := "/" + "/".join(parts[: min(named, parts.index("**"))]), home, request):
        # Whatever goes to any depth is as wide as the place where it begins.
        return f"it would take files at any depth below {begins}"
    inside = "/" + "/".join(parts[:named])
    if named == len(parts):
        return "that is a home directory" if _leads_to(inside, home) else None
    meant = any(_below(inside, place) for place in _dumps(request))
    shared = inside in (*_SHARED, _temporary(request))
    return None if meant and not shared and not _leads_to(inside, home) else f"it would take everything in {inside}"


def _wide(place: str, home: str, request: SlateRequest) -> bool:
    return _leads_to(place, home) or (place.count("/") < 2 and place not in (*_SHARED, _temporary(request)))


def _named(parts: list[str]) -> int:
    """How many parts there are up to the last one that has a letter or digit outside of its wildcards."""
    count = len(parts)
    while count and not any(c.isalnum() for c in _BRACKET.sub("", parts[count - 1])):
        count -= 1
    return count


def _dumps(request: SlateRequest) -> set[str]:
    """Directories in which a bare wildcard may be meant: those for temporary files, and where engines dump."""
    dumped = {glob.removesuffix("/**") for glob in expand(request.rules.artefacts, request.env)}
    return {"/tmp", "/var/tmp", _temporary(request), *dumped}


def _temporary(request: SlateRequest) -> str:
    return temporary(request.env).rstrip("/")


def _leads_to(glob: str, home: str) -> bool:
    """Whether a glob matches a home directory, ours or anybody's, or one on the way to ours."""
    ours, theirs = glob.split("/"), home.split("/")
    ways = len(ours) <= len(theirs) and all(map(fnmatchcase, theirs, ours))
    return ways or (len(ours) == 3 and fnmatchcase("home", ours[1]))


def _below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory + "/")


def _kept(request: SlateRequest) -> tuple[str, ...]:
    """What no glob may take, whatever program is launched; under the usual temporary directory, too."""
    keep = (*request.rules.keep, *load_rules(available_rules()).keep)
    usual = {name: value for name, value in request.env.items() if name != "TMPDIR"}
    return tuple(dict.fromkeys((*expand(keep, request.env), *expand(keep, usual))))


def _points_at(glob: str, place: str) -> bool:
    """Whether a glob is meant for a place: it lies in it, or names it or what is in it.

    Two wild names nearly always have something in common: `/tmp/*_debug_*.pt` is not meant for a weight cache although
    one could be called like that. Such a file is left out when it is found.
    """
    ours, theirs = glob.split("/"), place.removesuffix("/**").split("/")
    if len(ours) < len(theirs):
        return False
    names = _named([ours[len(theirs) - 1]]) == 1 and all(map(fnmatchcase, theirs, ours))
    return names or all(map(fnmatchcase, ours, theirs))


def _matches(globs: Iterable[str], keep: Iterable[str], *, asked: bool) -> Iterator[Match]:
    """What globs match, all of them together within their time."""
    deadline = time.monotonic() + (_ASKED_WITHIN_S if asked else _RULES_WITHIN_S)
    for glob in dict.fromkeys(globs):
        matched = globbing.find([glob], keep=keep, within_s=max(0.0, deadline - time.monotonic()))
        for file in matched.files:
            values = {field.name: getattr(file, field.name) for field in fields(FoundFile)}
            yield Match(**values, glob=glob, asked=asked)
        if not matched.complete:
            # The NUL keeps it apart from any path.
            yield Unfinished(f"{glob}\0", FileId(-1, -1), FileType.OTHER, 0, -1, 0.0, glob=glob, asked=asked)


def _asked(match: Match, uid: int) -> Iterator[Finding]:
    """What the user has named."""
    if isinstance(match, Unfinished):
        subject, why = f"--artefacts {shlex.quote(match.glob)}", "not everything could be searched"
        remedy = "name the directory more exactly, or remove the files by hand"
        yield Finding(_KIND, subject, Ownership.UNKNOWN, (why,), remedy=remedy)
        return
    evidence: tuple[str, ...] = (f"matches {match.glob}", _amount(match.size), f"{duration(match.age_s)} old")
    spared = _spared(match, uid)
    if spared is None:
        action = Remove(match.path, match.file, match.type, match.uid)
        yield Finding(_KIND, match.path, Ownership.OURS, evidence, action, blocking=False)
    elif match.type is not FileType.DIRECTORY or "**" not in match.glob:
        ownership, why = spared
        yield Finding(_KIND, match.path, ownership, (*evidence, why), blocking=False)


def _spared(match: Match, uid: int) -> tuple[Ownership, str] | None:
    """Why this one is left alone, None if it is not."""
    if match.type is not FileType.REGULAR:
        return Ownership.UNKNOWN, "a directory" if match.type is FileType.DIRECTORY else "no regular file"
    if match.uid != uid:
        return Ownership.FOREIGN, f"uid {match.uid}"
    if match.users:
        return Ownership.LIVE, f"open in {_pids(match.users)}"
    if not match.users_known:
        return Ownership.UNKNOWN, "its users cannot be read"
    if match.links > 1:
        return Ownership.UNKNOWN, f"it has {match.links} names"
    return None


def _listed(matches: Iterable[Match], uid: int, request: SlateRequest) -> Iterator[Finding]:
    """What engines have dumped: one remark for each glob."""
    for glob, found in _by_glob(matches).items():
        files = [match for match in found if match.type is FileType.REGULAR and match.uid == uid]
        if not files:
            continue
        whole = not any(isinstance(match, Unfinished) for match in found)
        count = plural(len(files), "file") if whole else f"at least {plural(len(files), 'file')}"
        evidence = (
            f"{count} dumped earlier",
            _amount(sum(match.size for match in files)),
            f"the newest {duration(min(match.age_s for match in files))} old",
        )
        remedy = "" if refusal(glob, request) else f"--artefacts {shlex.quote(glob)} removes {_them(files)}"
        yield Finding(_KIND, glob, Ownership.UNKNOWN, evidence, blocking=False, remedy=remedy)


def _by_glob(matches: Iterable[Match]) -> Mapping[str, list[Match]]:
    groups: dict[str, list[Match]] = {}
    for match in matches:
        groups.setdefault(match.glob, []).append(match)
    return groups


def _amount(size: int) -> str:
    """Bytes as people say them."""
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}" if size < 10 * unit else f"{size / unit:.0f} {name}"
    return f"{size} B"


def _pids(pids: Iterable[int]) -> str:
    named = [str(pid) for pid in pids]
    return f"pid {', '.join(named[:3])}{f' and {len(named) - 3} more' if len(named) > 3 else ''}"


def _them(found: list[Match]) -> str:
    return "it" if len(found) == 1 else "them"


def _verb(found: list[Match]) -> str:
    return "matches" if len(found) == 1 else "match"
