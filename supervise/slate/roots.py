"""Where the code of an attempt comes from, and which of its files are not what they were published as.

Engine packages as they were compared, and what the user works on. What lies in a package belongs to that one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

from supervise.host import distribution, git, watched
from supervise.host.belongings import own_directories
from supervise.host.copying import Copies
from supervise.host.git import GitState
from supervise.model.sources import Base, Change, Root
from supervise.slate.packages import Package
from supervise.text import plural


def of_package(package: Package, copies: Copies) -> Root:
    """The root of a package.

    Args:
        package: as it was compared, with copies.
        copies: takes those of a working tree, or of a directory that is compared with nothing.
    """
    if package.checkout is not None:
        return _checkout(package.name, [(package.checkout, package.below)], copies)
    if package.unknown:
        code = _code(package)
        if code is not None:
            return _plain(package.name, package.site, [code], copies)
        return Root(package.name, package.site, Base.NONE, package.version, unknown=package.unknown)
    unread = f"{plural(len(package.unread), 'file')} could not be read" if package.unread else ""
    return Root(package.name, package.site, Base.WHEEL, package.version, package.files, unread)


def of_watched(paths: Iterable[str], packages: Sequence[Package], copies: Copies, but: str) -> Iterator[Root]:
    """The roots of files and directories that the user works on.

    Args:
        paths: absolute.
        packages: whose files are theirs.
        copies: takes what differs.
        but: a directory of ours that may be among them.
    """
    covered = [place for package in packages for place in _places(package)]
    trees: dict[str, list[tuple[GitState, str]]] = {}
    plain = []
    for path in dict.fromkeys(map(os.path.normpath, paths)):
        if _in(path, covered):
            continue
        directory, below = (path, ".") if os.path.isdir(path) else os.path.split(path)
        try:
            state = git.state(directory, below)
            trees.setdefault(git.top(directory), []).append((state, below))
        except git.GitError:
            plain.append((path, directory))
    for top, states in trees.items():
        yield _checkout(top, states, copies, covered)
    for path, directory in plain:
        yield _plain(path, directory, [path], copies, covered, but)


def _checkout(name: str, states: Sequence[tuple[GitState, str]], copies: Copies, covered: Sequence[str] = ()) -> Root:
    """What a working tree has that its last commit has not; `states` with what each was asked for."""
    top, named = "", dict[str, Change]()
    head = states[0][0].head
    try:
        top = git.top(states[0][0].directory)
        for state, below in states:
            named |= {path: _change(top, path, new=path in state.new) for path in state.changed}
            whole = not any(path.endswith("/") for path in state.untracked)
            names = state.untracked if whole else git.untracked(state.directory, below)
            named |= {path.rstrip("/"): Change.ADDED for path in names if path not in named}
    except git.GitError as error:
        return Root(name, top, Base.GIT, head, unknown=str(error))
    mine = {
        path: change
        for path, change in named.items()
        if not distribution.is_bytecode(path) and not _in(os.path.join(top, path), covered)
    }
    return Root(name, top, Base.GIT, head, copies.all(top, sorted(mine.items())))


def _change(top: str, path: str, *, new: bool) -> Change:
    if not os.path.lexists(os.path.join(top, path)):
        return Change.MISSING
    return Change.ADDED if new else Change.MODIFIED


def _plain(
    name: str, directory: str, paths: Sequence[str], copies: Copies, covered: Sequence[str] = (), but: str | None = None
) -> Root:
    """Every file of a directory that is compared with nothing."""
    seen = watched.look(paths, but)
    mine = sorted(path for path in seen.files if not distribution.is_bytecode(path) and not _in(path, covered))
    files = copies.all(directory, [(os.path.relpath(path, directory), Change.PLAIN) for path in mine])
    unknown = f"more than {watched.MOST} files: only the first of them were looked at" if seen.cut else ""
    return Root(name, directory, Base.NONE, "", files, unknown)


def _code(package: Package) -> str | None:
    """The directory of a package that is compared with nothing; None if nobody knows which one it is."""
    if package.installed is not None or not package.site:
        return None
    below = package.below if package.below != "." else distribution.normal(package.name)
    for directory in (package.site, os.path.join(package.site, "src")):
        if os.path.isdir(os.path.join(directory, below)):
            return os.path.join(directory, below)
    return None if package.site.endswith("-packages") else package.site


def _places(package: Package) -> list[str]:
    """Directories that are a package's own."""
    if package.installed is not None:
        places = [os.path.join(package.site, top) for top in own_directories(package.record)]
    elif package.checkout is not None:
        places = [os.path.normpath(os.path.join(package.site, package.below))]
    else:
        places = [code] if (code := _code(package)) else []
    return [each for place in places for each in dict.fromkeys((place, os.path.realpath(place)))]


def _in(path: str, places: Iterable[str]) -> bool:
    return any(path == place or path.startswith(place.rstrip("/") + "/") for place in places)
