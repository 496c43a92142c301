"""Whether an edit can have an effect: the file is the one that the server's Python imports, and its bytecode fits.

Only what the user has edited, or watches, is looked at. It is refused where Python is sure to import something else
under the same name: from an earlier directory of its path (sys.path), from its own installation where the file is in
another one's, from the directory of an editable installation.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterable, Iterator, Sequence

from supervise.host import compiled, distribution
from supervise.host.interpreter import Interpreter
from supervise.model.preflight import Check, Level
from supervise.preflight import edited
from supervise.preflight.launch import Launch
from supervise.text import home

NAME = "effect"
_PROVING_S = 5.0
_DEPTH = 32
_SUFFIXES = (".py", ".abi3.so")
_SITES = ("site-packages", "dist-packages")


def check(launch: Launch) -> Iterator[Check]:
    """Tell what would have no effect.

    Args:
        launch: its packages, what is watched, and where its run is.
    """
    if launch.state_dir is None:
        return
    found = edited.look(launch.need, launch.env, launch.packages, launch.watch, launch.state_dir)
    looked = (*found.files, *_named(launch.watch, launch.packages))
    if not looked:
        return
    if found.python is None:
        told = f"it is not known whether {_short(looked)} is what is imported: {found.why}"
        yield Check(NAME, Level.WARNING, told, "name the Python of the server on its command line")
        return
    imports, seen = _Imports(found.python), set()
    for path in looked:
        if (instead := imports.instead_of(path)) is not None and (instead.top, instead.root) not in seen:
            seen.add((instead.top, instead.root))
            own = instead.top in map(distribution.normal, launch.packages)
            yield Check(NAME, launch.worst(sure=own), instead.text(path), instead.fix)
    yield from _stale(found.files, found.python, launch.env.get("PYTHONPYCACHEPREFIX", ""))


def _named(watch: Iterable[str], packages: Sequence[str]) -> Iterator[str]:
    """What is watched, as something in a package: a tree of sources stands for the engine's package in it."""
    for path in watch:
        if os.path.isfile(path) and path.endswith(".py"):
            yield path
        elif os.path.isfile(os.path.join(path, "__init__.py")):
            yield os.path.join(path, "__init__.py")
        else:
            for name in map(distribution.normal, packages):
                for below in (name, os.path.join("src", name)):
                    if os.path.isfile(inner := os.path.join(path, below, "__init__.py")):
                        yield inner


def _short(paths: Sequence[str]) -> str:
    return home(paths[0]) + (f" (and {len(paths) - 1} more)" if len(paths) > 1 else "")


class _Instead:
    """What is imported instead of a file: the package `top`, not from `root` but from `place`."""

    def __init__(self, top: str, root: str, place: str, why: str) -> None:
        self.top, self.root, self._place, self._why = top, root, place, why

    def text(self, path: str) -> str:
        return f"{home(path)} is not what is imported: {self.top} comes from {home(self._place)} ({self._why})"

    @property
    def fix(self) -> str:
        return f"edit that one, or start with PYTHONPATH={shlex.quote(self.root)}"


class _Imports:
    """What a Python imports.

    Args:
        python: as it is started for the server.
    """

    def __init__(self, python: Interpreter) -> None:
        self._python = python

    def instead_of(self, path: str) -> _Instead | None:
        """What is imported under the name of a file; None if that is it, or if nobody knows."""
        top, root = _belongs(path)
        if top is None:
            return None
        place = self._place(top)
        if place is None or os.path.realpath(os.path.join(place, top)) == os.path.realpath(os.path.join(root, top)):
            return None
        return _Instead(top, root, place, self._why(root, place))

    def _place(self, top: str) -> str | None:
        """The directory that a package is imported from: the first of Python's that has it, or an editable one."""
        for directory in self._python.site:
            if _has(directory, top):
                return directory
        for installed in distribution.find(top, self._python.site):
            url, editable = installed.origin
            source = distribution.directory_of(url) if editable else None
            for directory in (source, os.path.join(source, "src")) if source else ():
                if _has(directory, top):
                    return directory
        linked = distribution.linked(top, self._python.site)
        return linked if linked is not None and _has(linked, top) else None

    def _why(self, root: str, place: str) -> str:
        here = {os.path.realpath(each) for each in self._python.site}
        if os.path.realpath(place) not in here:
            return "an editable installation"
        if os.path.realpath(root) in here:
            return "which is searched first"
        other = ", another Python than that of the file" if os.path.basename(root) in _SITES else ""
        return f"the server runs in {home(self._python.executable)}{other}"


def _has(directory: str, top: str) -> bool:
    """A directory without an `__init__.py` is searched last of all (PEP 420), and proves nothing."""
    names = (os.path.join(top, "__init__.py"), *(f"{top}{suffix}" for suffix in _SUFFIXES))
    return any(os.path.isfile(os.path.join(directory, name)) for name in names)


def _belongs(path: str) -> tuple[str | None, str]:
    """The top-level package that a file is in, and the directory which that is imported from."""
    root = os.path.dirname(path)
    top: str | None = None
    for _ in range(_DEPTH):
        if not os.path.isfile(os.path.join(root, "__init__.py")):
            return top, root
        root, top = os.path.split(root)
    return None, root


def _stale(paths: Iterable[str], python: Interpreter, prefix: str) -> Iterator[Check]:
    """Bytecode that is believed although it is not what its source compiles to, and that the clean slate leaves."""
    doubtful = [each for path in paths for each in compiled.of_source(path, prefix=prefix) if not _ours(each.path)]
    if not doubtful:
        return
    for candidate, differs in compiled.prove(doubtful, python.executable, time.monotonic() + _PROVING_S).items():
        if differs:
            told = (
                f"{home(candidate.source)} has no effect: Python believes older bytecode, and it is not ours to remove"
            )
            yield Check(NAME, Level.REFUSAL, told, f"rm -- {shlex.quote(candidate.path)}")


def _ours(path: str) -> bool:
    """Whether the clean slate removes it."""
    try:
        state = os.lstat(path)
    except OSError:
        return True
    return state.st_uid == os.getuid() and state.st_nlink == 1
