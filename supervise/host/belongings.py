"""Whose a file beside an installed distribution is, told from the RECORDs of all that share its directory.

What nobody lists belongs to whoever alone has files in the nearest directory above it. A neighbour without a RECORD may
own whatever is in the packages that it names (top_level.txt), or in any namespace (PEP 420) if it names none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from enum import StrEnum

from supervise.host import distribution
from supervise.host.distribution import Distribution, Recorded

# Scripts and data of a wheel lie below the prefix of its environment, three directories above its packages.
_BESIDE = re.compile(r"(?:\.\./){1,3}(?!\.\./)[^/]")
_IN_A_PREFIX = re.compile(r"/(?:local/)?lib(?:64)?/(?:python3(?:\.\d+t?)?|pypy3(?:\.\d+)?)/(?:site|dist)-packages$")


class Whose(StrEnum):
    """Who has a file that nobody lists."""

    OURS = "ours"
    THEIRS = "theirs"
    SHARED = "shared"
    UNKNOWN = "unknown"


class Belongings:
    """What belongs to one distribution.

    Args:
        installed: the distribution.
        record: what it lists.
    """

    def __init__(self, installed: Distribution, record: Mapping[str, Recorded]) -> None:
        self._installed, self._record = installed, record
        self._ours: set[str] | None = None
        self._others: dict[str, str] = {}
        self._theirs: dict[str, str] = {}
        self._silent: list[tuple[str, set[str] | None]] = []

    def listed(self, path: str) -> str:
        """The other distribution that lists a path; empty if none does."""
        self._read()
        return self._others.get(path, "")

    def whose(self, path: str) -> tuple[Whose, str]:
        """Who has a file that nobody lists, and the distribution that may have it, empty where that is ours.

        Args:
            path: relative to the directory of the distribution, in one of its own directories.
        """
        ours = self._read()
        top, directory = path.partition("/")[0], os.path.dirname(path)
        while directory and directory not in ours and directory not in self._theirs:
            directory = os.path.dirname(directory)
        mine, other = directory in ours, self._theirs.get(directory, "")
        whole = mine and f"{directory}/__init__.py" in self._record
        for name, tops in self._silent:
            if (not whole) if tops is None else top in tops:
                return Whose.UNKNOWN, name
        if not directory:
            other = next((name for each, name in self._theirs.items() if each.startswith(f"{top}/")), "")
            return (Whose.SHARED, other) if other else (Whose.OURS, "")
        if mine:
            return (Whose.SHARED, other) if other else (Whose.OURS, "")
        return Whose.THEIRS, other

    def keeps_from(self, path: str) -> str:
        """Why a file is not ours to write or to remove: a phrase, empty if it is.

        Args:
            path: relative to the directory of the distribution.
        """
        if os.path.isabs(path) or os.path.normpath(path) != path:
            return "it is outside of the package"
        if path.startswith("../"):
            inside = path in self._record and _BESIDE.match(path) and _IN_A_PREFIX.search(self._installed.site)
            return "" if inside else "it is outside of the package"
        if path in self._record:
            return ""
        if path.partition("/")[0] not in own_directories(self._record):
            return "it is outside of the package"
        if other := self.listed(path):
            return f"it is a file of {other}"
        whose, other = self.whose(path)
        return "" if whose is Whose.OURS else f"it may be a file of {other}"

    def _read(self) -> set[str]:
        """The directories that have files of ours; with those of the others, once."""
        if self._ours is not None:
            return self._ours
        tops = set(own_directories(self._record))
        self._ours = {os.path.dirname(path) for path in self._record} - {""}
        for name, paths in self._neighbours():
            for path in paths:
                if path.partition("/")[0] in tops:
                    self._others.setdefault(path, name)
                    self._theirs.setdefault(os.path.dirname(path), name)
        return self._ours

    def _neighbours(self) -> Iterator[tuple[str, Mapping[str, Recorded]]]:
        for other in distribution.installed(self._installed.site):
            if other.info == self._installed.info:
                continue
            try:
                yield other.name, other.record()
            except (OSError, ValueError):
                self._silent.append((other.name, other.tops()))


def own_directories(record: Mapping[str, Recorded]) -> list[str]:
    """The top-level directories of a wheel's packages: not its metadata, not what lies outside (`../../bin`)."""
    tops = dict.fromkeys(path.partition("/")[0] for path in record if "/" in path)
    return [top for top in tops if top not in ("", ".", "..") and not top.endswith(".dist-info")]
