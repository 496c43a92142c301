"""What files were when they were published: an archive per installed distribution, and git for working trees.

<directory>/<name>-<version>-<beginning of the sha256 of its RECORD>.zip   files that matched that RECORD when read

An archive is written once, and again when a file that was changed then matches now. Whatever is read from one is proven
by the RECORD in it.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import json
import os
import time
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from itertools import chain

from supervise.host import copying, distribution, files, git
from supervise.host.distribution import Distribution, Recorded
from supervise.model.sources import Base, Root

_ABOUT = ".supervise/about.json"
_RECORD = ".supervise/RECORD"
_LARGEST_RECORD = 32 * 1024 * 1024
# All files of an archive, unpacked: those of vLLM are some 40 MB.
_MOST_BYTES = 192 * 1024 * 1024
_WITHIN_S = 60.0
# Of distributions that are not installed any more: whoever goes back and forth between versions still compares.
_GONE_KEPT = 3
# Half-made ones of whoever was killed meanwhile; nobody writes for longer.
_STALE_S = 3600.0
_DAMAGED = (OSError, ValueError, KeyError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)


class Originals:
    """Archives of files that were as their wheel had them when they were read.

    Args:
        directory: where the archives are; it need not exist.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._read: dict[tuple[str, int, int, int], _Archive] = {}

    def keep(self, installed: Distribution, record: Mapping[str, Recorded]) -> None:
        """Archive the files of a distribution that match their RECORD, unless that has been done; blocking.

        It takes a second or two for a version that is new, and next to nothing else. Where it cannot be written, there
        is none: what is not in an archive is unknown.

        Args:
            installed: the distribution.
            record: what it lists.
        """
        try:
            said = files.read_regular(os.path.join(installed.site, installed.info, "RECORD"), _LARGEST_RECORD)
            os.makedirs(self._directory, mode=0o700, exist_ok=True)
            if self._keep(installed, record, said):
                self._prune()
        except _DAMAGED:
            return

    def original(self, root: Root, path: str) -> bytes | None:
        """What a file was when it was published.

        Args:
            root: where it belongs.
            path: relative to the root.

        Returns:
            Its bytes, proven by the RECORD of its distribution or taken from the commit; None if unknown.
        """
        if root.base is Base.GIT:
            return git.committed(root.directory, root.version, path)
        if root.base is not Base.WHEEL:
            return None
        archives = [self._archive(found) for found in self._of(root.name, root.version)]
        archives = [each for each in archives if each.site == root.directory] or archives
        known = {content for each in archives if (content := each.content(path)) is not None}
        # Two builds of one version: nobody can tell which of them this was.
        return known.pop() if len(known) == 1 else None

    def _keep(self, installed: Distribution, record: Mapping[str, Recorded], said: bytes) -> bool:
        """Write it, if there is anything new."""
        name = f"{_stem(installed.name, installed.version)}-{hashlib.sha256(said).hexdigest()[:16]}.zip"
        path = os.path.join(self._directory, name)
        held = _Archive(path)
        left = {
            each: known
            for each, known in record.items()
            if not os.path.isabs(each) and _is_wanted(known) and each not in held.names
        }
        matching = _matching(installed, left, _MOST_BYTES - held.size)
        first = next(matching, None)
        if first is None:
            if held.names:
                os.utime(path)
            return False
        about = {"version": 1, "name": installed.name, "site": installed.site, "info": installed.info}
        temporary = f"{path}.{os.getpid()}.tmp"
        try:
            with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED, compresslevel=3) as archive:
                archive.writestr(_ABOUT, json.dumps(about))
                archive.writestr(_RECORD, said)
                for each, content in chain(held.contents(), (first,), matching):
                    archive.writestr(each, content)
            os.chmod(temporary, 0o600)
            os.replace(temporary, path)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        return True

    def _archive(self, path: str) -> _Archive:
        """One that has been read is not read again, unless it has been replaced."""
        try:
            state = os.stat(path)
        except OSError:
            return _Archive(path)
        key = (path, state.st_ino, state.st_mtime_ns, state.st_size)
        if key not in self._read:
            self._read[key] = _Archive(path)
        return self._read[key]

    def _of(self, name: str, version: str) -> list[str]:
        return [path for path in self._archives() if _named(path, _stem(name, version))]

    def _archives(self) -> list[str]:
        try:
            names = os.listdir(self._directory)
        except OSError:
            return []
        return [os.path.join(self._directory, name) for name in sorted(names) if name.endswith(".zip")]

    def _prune(self) -> None:
        """Remove archives of distributions that are gone, but for the last few; and what is half-made."""
        gone = [path for path in self._archives() if not _Archive(path).is_current]
        gone.sort(key=os.path.getmtime, reverse=True)
        for path in (*gone[_GONE_KEPT:], *self._half_made()):
            with contextlib.suppress(OSError):
                os.unlink(path)

    def _half_made(self) -> Iterator[str]:
        with os.scandir(self._directory) as entries:
            for entry in entries:
                if entry.name.endswith(".tmp") and time.time() - entry.stat().st_mtime > _STALE_S:
                    yield entry.path


class _Archive:
    """One archive; one that is missing or damaged is an empty one.

    Attributes:
        site: the directory of its distribution.
        names: the files that it has.
        size: their bytes together.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self.site, self._info = "", ""
        self.names: frozenset[str] = frozenset()
        self.size = 0
        self._listed: dict[str, str] | None = None
        self._opened: zipfile.ZipFile | None = None
        try:
            with zipfile.ZipFile(path) as archive:
                about = json.loads(archive.read(_ABOUT))
                self.site, self._info = str(about["site"]), str(about["info"])
                members = [each for each in archive.infolist() if each.filename not in (_ABOUT, _RECORD)]
                self.names = frozenset(each.filename for each in members)
                self.size = sum(each.file_size for each in members)
        except (*_DAMAGED, TypeError):
            self.names = frozenset()

    @property
    def is_current(self) -> bool:
        """Whether its distribution is still there, with the same RECORD."""
        try:
            said = files.read_regular(os.path.join(self.site, self._info, "RECORD"), _LARGEST_RECORD)
        except (OSError, ValueError):
            return False
        return bool(self.site) and f"-{hashlib.sha256(said).hexdigest()[:16]}.zip" in os.path.basename(self._path)

    def content(self, path: str) -> bytes | None:
        """A file, if it is what the RECORD in the archive says."""
        if path not in self.names:
            return None
        try:
            # Opening it reads its whole directory: once, not once for each file; no descriptor is kept.
            if self._opened is None:
                self._opened = zipfile.ZipFile(io.BytesIO(files.read_regular(self._path, _MOST_BYTES)))
            if self._listed is None:
                self._listed = _listed(self._opened.read(_RECORD))
            return _proven(self._opened, path, self._listed.get(path))
        except _DAMAGED:
            return None

    def contents(self) -> Iterator[tuple[str, bytes]]:
        """All that are what the RECORD says."""
        if not self.names:
            return
        with zipfile.ZipFile(self._path) as archive:
            listed = _listed(archive.read(_RECORD))
            for name in sorted(self.names):
                if (content := _proven(archive, name, listed.get(name))) is not None:
                    yield name, content


def _proven(archive: zipfile.ZipFile, name: str, wanted: str | None) -> bytes | None:
    if wanted is None or not _is_digest(wanted) or archive.getinfo(name).file_size > copying.LARGEST_COPY:
        return None
    try:
        content = archive.read(name)
    except _DAMAGED:
        return None
    algorithm = wanted.partition("=")[0]
    return content if copying.recorded(algorithm, hashlib.new(algorithm, content).digest()) == wanted else None


def _listed(record: bytes) -> dict[str, str]:
    """Digests by path."""
    rows = csv.reader(io.StringIO(record.decode(), newline=""))
    return {row[0]: row[1].rstrip("=") for row in rows if len(row) > 1 and row[1]}


def _is_wanted(recorded: Recorded) -> bool:
    return _is_digest(recorded.digest) and (recorded.size or 0) <= copying.LARGEST_COPY


def _is_digest(digest: str | None) -> bool:
    """Of the algorithms that a wheel may use (PEP 427): no weaker one proves anything."""
    return digest is not None and digest.startswith(("sha256=", "sha384=", "sha512="))


def _matching(installed: Distribution, record: Mapping[str, Recorded], room: int) -> Iterator[tuple[str, bytes]]:
    """Files that are as the RECORD says, as long as there is room for them."""
    deadline = time.monotonic() + _WITHIN_S
    for path, recorded in record.items():
        if time.monotonic() >= deadline or room <= 0:
            return
        wanted = (recorded.digest or "").rstrip("=")
        try:
            seen = copying.read(os.path.join(installed.site, path), wanted.partition("=")[0], deadline)
        except (OSError, ValueError):
            continue
        if seen.digest == wanted and seen.data is not None:
            room -= seen.size
            yield path, seen.data


def _stem(name: str, version: str) -> str:
    """The beginning of a name of a file: versions may have `!` and `+` (PEP 440), and no `/`."""
    return f"{distribution.normal(name)}-{version}".replace("/", "_")


def _named(path: str, stem: str) -> bool:
    beginning, _, digest = os.path.basename(path).removesuffix(".zip").rpartition("-")
    return beginning == stem and len(digest) == 16
