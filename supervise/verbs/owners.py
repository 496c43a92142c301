"""Which files of a recorded root are ours to write or to remove: a record on disk may be damaged, or forged."""

from __future__ import annotations

import os

from supervise.host import distribution, watched
from supervise.host.belongings import Belongings
from supervise.model.sources import Base, Root

_OUTSIDE = "it is outside of what is looked at"


class Owners:
    """What belongs to roots as they are on disk now; each is looked at once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, str], Belongings | None] = {}

    def keep_from(self, root: Root, path: str) -> str:
        """Why a file is not to be touched: a phrase, empty if it may be.

        Args:
            root: read from the disk a moment ago, not from a record.
            path: relative to it, from a record.
        """
        if root.base is not Base.WHEEL:
            return "" if _is_below(root, path) else _OUTSIDE
        key = (root.directory, root.name, root.version)
        if key not in self._known:
            self._known[key] = _belongings(root)
        known = self._known[key]
        return "its metadata cannot be read" if known is None else known.keeps_from(path)


def _belongings(root: Root) -> Belongings | None:
    found = [
        each
        for each in distribution.installed(root.directory)
        if (distribution.normal(each.name), each.version) == (distribution.normal(root.name), root.version)
    ]
    try:
        return Belongings(found[0], found[0].record()) if len(found) == 1 else None
    except (OSError, ValueError):
        return None


def _is_below(root: Root, path: str) -> bool:
    """Whether it is a file that is looked at: the one that is watched, or code in a directory that is."""
    names = path.split("/")
    if os.path.isabs(path) or ".." in names:
        return False
    if os.path.isabs(root.name):
        below = [os.path.relpath(root.name, root.directory)]
    else:
        package = {root.name, distribution.normal(root.name)}
        below = [each for name in package for each in (name, f"src/{name}")]
        below += [] if root.directory.endswith("-packages") else ["."]
    if path in below:
        return True
    # Below a directory nothing hidden counts.
    counts = watched.counts(names[-1]) and not any(watched.is_hidden(name) for name in names)
    return counts and any(each == "." or path.startswith(f"{each}/") for each in below)
