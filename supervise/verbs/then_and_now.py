"""Where the code of an attempt and the code on disk differ, and files put back as that attempt had them."""

from __future__ import annotations

import hashlib
import os
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from supervise.attempts import sources
from supervise.attempts.store import Attempt, Store
from supervise.host import putting_back
from supervise.host.originals import Originals
from supervise.host.saving import NotPutBackError, Saving
from supervise.model.sources import Base, Change, Root, Source, Sources
from supervise.report import patches
from supervise.report.patches import Patch
from supervise.report.revisions import revised, unrevised
from supervise.runner.recording import Contents
from supervise.verbs.debug_code import MINUS, originals, seen_by_attempts
from supervise.verbs.owners import Owners


class Side(NamedTuple):
    """What a file was: its bytes, None if there was none; not `known` where nobody can tell."""

    data: bytes | None
    known: bool = True


# Of a program without Python, now as then, there is nothing to be known.
_OF_PYTHON = frozenset({"interpreter", "version of Python", "versions of packages"})
_UNKNOWN, _ABSENT = Side(None, known=False), Side(None)


class FileDiffers(NamedTuple):
    """A file that is not what it was: `digest` is that of the one on disk, `patch` leads from then to now.

    `differs` says whether the one on disk is not what its base has, either.
    """

    root: Root
    path: str
    then: Side
    now: Side
    digest: str | None
    patch: Patch
    differs: bool = False

    @property
    def place(self) -> str:
        """Its absolute path, links of the root resolved."""
        return os.path.normpath(os.path.join(os.path.realpath(self.root.directory), self.path))


@dataclass(frozen=True, slots=True)
class Comparison:
    """`others` are phrases for what differs beside files, `unknown` for what nobody can compare."""

    files: tuple[FileDiffers, ...] = ()
    others: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """Whether all of it was compared, and is as it was."""
        return not (self.files or self.others or self.unknown)


def compare(attempt: Attempt, now: Sources, contents: Contents, store: Store) -> Comparison:
    """Compare what an attempt has recorded with what is on disk.

    Args:
        attempt: has its record and its copies.
        now: the same, read a moment ago.
        contents: copies of what is there now.
        store: has the originals.
    """
    then = sources.read(attempt)
    if then is None:
        damaged = os.path.lexists(os.path.join(attempt.path, "sources.json"))
        return Comparison(unknown=(f"its code: sources.json is {'damaged' if damaged else 'missing'}",))
    reading = _Reading(attempt, contents, originals(store))
    files: list[FileDiffers] = []
    unknown = [
        each
        for each in unrevised(then, now)
        if each not in _OF_PYTHON or then.python is not None or now.python is not None
    ]
    present = {root.name: root for root in now.roots}
    for root in then.roots:
        other = present.get(root.name)
        if other is None or root.unknown or other.unknown:
            continue
        if (root.directory, root.base, root.version) == (other.directory, other.base, other.version):
            files += reading.files(root, other)
            unknown += [f"{path} of {root.name}: it could not be read" for path in _unread(root, other)]
    others = [each.told for each in revised(then, now)]
    if then.python and now.python and then.python != now.python:
        others.insert(0, f"interpreter: {then.python} -> {now.python}")
    return Comparison(tuple(files), tuple(others), tuple(unknown))


class _Reading:
    def __init__(self, attempt: Attempt, contents: Contents, archive: Originals) -> None:
        self._attempt, self._contents, self._archive = attempt, contents, archive

    def files(self, then: Root, now: Root) -> Iterator[FileDiffers]:
        """Files that differ between the two."""
        before, after = ({each.path: each for each in root.files} for root in (then, now))
        for path in sorted({*before, *after}):
            one, other = before.get(path), after.get(path)
            if _key(one) == _key(other):
                continue
            old = self._side(then, path, one, other, sources.copy_of(self._attempt, one) if one else None)
            new = self._side(now, path, other, one, self._contents.get((now.directory, path)))
            known = old.known and new.known
            patch = patches.of_contents(path, old.data, new.data) if known else Patch("", path, "", 0, 0, known=False)
            yield FileDiffers(now, path, old, new, other.digest if other else _digest(new), patch, other is not None)

    def _side(self, root: Root, path: str, here: Source | None, there: Source | None, kept: bytes | None) -> Side:
        if here is not None:
            return _ABSENT if here.change is Change.MISSING else _UNKNOWN if kept is None else Side(kept)
        if there is not None and there.change in (Change.ADDED, Change.PLAIN):
            return _ABSENT
        original = self._archive.original(root, path)
        return _UNKNOWN if original is None else Side(original)


def _key(source: Source | None) -> tuple[Change, str | None] | None:
    return None if source is None else (source.change, source.digest)


def _digest(side: Side) -> str | None:
    return None if side.data is None else hashlib.sha256(side.data).hexdigest()


def _unread(*roots: Root) -> list[str]:
    return sorted({s.path for root in roots for s in root.files if s.digest is None and s.change is not Change.MISSING})


def told(found: Comparison, began: float | None, *, whole: bool = False) -> Iterator[str]:
    """Lines about what differs: what was then, what is now, which is newer.

    Args:
        found: the comparison.
        began: when the attempt began, in seconds since the epoch.
        whole: whether the diffs are told, too.
    """
    yield from (f"{each}" for each in found.others)
    for each in found.files:
        size = f"+{each.patch.added} {MINUS}{each.patch.removed}" if each.patch.known else "content not known"
        yield f"{each.path}  {size} since then{_newer(each, began)}"
        if whole:
            yield from (f"    {line}" for line in each.patch.text.splitlines())
    yield from (f"not known: {each}" for each in found.unknown)


def _newer(each: FileDiffers, began: float | None) -> str:
    if each.now.known and each.now.data is None:
        return ", it is not here now"
    try:
        changed = os.lstat(each.place).st_mtime
    except OSError:
        return ""
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(changed))
    if began is None:
        return f", changed {at}"
    return f", changed {at}, {'after that attempt began' if changed > began else 'before that attempt began'}"


class PutBack(NamedTuple):
    """What became of it: a line for each file that is left as it is, and bytecode that is left and may be believed."""

    left: tuple[str, ...]
    compiled: tuple[str, ...] = ()


def put_back(found: Comparison, copies: Saving, store: Store, prefix: str) -> PutBack:
    """Put files back as the attempt had them; what is in a working tree is its owner's to check out.

    Args:
        found: what differs.
        copies: takes what is overwritten or removed.
        store: has what attempts have recorded.
        prefix: of PYTHONPYCACHEPREFIX.
    """
    left, compiled = [], []
    for each, why in refused(found, store):
        if not why:
            why = _put_back(each, copies)
        if why:
            left.append(f"{each.path} is left as it is: {why}")
        else:
            compiled += putting_back.forget_bytecode(each.place, prefix)
    return PutBack(tuple(left), tuple(compiled))


def _put_back(each: FileDiffers, copies: Saving) -> str:
    try:
        if each.then.data is not None:
            putting_back.put(each.place, each.then.data, copies)
        else:
            putting_back.remove(each.place, each.digest or "", copies)
    except NotPutBackError as error:
        return str(error)
    return ""


def refused(found: Comparison, store: Store) -> Iterator[tuple[FileDiffers, str]]:
    """Each file that differs, with the phrase that says why it is not put back; empty if it can be.

    Args:
        found: what differs.
        store: has what attempts have recorded.
    """
    seen, owners = seen_by_attempts(store), Owners()
    yield from ((each, _refused(each, seen, owners)) for each in found.files)


def _refused(each: FileDiffers, seen: Mapping[tuple[str, str, str], str], owners: Owners) -> str:
    root = each.root
    if root.base is Base.GIT:
        where = shlex.quote(root.directory)
        return f"a working tree is not touched: git -C {where} diff, git -C {where} stash"
    if not each.then.known:
        return "what it was is not known"
    if why := owners.keep_from(root, each.path):
        return why
    if each.then.data is not None:
        return ""
    recorded = (os.path.realpath(root.directory), each.path, each.digest or "") in seen
    # A file of the wheel, as it was published, can be had again.
    published = root.base is Base.WHEEL and each.now.known and not each.differs
    if each.digest is None or not (recorded or published):
        return f"no attempt has recorded it: rm -- {shlex.quote(each.place)}"
    return ""


def sites(now: Sources) -> Sequence[str]:
    """Directories that code is imported from, links resolved."""
    return [os.path.realpath(root.directory) for root in now.roots if root.directory]
