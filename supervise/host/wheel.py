"""The door to the files of an installed wheel: which are not what its RECORD says, and which it does not list.

A digest is remembered with the identity of the file it was read from. The time of the last change of an inode, ctime,
cannot be set by anybody (utimensat(2)), so that an edit which keeps size and mtime is seen, too.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from supervise.host import copying, distribution, files
from supervise.host.belongings import Belongings, Whose, own_directories
from supervise.host.copying import Copies, Seen
from supervise.host.distribution import Distribution, Recorded
from supervise.model.sources import Change, Source

# Sources, and whatever else costs nothing to read; of the rest (binaries of hundreds of MB) the size is compared.
_SMALL = 64 * 1024
_ALGORITHMS = frozenset({"sha256", "sha384", "sha512"})
_VERSION = 1
# What was written a moment ago may be written again without a new ctime: its clock ticks every few milliseconds
# (vfs current_time), on a network file system it is another host's.
_SETTLED_NS = 2_000_000_000


@dataclass(slots=True)
class Comparison:
    """Paths relative to the directory of the distribution; `by_size` counts files of which only the size is known.

    `unread` could not be compared: not read, without a digest in the RECORD, or maybe of a distribution that has no
    RECORD. `files` has those that differ once more, with their digests, if copies were wanted.
    """

    modified: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    by_size: int = 0
    files: list[Source] = field(default_factory=list)


class Digests:
    """Digests of files that were read before, in one JSON file; a damaged one is an empty one.

    Args:
        path: of the file; it need not exist, nor its directory.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        said = files.read_json(path) or {}
        kept = said.get("roots") if said.get("version") == _VERSION else None
        self._roots: dict[str, Any] = kept if isinstance(kept, dict) else {}

    def of(self, root: str) -> dict[str, Any]:
        """Those of one distribution, by path."""
        known = self._roots.get(root)
        return known if isinstance(known, dict) else {}

    def keep(self, root: str, digests: dict[str, Any]) -> None:
        """Write them down, and forget what is not there any more; where that cannot be done, all is read again."""
        if digests == self._roots.get(root):
            return
        self._roots[root] = digests
        roots = {each: value for each, value in self._roots.items() if os.path.isdir(each)}
        try:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            files.write_atomic(self._path, json.dumps({"version": _VERSION, "roots": roots}, separators=(",", ":")))
        except OSError:
            pass


def compare(
    installed: Distribution,
    record: Mapping[str, Recorded],
    digests: Digests,
    *,
    thorough: bool,
    deadline: float,
    copies: Copies | None = None,
) -> Comparison:
    """Compare an installed wheel with its RECORD.

    Args:
        installed: the distribution.
        record: what it lists.
        digests: of earlier comparisons.
        thorough: whether large files are read, too, not only measured.
        deadline: on the monotonic clock; what has not been looked at by then counts as unread.
        copies: takes those that differ.
    """
    reading = _Reading(installed, record, digests, thorough=thorough, deadline=deadline, copies=copies)
    reading.look()
    return reading.result


class _Reading:
    def __init__(
        self,
        installed: Distribution,
        record: Mapping[str, Recorded],
        digests: Digests,
        *,
        thorough: bool,
        deadline: float,
        copies: Copies | None,
    ) -> None:
        self.result = Comparison()
        self._installed, self._record, self._digests = installed, record, digests
        self._thorough, self._deadline, self._copies = thorough, deadline, copies
        # What has just been read of the file that is being compared: nothing is read a second time to be copied.
        self._seen: Seen | None = None
        self._root = os.path.join(installed.site, installed.info)
        self._known = digests.of(self._root)
        self._fresh: dict[str, Any] = {}

    def look(self) -> None:
        """All of it, then what is worth remembering."""
        present = self._present()
        for path, recorded in self._record.items():
            self._compare(path, recorded, present.get(path))
        self._added(present)
        for path in self.result.added:
            self._seen = None
            self._differs(path, Change.ADDED, present[path])
        self._digests.keep(self._root, self._fresh)

    def _present(self) -> dict[str, os.stat_result]:
        """Every name in its packages with what it is, directories left out."""
        found: dict[str, os.stat_result] = {}
        pending = own_directories(self._record)
        while pending:
            directory = pending.pop()
            if time.monotonic() >= self._deadline:
                self.result.unread.append(f"{directory}/")
                continue
            try:
                self._scan(directory, found, pending)
            except FileNotFoundError:
                continue
            except OSError:
                self.result.unread.append(f"{directory}/")
        return found

    def _scan(self, directory: str, found: dict[str, os.stat_result], pending: list[str]) -> None:
        with os.scandir(f"{self._installed.site}/{directory}") as entries:
            for entry in entries:
                name = entry.name
                if name == "__pycache__" or name.endswith(".pyc"):
                    continue
                path = f"{directory}/{name}"
                if entry.is_dir(follow_symlinks=False):
                    pending.append(path)
                else:
                    found[path] = entry.stat(follow_symlinks=False)

    def _compare(self, path: str, recorded: Recorded, state: os.stat_result | None) -> None:
        self._seen = None
        try:
            if state is None or stat.S_ISLNK(state.st_mode):  # uv can link a file into its cache
                state = os.stat(self._place(path))
            if not self._as_recorded(path, recorded, state):
                self.result.modified.append(path)
                self._differs(path, Change.MODIFIED, state)
        except (FileNotFoundError, NotADirectoryError):
            self.result.missing.append(path)
            self._differs(path, Change.MISSING)
        except (OSError, ValueError):
            self.result.unread.append(path)

    def _differs(self, path: str, change: Change, state: os.stat_result | None = None) -> None:
        """Have it copied, if anybody wants copies; of one that is too large for that the digest is remembered."""
        if self._copies is None:
            return
        large = state is not None and copying.LARGEST_COPY < state.st_size <= copying.LARGEST_HASHED
        if state is not None and large and self._seen is None:
            try:
                self._seen = Seen(self._digest(path, "sha256", state), None, state.st_size)
            except OSError:
                self._seen = None
        self.result.files.append(self._copies.take(self._installed.site, path, change, self._seen))

    def _as_recorded(self, path: str, recorded: Recorded, state: os.stat_result) -> bool:
        if not stat.S_ISREG(state.st_mode) or (recorded.size is not None and state.st_size != recorded.size):
            return False
        if recorded.digest is None:
            if not distribution.may_lack_digest(path):
                raise ValueError("its RECORD has no digest of it")
            return True
        if not self._thorough and state.st_size > _SMALL and not path.endswith(".py"):
            self.result.by_size += 1
            return True
        return self._digest(path, recorded.digest.partition("=")[0], state) == recorded.digest.rstrip("=")

    def _digest(self, path: str, algorithm: str, state: os.stat_result) -> str:
        """The remembered one if the file has not changed since."""
        identity = [state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino]
        known = self._known.get(path)
        if isinstance(known, list) and known[:4] == identity and str(known[-1]).startswith(f"{algorithm}="):
            self._fresh[path] = known
            return str(known[-1])
        if algorithm not in _ALGORITHMS or time.monotonic() >= self._deadline:
            raise OSError(path)
        self._seen = _read(self._place(path), algorithm, self._deadline)
        if time.time_ns() - max(state.st_ctime_ns, state.st_mtime_ns) > _SETTLED_NS:
            self._fresh[path] = [*identity, self._seen.digest]
        return self._seen.digest

    def _place(self, path: str) -> str:
        """Where a file is; a RECORD may have absolute paths (PEP 376)."""
        return os.path.join(self._installed.site, path)

    def _added(self, present: Mapping[str, os.stat_result]) -> None:
        """What nobody lists: several wheels may share a directory."""
        added = sorted(path for path in present if path not in self._record)
        if not added:
            return
        linked = {path for path in added if stat.S_ISLNK(present[path].st_mode)}
        if linked:
            above = {path[:at] for path in self._record for at, letter in enumerate(path) if letter == "/"}
            led = linked & above
            added = [path for path in added if path not in led]
        belongings = Belongings(self._installed, self._record)
        for path in (path for path in added if not belongings.listed(path)):
            whose, _ = belongings.whose(path)
            # In a directory of another distribution it is that one's, or was added to that one.
            if whose is Whose.UNKNOWN:
                self.result.unread.append(path)
            elif whose is not Whose.THEIRS:
                self.result.added.append(path)


def _read(path: str, algorithm: str, deadline: float) -> Seen:
    """The digest of a file in the form of a RECORD, and its bytes.

    Raises:
        OSError: it cannot be read, is no file any more, or there is no time left.
    """
    return copying.read(path, algorithm, deadline)
