"""What the code of an attempt was: where it is imported from, and which files are not what they were published as."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class Base(StrEnum):
    """What the files of a root are compared with."""

    WHEEL = "wheel"
    GIT = "git"
    NONE = "none"


class Change(StrEnum):
    """How a file differs from its base; where there is none, every file is PLAIN."""

    MODIFIED = "modified"
    ADDED = "added"
    MISSING = "missing"
    PLAIN = "plain"


class Source(NamedTuple):
    """A file that is not what its base has: path relative to its root, sha256 in hex, size in bytes.

    `digest` is None where there is no file, or none that could be read. `kept` says whether the attempt has a copy.
    """

    path: str
    change: Change
    digest: str | None
    size: int = 0
    kept: bool = False


@dataclass(frozen=True, slots=True)
class Root:
    """A package or a watched tree: what people call it, its directory, and what it is compared with.

    `version` is that of the wheel, or the short hash of the commit. For a wheel, `directory` is the one that its RECORD
    is relative to (`site-packages`); for a commit the top of the working tree. `unknown` is a phrase that says why
    there is no comparison; then `files` proves nothing.
    """

    name: str
    directory: str
    base: Base
    version: str = ""
    files: tuple[Source, ...] = ()
    unknown: str = ""


@dataclass(frozen=True, slots=True)
class Sources:
    """The code of one attempt: the server's interpreter, versions of installed distributions, and its roots.

    `python` is the path of the interpreter and `version` its version, None where nobody could tell. `read_s` is how
    many seconds after the launch the files were read.
    """

    python: str | None = None
    version: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    roots: tuple[Root, ...] = ()
    read_s: float = 0.0
