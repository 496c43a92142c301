"""Debug code that was left in an engine's packages: each file that is not as its wheel had it, with the diff."""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from supervise.attempts import sources
from supervise.attempts.store import Store
from supervise.host import copying, files
from supervise.host.distribution import Recorded
from supervise.host.originals import Originals
from supervise.model.sources import Base, Change, Root
from supervise.report import patches
from supervise.report.console import Console
from supervise.report.patches import Patch
from supervise.runner.recording import ORIGINALS
from supervise.slate import differences, packages
from supervise.slate.packages import Looked, Package
from supervise.text import home, plural, printable
from supervise.verbs.engines import Engine

_LARGEST = 1024 * 1024
# What a console shows of a file's diff, and of all of them; `--diff` and --json have them whole.
_LINES_EACH, _LINES_ALL = 12, 60
MINUS = "−"


class Left(NamedTuple):
    """A file that is not as its wheel had it: `original` is proven by the RECORD, None if it is not known.

    Of an added one `digest` is what an attempt has recorded of it, and `seen` that attempt, both empty if none has.
    """

    path: str
    change: Change
    patch: Patch
    original: bytes | None = None
    digest: str = ""
    seen: str = ""

    @property
    def restorable(self) -> bool:
        """Whether it can be made as the wheel had it."""
        return bool(self.digest) if self.change is Change.ADDED else self.original is not None


@dataclass(frozen=True, slots=True)
class Debugged:
    """A package, the program of its Python, and what is left in it."""

    package: Package
    python: str
    engine: Engine
    files: tuple[Left, ...] = ()

    @property
    def site(self) -> str:
        """Where its files are, links resolved: below it none is followed."""
        return os.path.realpath(self.package.site)

    @property
    def remedy(self) -> str:
        """What to type for what cannot be put back."""
        return differences.restoring(without(self.package, {f.path for f in self.files if f.restorable}), self.python)


def without(package: Package, paths: set[str]) -> Package:
    """A package in which these files are as they should be."""
    modified, added, missing = (
        tuple(path for path in found if path not in paths)
        for found in (package.modified, package.added, package.missing)
    )
    return replace(package, modified=modified, added=added, missing=missing)


def remembered(store: Store) -> str:
    """Where digests of files are kept."""
    return os.path.join(store.root, ".packages.json")


def originals(store: Store) -> Originals:
    """What files were when they were published."""
    return Originals(os.path.join(store.root, ORIGINALS))


def compared(engine: Engine, store: Store) -> Looked:
    """Compare every file of an engine's packages with their wheels, however large; blocking."""
    cache = remembered(store)
    return packages.look(engine.program, engine.env, engine.packages, cache, thorough=True, before=engine.before)


def look(engines: Iterable[Engine], store: Store) -> list[Debugged]:
    """Compare every file of the engines' packages with their wheels, each package of each Python once.

    Args:
        engines: whose.
        store: has the originals, and what attempts have recorded.
    """
    found: dict[tuple[str, str, str], Debugged] = {}
    for engine in engines:
        looked = compared(engine, store)
        for package in looked.packages:
            executable = looked.python.executable if looked.python else "python"
            key = (executable if package.unknown else "", package.site, package.name)
            if key not in found:
                found[key] = Debugged(package, executable, engine, tuple(_left(package, store)))
    return list(found.values())


def _left(package: Package, store: Store) -> Iterator[Left]:
    if not (package.modified or package.added or package.missing):
        return
    root = Root(package.name, package.site, Base.WHEEL, package.version)
    archive = originals(store)
    for change, paths in ((Change.MODIFIED, package.modified), (Change.MISSING, package.missing)):
        for path in paths:
            original = archive.original(root, path)
            if original is not None and not is_recorded(original, package.record.get(path)):
                original = None
            now = None if change is Change.MISSING else present(package.site, path)
            unknown = original is None or (now is None and change is not Change.MISSING)
            yield Left(path, change, _unknown(path) if unknown else patches.of_contents(path, original, now), original)
    seen = seen_by_attempts(store) if package.added else {}
    for path in package.added:
        now = present(package.site, path)
        digest = "" if now is None else hashlib.sha256(now).hexdigest()
        attempt = seen.get((os.path.realpath(package.site), path, digest), "")
        patch = _unknown(path) if now is None else patches.of_contents(path, None, now)
        yield Left(path, Change.ADDED, patch, None, digest if attempt else "", attempt)


def is_recorded(data: bytes, wanted: Recorded | None) -> bool:
    """Whether a content is the one that a RECORD has the digest of; without a digest nothing is proven."""
    if wanted is None or wanted.digest is None:
        return False
    algorithm = wanted.digest.partition("=")[0]
    if algorithm not in ("sha256", "sha384", "sha512"):
        return False
    return copying.recorded(algorithm, hashlib.new(algorithm, data).digest()) == wanted.digest.rstrip("=")


def present(site: str, path: str) -> bytes | None:
    """The content of a file as it is; None if it is too large, cannot be read, is none, or a link leads out."""
    try:
        if not copying.within(site, path):
            return None
        return files.read_regular(os.path.join(site, path), _LARGEST)
    except (OSError, ValueError):
        return None


def seen_by_attempts(store: Store) -> dict[tuple[str, str, str], str]:
    """Files that attempts have recorded: which attempt, by directory with links resolved, path and sha256."""
    return {
        (directory, source.path, source.digest): f"attempt {number} of {run.name}"
        for run in store.runs()
        for number in run.numbers()
        if (known := sources.read(run.attempt(number))) is not None
        for root in known.roots
        if root.base is not Base.GIT
        for directory in (os.path.realpath(root.directory),)
        for source in root.files
        if source.digest
    }


def _unknown(path: str) -> Patch:
    return Patch("", path, "", 0, 0, known=False)


def to_json(left: Debugged) -> dict[str, Any]:
    """A package with each file and its whole diff."""
    package = left.package
    return {
        "name": package.name,
        "version": package.version,
        "site": package.site,
        "python": left.python,
        "as_published": bool(differences.check(package)),
        "unknown": package.unknown or None,
        "files": [
            {
                "path": file.path,
                "change": file.change.value,
                "known": file.patch.known,
                "added": file.patch.added,
                "removed": file.patch.removed,
                "diff": file.patch.text,
                "restorable": file.restorable,
                "seen": file.seen or None,
            }
            for file in left.files
        ],
        "not_read": list(package.unread),
        "remedy": left.remedy or None,
    }


def tell(console: Console, found: Iterable[Debugged], *, whole: bool, hints: bool = True) -> None:
    """Say what is left, with the diffs.

    Args:
        console: where people read.
        found: the packages.
        whole: also long diffs.
        hints: also what to type.
    """
    budget = _LINES_ALL
    for left in found:
        console.line("code", in_a_line(left))
        for file in left.files:
            console.note(f"{file.change.value:<9}{file.path}{_figures(file)}")
            lines = file.patch.text.splitlines()
            shown = lines if whole else lines[: max(0, min(_LINES_EACH, budget))]
            budget -= len(shown)
            for line in shown:
                console.note(f"    {line}")
            if more := len(lines) - len(shown):
                console.note(f"    and {plural(more, 'more line')}: --diff shows them")
        if not hints:
            continue
        if count := sum(file.restorable for file in left.files):
            console.note(f"--restore makes {count} of {plural(len(left.files), 'file')} as in the wheel")
        if left.remedy:
            console.note(f"by hand: {left.remedy}")


def in_a_line(left: Debugged) -> str:
    """How a package is, in a sentence."""
    package, state = left.package, left.package.checkout
    if package.unknown:
        return f"{package.title}: not compared with its wheel ({package.unknown})"
    if sentence := differences.check(package):
        return sentence
    if state is None:
        counts = ", ".join(f"{len(getattr(package, kind))} {kind}" for kind in ("modified", "added", "missing"))
        unread = f", {len(package.unread)} could not be compared" if package.unread else ""
        return f"{package.title} in {home(package.site)}: {counts}{unread}"
    where = shlex.quote(state.directory)
    counts = f"{len(state.changed)} changed, {len(state.untracked)} untracked"
    told = f"{package.title} at {state.head} in {state.directory}: {counts}"
    return f"{told}; a working tree is left alone: git -C {where} diff, git -C {where} stash -u"


def _figures(file: Left) -> str:
    if file.change is Change.ADDED:
        return (
            f"  +{file.patch.added}{f'  (recorded by {file.seen})' if file.seen else '  (no attempt has recorded it)'}"
        )
    if not file.patch.known:
        return "  (what it was is not known here)" if file.original is None else f"  {printable(file.patch.text)}"
    return f"  +{file.patch.added} {MINUS}{file.patch.removed}"
