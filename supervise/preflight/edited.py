"""Python files that somebody has edited: what their packages' RECORDs, or the last attempt, say that they are not.

Cheap by design, for nobody waits for it: a stat for each file of a package, digests of the few that are younger than
the last attempt, or than the installation. Where more of them are, somebody has installed anew, and edited nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from supervise.attempts import sources
from supervise.attempts.store import Attempt, Run
from supervise.host import distribution, files, git, interpreter, watched
from supervise.host.distribution import Distribution
from supervise.host.interpreter import Interpreter
from supervise.model.need import Need
from supervise.model.sources import Base, Change, Root

MOST = 64
"""So many files may be edited at once; of more nothing is said."""

_LARGEST = 8 * 1024 * 1024
_DEADLINE_S = 2.0
_REMEMBERED_S = 10.0
# The clock that files are stamped with is behind ours by up to a tick.
_TICK_NS = 10_000_000


@dataclass(frozen=True, slots=True)
class Edited:
    """Absolute paths of edited files, and the Python that the server runs in; `why` it is not known if it is None."""

    files: tuple[str, ...] = ()
    python: Interpreter | None = None
    why: str = ""


_lock = threading.Lock()
_remembered: dict[object, tuple[float, Edited]] = {}


def look(need: Need, env: Mapping[str, str], packages: Sequence[str], watch: Sequence[str], run_path: str) -> Edited:
    """Look for edited files; blocking, tens of milliseconds. A second look at the same launch costs nothing.

    Args:
        need: of the launch.
        env: the environment that its engine will see.
        packages: names that the engine is installed under.
        watch: absolute paths of what the user works on.
        run_path: directory of the run: what its last attempt was is known there.
    """
    last = Run(os.path.dirname(run_path), os.path.basename(run_path)).latest()
    key = (run_path, last.number if last else 0, need.argv, tuple(watch), env.get("PYTHONPATH"))
    with _lock:
        at, known = _remembered.get(key, (0.0, None))
        if known is None or time.monotonic() - at > _REMEMBERED_S:
            python, why = interpreter.find(need.program, env, before=need.wrappers)
            found = _Looking(last, python.site if python else ()).look(packages, watch)
            known = Edited(tuple(found), python, why)
            _remembered.clear()
            _remembered[key] = (time.monotonic(), known)
        return known


def changed_since(when_ns: int, site: Sequence[str], packages: Sequence[str], watch: Sequence[str]) -> tuple[str, ...]:
    """Files that were written after a moment, whatever their content is now; blocking, tens of milliseconds.

    Of packages, in an editable installation as well, these are Python files, of what is watched all that counts there.

    Args:
        when_ns: nanoseconds since the epoch.
        site: directories that the server's Python imports from.
        packages: names that the engine is installed under.
        watch: absolute paths of what the user works on.
    """
    deadline = time.monotonic() + _DEADLINE_S
    above = ((name, place) for name in packages for place in (*site, *_trees(name, site)))
    places = [os.path.join(place, distribution.normal(name)) for name, place in above]
    written = {path: state.st_ctime_ns for place in places for path, state in _python_files(place, deadline)}
    if watch:
        written |= {path: state[1] for path, state in watched.look(watch).files.items()}
    return tuple(sorted(path for path, changed_ns in written.items() if changed_ns > when_ns - _TICK_NS))


def _trees(name: str, site: Sequence[str]) -> Iterator[str]:
    """Directories that an editable installation of a package is imported from."""
    for each in distribution.find(name, site):
        url, editable = each.origin
        if editable and (directory := distribution.directory_of(url)) is not None:
            yield from (directory, os.path.join(directory, "src"))


class _Looking:
    """One look.

    Args:
        last: the attempt before, None before the first.
        site: directories that the server's Python imports from.
    """

    def __init__(self, last: Attempt | None, site: Sequence[str]) -> None:
        said = (last.read("attempt") or {}).get("began") if last else None
        self._site = site
        self._began_ns = int(said * 1e9) if isinstance(said, int | float) else None
        record = sources.read(last) if last else None
        self._roots = record.roots if record and self._began_ns is not None else ()
        self._digests: dict[str, str | None] = {}
        self._deadline = time.monotonic() + _DEADLINE_S

    def look(self, packages: Sequence[str], watch: Sequence[str]) -> list[str]:
        found = [path for path in self._known() if self._same(path)]
        for name in packages:
            found += self._in_package(name)
        for root in self._roots:
            if root.base is Base.GIT and not root.unknown:
                found += self._in_checkout(root, packages)
        if self._began_ns is not None and watch:
            young = [path for path, state in watched.look(watch).files.items() if state[1] > self._began_ns]
            young = self._few(path for path in young if path.endswith(".py") and not self._same(path))
            put_back = self._published(young, packages)
            found += [path for path in young if path not in put_back]
        return [path for path in dict.fromkeys(found) if os.path.isfile(path)][:MOST]

    def _known(self) -> Iterator[str]:
        """Files of the last attempt that were not as published; what was added has been told of then."""
        for root in self._roots:
            for file in root.files:
                if file.path.endswith(".py"):
                    path = os.path.normpath(os.path.join(root.directory, file.path))
                    self._digests[path] = file.digest
                    if file.change is Change.MODIFIED:
                        yield path

    def _same(self, path: str) -> bool:
        """Whether a file is what the last attempt had."""
        known = self._digests.get(path)
        return known is not None and _sha256(path) == known

    def _in_package(self, name: str) -> list[str]:
        installed = next(self._installed(name), None)
        if installed is None:
            return []
        place = os.path.join(installed.site, distribution.normal(name))
        try:
            record = os.stat(os.path.join(installed.site, installed.info, "RECORD"))
            compared = any(
                root.base is Base.WHEEL and not root.unknown and root.directory == installed.site
                for root in self._roots
            )
            young = self._few(self._younger(place, record, compared=compared))
            return _proven(installed, young, added=compared) if young else []
        except (OSError, ValueError):
            return []

    def _published(self, paths: Sequence[str], packages: Sequence[str]) -> set[str]:
        """Those that are as their package has them: they were put back, and no edit can take effect."""
        found: set[str] = set()
        for name in packages if paths else ():
            for installed in self._installed(name):
                below = {path for path in paths if path.startswith(installed.site + os.sep)}
                with contextlib.suppress(OSError, ValueError):
                    found |= below.difference(_proven(installed, list(below), added=True))
        return found

    def _installed(self, name: str) -> Iterator[Distribution]:
        """The distribution whose files are imported under that name: it has a directory of that name beside it."""
        wanted = distribution.normal(name)
        for site in self._site:
            if os.path.isdir(os.path.join(site, wanted)):
                yield from (
                    each
                    for each in distribution.installed(site)
                    if distribution.normal(each.name).startswith(wanted) and each.lists(f"{wanted}/__init__.py")
                )

    def _in_checkout(self, root: Root, packages: Sequence[str]) -> list[str]:
        """Of an editable installation, what the working tree has that its last commit has not."""
        places = [os.path.join(root.directory, below, each) for below in ("", "src") for each in packages]
        young = [
            path
            for place in places
            for path, state in _python_files(place, self._deadline)
            if state.st_ctime_ns > (self._began_ns or 0) and not self._same(path)
        ]
        if not self._few(young):
            return []
        try:
            state = git.state(root.directory)
        except git.GitError:
            return []
        changed = {os.path.join(root.directory, name) for name in (*state.changed, *state.untracked)}
        return [path for path in young if path in changed]

    def _younger(self, place: str, record: os.stat_result, *, compared: bool) -> Iterator[str]:
        """Python files that changed after the last attempt began if that has looked at the others, or else after the
        installation; a RECORD is written last.

        What was copied, as the files of a container image are, has all changed at the time of the copy, but not been
        modified.
        """
        since = self._began_ns if compared and self._began_ns is not None else record.st_ctime_ns
        for path, state in _python_files(place, self._deadline):
            if (compared or state.st_mtime_ns > record.st_mtime_ns) and max(
                state.st_ctime_ns, state.st_mtime_ns
            ) >= since:
                yield path

    def _few(self, paths: Iterable[str]) -> list[str]:
        found: list[str] = []
        for path in paths:
            found.append(path)
            if len(found) > MOST:
                return []
        return found


def _python_files(place: str, deadline: float) -> Iterator[tuple[str, os.stat_result]]:
    pending = [place]
    while pending and time.monotonic() < deadline:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    if entry.name.endswith(".py"):
                        yield entry.path, entry.stat()
                    elif entry.is_dir(follow_symlinks=False) and entry.name != "__pycache__":
                        pending.append(entry.path)
        except OSError:
            continue


def _proven(installed: Distribution, paths: Sequence[str], *, added: bool) -> list[str]:
    """Those of them that are not what the RECORD lists; `added`: or that it does not list.

    Raises:
        OSError: there is none.
        ValueError: it is damaged.
    """
    record, found = installed.record(), []
    for path in paths:
        recorded = record.get(os.path.relpath(path, installed.site))
        if recorded is None or recorded.digest is None:
            found += [path] if added and recorded is None else []
            continue
        algorithm, _, digest = recorded.digest.partition("=")
        if algorithm in hashlib.algorithms_guaranteed and _digest(path, algorithm) not in (None, digest.rstrip("=")):
            found.append(path)
    return found


def _digest(path: str, algorithm: str) -> str | None:
    """In the form of a RECORD; None if the file cannot be read."""
    try:
        data = files.read_regular(path, _LARGEST)
    except (OSError, ValueError):
        return None
    return urlsafe_b64encode(hashlib.new(algorithm, data).digest()).decode().rstrip("=")


def _sha256(path: str) -> str | None:
    try:
        return hashlib.sha256(files.read_regular(path, _LARGEST)).hexdigest()
    except (OSError, ValueError):
        return None
