"""The record of an attempt's code: what is looked at while its server loads, and how it gets to the attempt."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from supervise.host import distribution
from supervise.host.copying import MOST_BYTES, MOST_FILES, Copies
from supervise.host.distribution import Distribution, Recorded
from supervise.host.interpreter import Interpreter
from supervise.model.sources import Base, Root, Sources
from supervise.slate import packages, roots
from supervise.text import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from supervise.attempts.store import Attempt, Store
    from supervise.model.slate import Finding
    from supervise.runner.plan import Plan

Contents = Mapping[tuple[str, str], bytes]
"""Copies of files, by `Root.directory` and `Source.path`."""

_WITHIN_S = 20.0
_VERSION = re.compile(r"/python(3\.\d+t?)(?:/|$)")


class Recording(NamedTuple):
    """What was read, once: what there is to be said of it, and what there is to be kept of it.

    `wheels` are the packages that were compared with one, each with what it lists, and `originals` is where that is
    archived. `refused` files were not copied.
    """

    remarks: tuple[Finding, ...]
    checks: tuple[str, ...]
    sources: Sources
    contents: Contents
    wheels: tuple[tuple[Distribution, Mapping[str, Recorded]], ...] = ()
    refused: int = 0
    originals: str = ""

    def keep(self, attempt: Attempt, read_s: float) -> None:
        """Write it down with an attempt.

        Args:
            attempt: the attempt.
            read_s: how many seconds after its launch all had been read.

        Raises:
            OSError: it could not be written.
        """
        from supervise.attempts import sources

        sources.write(attempt, replace(self.sources, read_s=read_s), self.contents)

    def keep_originals(self) -> None:
        """Archive what is as its wheel had it, for a time when it is not; blocking, seconds for a new version."""
        from supervise.host.originals import Originals

        originals = Originals(self.originals)
        for installed, record in self.wheels:
            originals.keep(installed, record)

    @property
    def note(self) -> str | None:
        """What people are told of copies that are missing."""
        if not self.refused:
            return None
        room = f"{MOST_FILES} files and {MOST_BYTES // 2**20} MiB"
        return f"no copy is kept of {plural(self.refused, 'changed file')}: an attempt keeps {room} of them"


ORIGINALS = ".originals"
"""The directory of originals, in that of the store."""


def look(planned: Plan, store: Store) -> tuple[Sources, Contents]:
    """Read the code as it is on disk now; blocking: tens of milliseconds when all was seen before.

    Args:
        planned: says which packages, in which Python, and what is watched.
        store: where digests are remembered.
    """
    recording = record(planned, store)
    return recording.sources, recording.contents


def record(planned: Plan, store: Store, *, unwanted: bool = False) -> Recording:
    """Read the code that a server runs, and compare it with what it was published as; blocking, at most some 20 s.

    Args:
        planned: says which packages, in which Python, and what is watched.
        store: where digests are remembered.
        unwanted: whether the user wants nothing to be known about packages; then what is watched is read all the same.
    """
    need, names, copies = planned.need, planned.packages, Copies(time.monotonic() + _WITHIN_S)
    looked = packages.look(
        need.program,
        planned.env,
        () if unwanted else names,
        os.path.join(store.root, ".packages.json"),
        thorough=False,
        before=need.wrappers,
        copies=copies,
    )
    found = [roots.of_package(package, copies) for package in looked.packages]
    found += [Root(name, "", Base.NONE, unknown="nobody wanted to know") for name in names if unwanted]
    found += roots.of_watched(planned.options.watch, looked.packages, copies, store.root)
    remarks, checks = looked.remarks(thorough=False)
    wheels = tuple((each.installed, each.record) for each in looked.packages if each.installed is not None)
    sources, place = _sources(looked.python, found), os.path.join(store.root, ORIGINALS)
    return Recording(remarks, checks, sources, copies.contents, wheels, copies.refused, place)


def _sources(python: Interpreter | None, found: Sequence[Root]) -> Sources:
    if python is None:
        return Sources(roots=tuple(found))
    match = next((match for path in python.site if (match := _VERSION.search(path))), None)
    return Sources(python.executable, match[1] if match else None, _versions(python), tuple(found))


def _versions(python: Interpreter) -> dict[str, str]:
    """Of every distribution that this Python finds; of two of one name the first."""
    versions: dict[str, str] = {}
    for directory in python.site:
        for each in distribution.installed(directory):
            versions.setdefault(distribution.normal(each.name), each.version)
    return versions
