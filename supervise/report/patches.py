"""What differs between the code of two attempts, as unified diffs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

from supervise.attempts import sources
from supervise.attempts.store import Attempt
from supervise.host.copying import LARGEST_HASHED
from supervise.host.originals import Originals
from supervise.model.sources import Base, Change, Root, Source, Sources
from supervise.report.diffs import unified


class Patch(NamedTuple):
    """One file that differs: a unified diff that `patch -p1` and `git apply` take, and its lines added and removed.

    `known` is False where there is no such diff: a side of it is unknown, then `text` is empty; or it is binary, then
    `text` says its sizes. `certain` is False where nobody can tell whether it differs at all.
    """

    root: str
    path: str
    text: str
    added: int
    removed: int
    known: bool
    certain: bool = True


class _Side(NamedTuple):
    """What a file was in an attempt: whether it was there, and its bytes and digest as far as they are known.

    `published`: it is as its base has it, whatever that is, and the base is that of the other side.
    """

    exists: bool | None
    data: bytes | None = None
    digest: str | None = None
    size: int = 0
    published: bool = False


_ABSENT, _UNKNOWN = _Side(exists=False), _Side(exists=None)


def between(before: Attempt | None, after: Attempt, originals: Originals) -> tuple[Patch, ...] | None:
    """Which files differ between the code of two attempts.

    Roots are paired by their names; a directory that is compared with nothing, and was not looked at in both, has no
    patches. Of a file of more than 64 MiB only the size is compared.

    Args:
        before: the earlier one; None compares with what the files were published as.
        after: the later one.
        originals: what they were published as.

    Returns:
        A patch for each; None if one of the attempts has no sound record of its code.
    """
    new, old = sources.read(after), sources.read(before) if before else Sources()
    if new is None or old is None:
        return None
    known = {root.name: root for root in old.roots}
    found = {root.name: root for root in new.roots}
    patches: list[Patch] = []
    for name in {**known, **found}:
        one = _Code(before, known.get(name), originals) if before else None
        patches += _of_root(name, one, _Code(after, found.get(name), originals), originals)
    return tuple(patches)


def of_contents(path: str, before: bytes | None, after: bytes | None) -> Patch:
    """The patch of one file; its `root` is empty.

    Args:
        path: as it is to be called.
        before: its content, None if there was no such file.
        after: likewise.
    """
    if _is_binary(before) or _is_binary(after):
        return Patch("", path, f"binary: {_size(before)} -> {_size(after)}", 0, 0, known=False)
    text, added, removed = unified(path, _lines(before), _lines(after))
    return Patch("", path, text, added, removed, known=True)


class _Code:
    """The files of one root in one attempt; without a root, nobody looked."""

    def __init__(self, attempt: Attempt, root: Root | None, originals: Originals) -> None:
        self.root, self._attempt, self._originals = root, attempt, originals
        self.files: dict[str, Source] = {source.path: source for source in root.files} if root else {}

    def of(self, path: str, other: _Code | None) -> _Side:
        """What a file was.

        Args:
            path: relative to the root.
            other: the other attempt, in which it is listed if it is not here.
        """
        source = self.files.get(path)
        if source is None:
            return self._unlisted(path, other)
        if source.change is Change.MISSING:
            return _ABSENT
        assert self.root is not None
        data = sources.content(self._attempt, self.root, path)
        return _Side(True, data, source.digest, source.size)

    def _unlisted(self, path: str, other: _Code | None) -> _Side:
        """A file that is as its base has it; where there is no base, all that were there are listed."""
        if self.root is None or self.root.unknown:
            return _UNKNOWN
        if self.root.base is Base.NONE:
            return _ABSENT
        if (original := self._originals.original(self.root, path)) is not None:
            return _Side(True, original)
        listed = other.files.get(path) if other else None
        same = other is not None and other.root is not None and _base(other.root) == _base(self.root)
        if not same or listed is None:
            return _UNKNOWN
        return _ABSENT if listed.change is Change.ADDED else _UNKNOWN._replace(published=True)


def _of_root(name: str, before: _Code | None, after: _Code, originals: Originals) -> Iterator[Patch]:
    roots = [code.root for code in (before, after) if code is not None]
    if all(root is None or root.base is Base.NONE for root in roots) and (before is None or None in roots):
        return
    for path in sorted({*(before.files if before else ()), *after.files}):
        old = before.of(path, after) if before else _published(after, path, originals)
        if patch := _of_sides(path, old, after.of(path, before)):
            yield patch._replace(root=name)


def _published(code: _Code, path: str, originals: Originals) -> _Side:
    assert code.root is not None
    if code.files[path].change is Change.ADDED:
        return _ABSENT
    original = originals.original(code.root, path)
    return _UNKNOWN._replace(published=True) if original is None else _Side(True, original)


def _of_sides(path: str, before: _Side, after: _Side) -> Patch | None:
    """None if they are the same."""
    if before.exists is None or after.exists is None:
        # Whatever is listed is not as its base has it.
        return Patch("", path, "", 0, 0, known=False, certain=before.published or after.published)
    if not before.exists and not after.exists:
        return None
    if before.exists and after.exists and _same(before, after):
        return None
    if (before.exists and before.data is None) or (after.exists and after.data is None):
        return Patch("", path, "", 0, 0, known=False, certain=_differ(before, after))
    return of_contents(path, before.data, after.data)


def _same(one: _Side, other: _Side) -> bool:
    if one.data is not None and other.data is not None:
        return one.data == other.data
    digests = (_digest(one), _digest(other))
    if None not in digests:
        return digests[0] == digests[1]
    return digests == (None, None) and one.size == other.size > LARGEST_HASHED


def _differ(one: _Side, other: _Side) -> bool:
    """Whether it is certain that they are not the same: not of two links, or of two files that nobody may read."""
    known = None not in (_digest(one), _digest(other))
    return known or one.exists != other.exists or _length(one) != _length(other)


def _length(side: _Side) -> int:
    return side.size if side.data is None else len(side.data)


def _digest(side: _Side) -> str | None:
    return hashlib.sha256(side.data).hexdigest() if side.data is not None else side.digest


def _base(root: Root) -> tuple[Base, str]:
    return root.base, root.version


def _is_binary(content: bytes | None) -> bool:
    """What no diff can show: it would be read back as something else."""
    if content is None:
        return False
    try:
        return "\0" in content.decode()
    except ValueError:
        return True


def _lines(content: bytes | None) -> list[str] | None:
    """With their ends; only `\\n` ends one, for patch(1) as well."""
    if content is None:
        return None
    lines = content.decode().split("\n")
    return [*(f"{line}\n" for line in lines[:-1]), *([lines[-1]] if lines[-1] else [])]


def _size(content: bytes | None) -> str:
    return "none" if content is None else f"{len(content)} bytes"
