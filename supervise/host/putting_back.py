"""The door through which files of installed packages are written back: each is the old one or the new one, never half.

A file is written beside its place, synced and renamed (rename(2)): whoever reads it, and whoever kills us, finds one of
the two. A name that leads into the cache of an installer (a hard link of conda, a symbolic link of uv) is replaced, the
cache is not written to. Before anything is overwritten or removed a copy is kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from supervise.host import removal
from supervise.host.compiled import identity
from supervise.model.litter import FileId, FileType
from supervise.model.slate import Verdict

_PIECE = 1 << 20
_CHANGING = "it is being changed by somebody else"
_READING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_WRITING = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class NotPutBackError(Exception):
    """A file is as it was before; the text is a phrase that says why."""


class Saving:
    """Copies of what is overwritten or removed, below one directory, by their absolute paths.

    Args:
        directory: absolute; it is made, for its owner alone, with the first copy.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.kept: list[str] = []

    def place(self, path: str) -> str:
        """Where the copy of an absolute path is."""
        return os.path.join(self.directory, path.lstrip("/"))

    def keep(self, directory: int, path: str, state: os.stat_result) -> str:
        """Keep a copy.

        Args:
            directory: the descriptor that the name of the file is looked up with.
            path: its absolute path.
            state: of the file that is meant.

        Returns:
            The sha256 of its content in hex, that of the path it names for a symbolic link.

        Raises:
            OSError: there is no whole copy of that very file.
        """
        target, name = self.place(path), os.path.basename(path)
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
        if stat.S_ISLNK(state.st_mode):
            leads_to = os.readlink(name, dir_fd=directory)
            os.symlink(leads_to, target)
            self.kept.append(path)
            return hashlib.sha256(os.fsencode(leads_to)).hexdigest()
        digest = hashlib.sha256()
        with _closing(os.open(name, _READING, dir_fd=directory)) as source:
            if identity(os.fstat(source)) != identity(state):
                raise NotPutBackError(_CHANGING)
            with _closing(os.open(target, _WRITING, 0o600)) as copy:
                while piece := os.read(source, _PIECE):
                    digest.update(piece)
                    _write_all(copy, piece)
                os.fsync(copy)
                os.utime(copy, ns=(state.st_atime_ns, state.st_mtime_ns))
        self.kept.append(path)
        return digest.hexdigest()


def put(path: str, data: bytes, saving: Saving) -> None:
    """Have a file contain this and nothing else, with the mode and the owner of the one that was there.

    Args:
        path: absolute and normal, without links in its directories; missing ones are made.
        data: its content.
        saving: takes what was there.

    Raises:
        NotPutBackError: it is as it was.
    """
    try:
        _make_directories(os.path.dirname(path))
        with removal.opened_directory(os.path.dirname(path)) as directory:
            _put(directory, path, data, saving)
    except OSError as error:
        raise NotPutBackError(_phrase(error)) from None
    except ValueError as error:
        raise NotPutBackError(str(error)) from None


def remove(path: str, digest: str, saving: Saving) -> None:
    """Remove a file, if it is what was recorded and nobody uses it.

    Args:
        path: absolute and normal, without links in its directories.
        digest: the sha256 that its content must have, in hex.
        saving: takes a copy first.

    Raises:
        NotPutBackError: it is as it was.
    """
    try:
        with removal.opened_directory(os.path.dirname(path)) as directory:
            state = _state(directory, os.path.basename(path))
            if state is None:
                return
            if not stat.S_ISREG(state.st_mode):
                raise NotPutBackError("it is no regular file")
            if saving.keep(directory, path, state) != digest:
                raise NotPutBackError("it is not what was recorded")
            _expect_same(directory, os.path.basename(path), state)
        verdict = removal.remove(path, FileId(state.st_dev, state.st_ino), FileType.REGULAR, os.geteuid())
    except OSError as error:
        raise NotPutBackError(_phrase(error)) from None
    except ValueError as error:
        raise NotPutBackError(str(error)) from None
    if verdict is not Verdict.GONE:
        raise NotPutBackError("it is in use, has a second name, or is somebody else's")


def forget_bytecode(path: str, prefix: str = "") -> list[str]:
    """Remove what was compiled of a source that has just been put back or removed.

    Args:
        path: of the source, absolute; of anything else there is no bytecode.
        prefix: of PYTHONPYCACHEPREFIX, where bytecode then is.

    Returns:
        Bytecode that is still there: of another user, in use, or with a second name.
    """
    directory, name = os.path.split(path)
    if not name.endswith(".py"):
        return []
    cache = os.path.realpath(prefix + directory if prefix else f"{directory}/__pycache__")
    compiled = re.compile(re.escape(name[:-3]) + r"\.[a-z]+-\d+[a-z]*(\.opt-[12])?\.pyc")
    try:
        found = [entry for entry in os.scandir(cache) if compiled.fullmatch(entry.name)]
    except OSError:
        return []
    return [entry.path for entry in found if not _forgotten(entry)]


def _forgotten(entry: os.DirEntry[str]) -> bool:
    try:
        state = entry.stat(follow_symlinks=False)
    except OSError:
        return True
    file = FileId(state.st_dev, state.st_ino)
    return removal.remove(entry.path, file, removal.file_type(state.st_mode), os.geteuid()) is Verdict.GONE


def _put(directory: int, path: str, data: bytes, saving: Saving) -> None:
    name = os.path.basename(path)
    before = _state(directory, name)
    if before is not None:
        if not stat.S_ISREG(before.st_mode) and not stat.S_ISLNK(before.st_mode):
            raise NotPutBackError("there is something else than a file in its place")
        saving.keep(directory, path, before)
    beside = f".{name}.supervise"
    _clear(directory, beside, data)
    fd = os.open(beside, _WRITING, 0o600, dir_fd=directory)
    try:
        with _closing(fd):
            _write_all(fd, data)
            _give(fd, directory, name, before, data)
            os.fsync(fd)
        _expect_same(directory, name, before)
        os.rename(beside, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside, dir_fd=directory)
        raise
    _sync(os.path.dirname(path))


def _clear(directory: int, beside: str, data: bytes) -> None:
    """Take away what one of us left who was killed: its content proves it, which is a beginning of what is written."""
    state = _state(directory, beside)
    if state is None:
        return
    left = b""
    if stat.S_ISREG(state.st_mode) and state.st_size <= len(data):
        with _closing(os.open(beside, _READING, dir_fd=directory)) as fd:
            while piece := os.read(fd, _PIECE):
                left += piece
    if not stat.S_ISREG(state.st_mode) or state.st_size > len(data) or not data.startswith(left):
        raise NotPutBackError(f"{beside} beside it is in the way")
    os.unlink(beside, dir_fd=directory)


def _give(fd: int, directory: int, name: str, before: os.stat_result | None, data: bytes) -> None:
    """Mode and owner: of the file that was there, of what a link leads to; of a new one those of its directory."""
    if before is not None and stat.S_ISLNK(before.st_mode):
        with contextlib.suppress(OSError):
            before = os.stat(name, dir_fd=directory)
    if before is None or stat.S_ISLNK(before.st_mode):
        above, mode = os.stat(".", dir_fd=directory), 0o755 if data.startswith(b"#!") else 0o644
        owner = (above.st_uid, above.st_gid)
    else:
        owner, mode = (before.st_uid, before.st_gid), stat.S_IMODE(before.st_mode) & 0o777
    now = os.fstat(fd)
    if (now.st_uid, now.st_gid) != owner:
        try:
            os.fchown(fd, *owner)
        except PermissionError:
            raise NotPutBackError(f"it belongs to uid {owner[0]}, gid {owner[1]}") from None
    os.fchmod(fd, mode)


def _make_directories(path: str) -> None:
    """Make those that are missing, with the owner of the one that they are in."""
    missing = []
    while not os.path.lexists(path):
        missing.append(path)
        path = os.path.dirname(path)
    for each in reversed(missing):
        with removal.opened_directory(os.path.dirname(each)) as above:
            os.mkdir(os.path.basename(each), 0o755, dir_fd=above)
            owner, now = os.stat(".", dir_fd=above), os.stat(os.path.basename(each), dir_fd=above)
            if owner.st_uid != now.st_uid:
                os.chown(os.path.basename(each), owner.st_uid, owner.st_gid, dir_fd=above, follow_symlinks=False)


def _state(directory: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _expect_same(directory: int, name: str, before: os.stat_result | None) -> None:
    now = _state(directory, name)
    if (now and identity(now)) != (before and identity(before)):
        raise NotPutBackError(_CHANGING)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _sync(directory: str) -> None:
    """A rename is only as lasting as its directory; a file system that cannot sync one has done what it can."""
    with contextlib.suppress(OSError), _closing(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as fd:
        os.fsync(fd)


@contextmanager
def _closing(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)


def _phrase(error: OSError) -> str:
    return error.strerror or str(error)
