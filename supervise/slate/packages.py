"""Installed packages that are not what their wheel was: forgotten debug code, shown before it is believed.

Nothing here is ever repaired: what somebody changed on purpose looks the same. What could not be compared is said.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from supervise.host import distribution, git, interpreter, wheel
from supervise.host.belongings import own_directories
from supervise.host.copying import Copies
from supervise.host.distribution import Distribution, Recorded
from supervise.host.git import GitState
from supervise.host.interpreter import Interpreter
from supervise.model.slate import Finding
from supervise.model.sources import Source
from supervise.slate import reinstalling
from supervise.slate.differences import check, judge
from supervise.text import printable

# At a launch, thousands of small files; on request, also the binaries of several GB.
_LAUNCH_S, _THOROUGH_S = 20.0, 600.0


@dataclass(frozen=True, slots=True)
class Package:
    """One package as it was found.

    Paths are relative to `site`, the directory that it is imported from. `by_size` counts the large files of which only
    the size was compared, `unread` are those that could not be. `checkout` is there instead where it is imported from
    a directory of sources, of which `below` is the package; `unknown` is a phrase that says why there is no comparison
    at all, `absent` if it is just not installed there. Of what was compared with its wheel there are `installed` and
    its `record`, and with copies also `files`: each that differs, with its digest. `place` are the words that tell an
    installer where it has to go, None if there are none.
    """

    name: str
    version: str = ""
    site: str = ""
    installer: str = ""
    origin: str = ""
    modified: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    by_size: int = 0
    checkout: GitState | None = None
    unknown: str = ""
    absent: bool = False
    below: str = "."
    installed: Distribution | None = None
    record: Mapping[str, Recorded] = field(default_factory=dict, repr=False)
    files: tuple[Source, ...] = ()
    place: tuple[str, ...] | None = ()

    @property
    def title(self) -> str:
        """`vllm 0.32.0`."""
        return printable(f"{self.name} {self.version}".strip())


class Looked(NamedTuple):
    """Packages as they were found, in the Python that a command line runs in: None, and why that is not known."""

    python: Interpreter | None
    why: str
    packages: tuple[Package, ...]

    def remarks(self, *, thorough: bool) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
        """Remarks, and sentences about what is as it should be.

        Args:
            thorough: whether it is said that one is not installed: a command that is merely called like an engine is
                nothing to remark upon at every launch.
        """
        found = [package for package in self.packages if thorough or not package.absent]
        executable = self.python.executable if self.python else "python"
        findings = tuple(finding for package in found for finding in judge(package, executable))
        return findings, tuple(sentence for package in found if (sentence := check(package)))


def look(
    program: Sequence[str],
    env: Mapping[str, str],
    packages: Sequence[str],
    cache_file: str,
    *,
    thorough: bool,
    before: Sequence[str] = (),
    copies: Copies | None = None,
) -> Looked:
    """Compare packages with their wheels in the Python that a server's command line runs in.

    Args:
        program: the engine's own command line, without wrappers.
        env: the environment that it will see.
        packages: names of distributions or packages; an absolute directory is looked at as a working tree.
        cache_file: where digests of files are remembered.
        thorough: whether large files are read, too.
        before: the words of the wrappers in front of `program`.
        copies: takes the files that are not as in their wheel.

    Returns:
        What was found; blocking: tens of milliseconds when all was seen before, at most 20 s for each package, ten
        minutes if thorough.
    """
    python, why = interpreter.find(program, env, before=before)
    found = tuple(_look(name, python, why, cache_file, thorough=thorough, copies=copies) for name in packages)
    return Looked(python, why, found)


def examine(
    program: Sequence[str],
    env: Mapping[str, str],
    packages: Sequence[str],
    cache_file: str,
    *,
    thorough: bool,
    before: Sequence[str] = (),
) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """What there is to be said about packages: see `look` and `Looked.remarks`."""
    return look(program, env, packages, cache_file, thorough=thorough, before=before).remarks(thorough=thorough)


def directories(
    program: Sequence[str], env: Mapping[str, str], packages: Sequence[str], *, before: Sequence[str] = ()
) -> tuple[dict[str, str], str | None]:
    """Where the code of packages lies that a server's command line would import.

    Args:
        program: the engine's own command line, without wrappers.
        env: the environment that it will see.
        packages: names of packages, or absolute directories.
        before: the words of the wrappers in front of `program`.

    Returns:
        Absolute directories by the names of the packages, without those that do not exist, and the interpreter, None
        if it is not known.
    """
    python, _ = interpreter.find(program, env, before=before)
    site = python.site if python else ()
    found = {name: place for name in packages if (place := next(_places(name, site), None))}
    return found, python.executable if python else None


def _places(name: str, site: Sequence[str]) -> Iterator[str]:
    if os.path.isabs(name):
        yield from [os.path.normpath(name)] if os.path.isdir(name) else []
        return
    package = distribution.normal(name)
    yield from (path for directory in site if os.path.isdir(path := os.path.join(directory, package)))
    for installed in distribution.find(name, site):
        source = distribution.directory_of(installed.origin[0])
        for directory in (source, f"{source}/src") if source else ():
            if os.path.isdir(os.path.join(directory, package)):
                yield os.path.join(directory, package)


def _look(
    name: str, python: Interpreter | None, why: str, cache_file: str, *, thorough: bool, copies: Copies | None
) -> Package:
    if os.path.isabs(name):
        return _checkout(Package(name), name)
    if python is None:
        return Package(name, unknown=why)
    return compare(name, python, cache_file, thorough=thorough, copies=copies)


def compare(
    name: str, python: Interpreter, cache_file: str, *, thorough: bool, copies: Copies | None = None
) -> Package:
    """Compare one package with its wheel, or its working tree with its last commit.

    Args:
        name: of the distribution, or of the package.
        python: where it is looked for.
        cache_file: where digests of files are remembered.
        thorough: whether large files are read, too.
        copies: takes the files that are not as in their wheel.
    """
    found = distribution.find(name, python.site)
    if not found:
        return _without_metadata(name, python)
    if len(found) > 1:
        versions = ", ".join(printable(f"{each.name} {each.version}") for each in found)
        if all(distribution.normal(each.name) != distribution.normal(name) for each in found):
            return Package(name, unknown=f"it is a namespace of more than one, name the one that is meant: {versions}")
        return Package(name, unknown=f"{found[0].site} has metadata of more than one: {versions}")
    installed = found[0]
    origin, editable = installed.origin
    package = Package(installed.name, installed.version, installed.site, installed.installer, origin)
    if editable:
        directory = distribution.directory_of(origin)
        return _checkout(package, directory) if directory else replace(package, unknown=f"editable from {origin}")
    try:
        return _compared(package, installed, python, wheel.Digests(cache_file), thorough=thorough, copies=copies)
    except (FileNotFoundError, NotADirectoryError):
        by = f" (installed by {printable(package.installer)})" if package.installer else ""
        return replace(package, unknown=f"its metadata has no RECORD{by}")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "damaged"
        return replace(package, unknown=f"its RECORD cannot be read ({reason})")


def _compared(
    package: Package,
    installed: Distribution,
    python: Interpreter,
    digests: wheel.Digests,
    *,
    thorough: bool,
    copies: Copies | None,
) -> Package:
    record = installed.record()
    own = own_directories(record)
    if not own:
        return replace(package, unknown="its RECORD lists no package")
    if shadow := _shadow(own, installed.site, python):
        return _checkout(replace(package, version=""), *shadow)
    deadline = time.monotonic() + (_THOROUGH_S if thorough else _LAUNCH_S)
    seen = wheel.compare(installed, record, digests, thorough=thorough, deadline=deadline, copies=copies)
    return replace(
        package,
        modified=tuple(seen.modified),
        added=tuple(seen.added),
        missing=tuple(seen.missing),
        unread=tuple(seen.unread),
        by_size=seen.by_size,
        installed=installed,
        record=record,
        files=tuple(seen.files),
        place=_place(installed.site, python, own, record),
    )


def _place(
    site: str, python: Interpreter, own: Sequence[str], record: Mapping[str, Recorded]
) -> tuple[str, ...] | None:
    executable = python.executable
    beside = (os.path.dirname(executable), os.path.dirname(os.path.dirname(executable)))
    is_environment = any(os.path.isfile(os.path.join(directory, "pyvenv.cfg")) for directory in beside)
    base = executable if is_environment else os.path.realpath(executable)
    return reinstalling.place(site, executable, base, own, record.keys())


def _shadow(own: Sequence[str], site: str, python: Interpreter) -> tuple[str, str] | None:
    """A directory that Python searches before `site`, and one of its packages in there: that one is imported."""
    for directory in python.site[: python.site.index(site)]:
        for top in own:
            if os.path.exists(os.path.join(directory, top, "__init__.py")):
                return directory, top
    return None


def _without_metadata(name: str, python: Interpreter) -> Package:
    """What Python imports under a name that no metadata knows."""
    if directory := distribution.linked(name, python.site):
        return _checkout(Package(name), directory)
    for directory in python.site:
        if os.path.exists(os.path.join(directory, name, "__init__.py")):
            return _checkout(Package(name), directory, name)
    return Package(name, unknown=f"not installed for {python.executable}", absent=True)


def _checkout(package: Package, directory: str, below: str = ".") -> Package:
    package = replace(package, site=directory, below=below)
    try:
        return replace(package, checkout=git.state(directory, below))
    except git.GitError as error:
        return replace(package, unknown=f"imported from {directory}, {error}")
