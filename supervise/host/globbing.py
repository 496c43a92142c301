"""The door to finding files by globs: bounded, and without following a link that somebody may have laid.

Globs reach into directories that everybody may write to, and root may be the one who looks. So everything below the
first wildcard is opened through descriptors of its directory without following links (openat(2), O_NOFOLLOW), and the
literal part before it is resolved only through links of the system's owner or of our own: else `/tmp/dumper`, laid by
anybody as a link to /etc, would make root find its own files there.
"""

from __future__ import annotations

import fnmatch
import os
import re
import stat
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from supervise.host import mounts, removal
from supervise.model.litter import FileId, FoundFile

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ANY_DEPTH = "**"
_WILD = re.compile(r"[*?[]")
# A descriptor is held for each level; nothing that engines write is anywhere near as deep.
_DEEPEST = 64
_MOST_LINKS = 40


class Found(NamedTuple):
    """What globs match; `complete` is False if there may be more: cut short, unreadable, or beyond a remote mount."""

    files: tuple[FoundFile, ...]
    complete: bool


def find(
    globs: Iterable[str],
    *,
    keep: Iterable[str] = (),
    wanted: Callable[[str], bool] = bool,
    most: int = 200_000,
    within_s: float = 3.0,
) -> Found:
    """Find files, links not followed.

    Args:
        globs: absolute, with `*`, `?`, `[…]` within a name and `**` for any depth; what they match in a directory is
            never the directory itself. As in a shell, only a pattern that begins with a dot matches hidden names.
        keep: globs of what is left out, together with everything below it; hidden names are left out as well.
        wanted: what the name of a match must satisfy as well, asked before the file is looked at.
        most: how many names are looked at, all in all.
        within_s: how long it may take, in seconds; one call into a file system that hangs is not interrupted.

    Returns:
        Every match once, sorted by path, whatever its type (a link is OTHER); the directories of each path hold no
        link, and its bytes are decoded as `os.fsdecode` does. Who uses a file is not filled in.
    """
    search = _Search(keeper(keep), wanted, most, time.monotonic() + within_s)
    for text in globs:
        glob = _parse(text, real_directory)
        if glob is None:
            search.complete = False
            continue
        search.walk(glob)
    return Found(tuple(search.found[path] for path in sorted(search.found)), search.complete)


def keeper(globs: Iterable[str]) -> Callable[[str], bool]:
    """What tells of a path whether it, or a directory that it is in, matches one of these globs.

    Args:
        globs: as for `find`, but hidden names match as well, and all links in the literal part are followed: too much
            is left alone rather than too little.
    """
    kept = [glob for text in globs if (glob := _parse(text, os.path.realpath))]
    return lambda path: any(glob.covers(path) for glob in kept)


def real_directory(path: str) -> str | None:
    """The same directory without links on the way.

    Args:
        path: absolute; what is missing of it is taken as it is.

    Returns:
        None if a link on the way is neither the system's nor our own, or somebody else may exchange it.
    """
    trusted = {os.geteuid(), os.stat("/").st_uid}
    done, todo, links = "/", [part for part in path.split("/") if part], 0
    while todo:
        part = todo.pop(0)
        if part in (".", ".."):
            done = done if part == "." else os.path.dirname(done)
            continue
        step = os.path.join(done, part)
        target = _target(step, trusted)
        if target is None:
            return None
        if not target:
            done = step
            continue
        links += 1
        if links > _MOST_LINKS:
            return None
        done = "/" if target.startswith("/") else done
        todo = [*(p for p in target.split("/") if p), *todo]
    return done


def found_file(path: str, state: os.stat_result, now: float) -> FoundFile:
    """What lstat says about a path, as a finding begins.

    Args:
        path: absolute, without links in its directories.
        state: of the name itself, links not followed.
        now: seconds since the epoch.

    Returns:
        Its identity, type, bytes on disk, owner, age in seconds and number of names.
    """
    return FoundFile(
        path=path,
        file=FileId(state.st_dev, state.st_ino),
        type=removal.file_type(state.st_mode),
        size=state.st_blocks * 512,
        uid=state.st_uid,
        age_s=max(0.0, now - state.st_mtime),
        links=state.st_nlink,
    )


@dataclass(frozen=True, slots=True)
class _Glob:
    """A directory without links, and patterns for the names below it.

    It is walked as an automaton: a state is the number of the next pattern, so that each directory is visited once,
    however many `**` there are.
    """

    root: str
    parts: tuple[str, ...]

    def start(self) -> frozenset[int]:
        return self._closed({0})

    def step(self, states: frozenset[int], name: str, *, hidden: bool = False) -> frozenset[int]:
        """The states after one more name."""
        after = set()
        for state in states:
            if state == len(self.parts):
                continue
            part = self.parts[state]
            if name.startswith(".") and not hidden and not part.startswith("."):
                continue
            if part == _ANY_DEPTH:
                after.add(state)
            elif _pattern(part).match(name):
                after.add(state + 1)
        return self._closed(after)

    def accepts(self, states: frozenset[int]) -> bool:
        return len(self.parts) in states

    def goes_on(self, states: frozenset[int]) -> bool:
        return bool(states - {len(self.parts)})

    def covers(self, path: str) -> bool:
        """Whether it matches this path or a directory on the way to it."""
        prefix = self.root.rstrip("/") + "/"
        if not path.startswith(prefix):
            return False
        states = self.start()
        for name in path[len(prefix) :].split("/"):
            states = self.step(states, name, hidden=True)
            if self.accepts(states):
                return True
        return False

    def _closed(self, states: set[int]) -> frozenset[int]:
        """With those that `**` reaches by matching nothing."""
        for state in sorted(states):
            while state < len(self.parts) and self.parts[state] == _ANY_DEPTH:
                state += 1
                states = states | {state}
        return frozenset(states)


class _Search:
    """One search: what it has found, and what is left of its bounds."""

    def __init__(self, kept: Callable[[str], bool], wanted: Callable[[str], bool], most: int, deadline: float) -> None:
        self.found: dict[str, FoundFile] = {}
        self.complete = True
        self._kept = kept
        self._wanted = wanted
        self._left = most
        self._deadline = deadline
        self._now = time.time()
        self._remote = mounts.remote().points

    def walk(self, glob: _Glob) -> None:
        try:
            with removal.opened_directory(glob.root) as directory:
                self._descend(directory, glob.root.rstrip("/"), ".", glob, glob.start(), _DEEPEST)
        except FileNotFoundError:
            return
        except (OSError, ValueError):
            self.complete = False

    def _look(self, directory: int, path: str, glob: _Glob, states: frozenset[int], levels: int) -> None:
        below = []
        with closing(os.scandir(directory)) as entries:
            for entry in entries:
                if self._spent():
                    return
                after = glob.step(states, entry.name)
                whole = f"{path}/{entry.name}"
                if not after or self._kept(whole):
                    continue
                if glob.accepts(after) and self._wanted(entry.name):
                    self._add(entry, whole)
                if glob.goes_on(after) and self._is_directory(entry):
                    below.append((entry.name, after))
        for name, after in below:
            whole = f"{path}/{name}"
            if levels and whole not in self._remote:
                self._descend(directory, whole, name, glob, after, levels - 1)
            else:
                self.complete = False

    def _descend(self, directory: int, path: str, name: str, glob: _Glob, states: frozenset[int], levels: int) -> None:
        try:
            opened = os.open(name, _DIRECTORY, dir_fd=directory)
            try:
                self._look(opened, path, glob, states, levels)
            finally:
                os.close(opened)
        except FileNotFoundError:
            return
        except OSError:
            self.complete = False

    def _add(self, entry: os.DirEntry[str], path: str) -> None:
        try:
            self.found[path] = found_file(path, entry.stat(follow_symlinks=False), self._now)
        except FileNotFoundError:
            return
        except OSError:
            self.complete = False

    def _is_directory(self, entry: os.DirEntry[str]) -> bool:
        try:
            return entry.is_dir(follow_symlinks=False)
        except OSError:
            self.complete = False
            return False

    def _spent(self) -> bool:
        self._left -= 1
        if self._left < 0 or time.monotonic() > self._deadline:
            self.complete = False
            return True
        return False


def _parse(text: str, real: Callable[[str], str | None]) -> _Glob | None:
    """None if it is not absolute, or its literal part is not to be resolved."""
    if not text.startswith("/"):
        return None
    parts = [part for part in os.path.normpath(text).split("/") if part]
    if parts and parts[-1] == _ANY_DEPTH:
        parts.append("*")
    wild = next((index for index, part in enumerate(parts) if _WILD.search(part)), max(0, len(parts) - 1))
    root = real("/" + "/".join(parts[:wild]))
    return _Glob(root, tuple(parts[wild:])) if root is not None else None


@lru_cache(maxsize=256)
def _pattern(part: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(part))


def _target(path: str, trusted: set[int]) -> str | None:
    """Where a link leads, "" if it is none, None if it is not to be followed (compare protected_symlinks, proc(5))."""
    try:
        state = os.lstat(path)
        if not stat.S_ISLNK(state.st_mode):
            return ""
        holder = os.lstat(os.path.dirname(path))
        target = os.readlink(path)
    except OSError:
        return ""
    exchangeable = holder.st_mode & stat.S_IWOTH and not holder.st_mode & stat.S_ISVTX
    return None if state.st_uid not in trusted or state.st_nlink != 1 or exchangeable else target
