"""What differs of the code of two attempts: interpreter, versions, commits, edited files. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from supervise.model.sources import Base, Root, Sources
from supervise.report.changes import Difference, moved

if TYPE_CHECKING:
    from supervise.report.patches import Patch


def revised(before: Sources, after: Sources) -> list[Difference]:
    """What differs of the code, without the content of files.

    Args:
        before: the code of the earlier attempt.
        after: of the later one.

    Returns:
        Where packages are imported from, commits, versions of Python and of packages; what only one of them tells is in
        `unrevised`. The path of the interpreter is in attempt.json.
    """
    found = [each for old, new in _pairs(before, after) for each in _of_root(old, new, known=_versioned(before, after))]
    if before.version and after.version and before.version != after.version:
        found.append(moved("interpreter", "Python", before.version, after.version))
    if before.versions and after.versions:
        found += _of_versions(before, after)
    return found


def unrevised(before: Sources, after: Sources) -> list[str]:
    """What of the code cannot be compared, and why.

    Args:
        before: the code of the earlier attempt.
        after: of the later one.
    """
    missing = [
        name
        for name, one, other in (
            ("interpreter", before.python, after.python),
            ("version of Python", before.version, after.version),
            ("versions of packages", before.versions, after.versions),
        )
        if not one or not other
    ]
    reasons = {root.name: root.unknown for sources in (before, after) for root in sources.roots if root.unknown}
    missing += [f"code of {name} ({why})" for name, why in reasons.items()]
    one, other = ({root.name for root in sources.roots} for sources in (before, after))
    missing += [
        f"code of {name} (one of them did not look at it)" for name in sorted(one ^ other) if name not in reasons
    ]
    return missing


def patched(patches: Iterable[Patch]) -> list[Difference]:
    """Files whose content differs.

    Args:
        patches: of the two attempts.
    """
    found = [each for each in patches if each.certain]
    return [_patch(each, name) for each, name in zip(found, short_names([each.path for each in found]), strict=True)]


def undecided(patches: Iterable[Patch]) -> list[str]:
    """Names of files of which nobody can tell whether their content differs.

    Args:
        patches: of the two attempts.
    """
    return short_names([each.path for each in patches if not each.certain])


def short_names(paths: Sequence[str]) -> list[str]:
    """The last parts of paths, as many of each as it takes to tell it from the others.

    Args:
        paths: in any order.
    """
    parts = [path.strip("/").split("/") for path in dict.fromkeys(paths)]
    names = {}
    for mine in parts:
        most = next((n for n in range(1, len(mine)) if sum(each[-n:] == mine[-n:] for each in parts) == 1), len(mine))
        names["/".join(mine)] = "/".join(mine[-most:])
    return [names[path.strip("/")] for path in paths]


def _patch(patch: Patch, name: str) -> Difference:
    unseen = "binary" if patch.text else "content not known"
    size = f"+{patch.added} −{patch.removed}" if patch.known else unseen
    return Difference("patch", patch.path, None, size, f"patch {patch.path} ({size})", f"patch {name} ({size})")


def _of_versions(before: Sources, after: Sources) -> Iterator[Difference]:
    for name in sorted({*before.versions, *after.versions}):
        old, new = before.versions.get(name), after.versions.get(name)
        if old != new:
            told = f"{name} {old or 'not installed'} -> {new or 'not installed'}"
            yield Difference("version", name, old, new, told, told)


def _versioned(before: Sources, after: Sources) -> set[str]:
    """Distributions whose versions are compared by name."""
    return {*before.versions, *after.versions} if before.versions and after.versions else set()


def _pairs(before: Sources, after: Sources) -> list[tuple[Root, Root]]:
    news = {root.name: root for root in after.roots}
    return [(old, news[old.name]) for old in before.roots if old.name in news]


def _of_root(old: Root, new: Root, *, known: set[str]) -> Iterator[Difference]:
    if old.directory != new.directory:
        yield moved("root", old.name, old.directory, new.directory, f"code of {old.name}")
    # A commit names a version only next to others of the same tree.
    if Base.GIT in (old.base, new.base) and (old.base, old.version) != (new.base, new.version):
        yield moved("git", old.name, _base(old), _base(new), f"git {old.name}")
    elif old.version != new.version and old.name not in known:
        yield moved("version", old.name, old.version or "unknown", new.version or "unknown", old.name)


def _base(root: Root) -> str:
    return root.version or "unknown" if root.base is Base.GIT else f"{root.base.value} {root.version}".rstrip()
