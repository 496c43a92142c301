"""Copies of files that are about to be overwritten or removed: whole ones, or none."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from supervise.host.compiled import identity

CHANGING = "it is being changed by somebody else"
READING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
WRITING = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
PIECE = 1 << 20


class NotPutBackError(Exception):
    """A file is as it was before; the text is a phrase that says why."""


class Saving:
    """Copies of what is overwritten or removed, below one directory, by their absolute paths.

    Args:
        directory: absolute; it is made, for its owner alone, with the first copy.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._copies: list[tuple[str, str]] = []

    def place(self, path: str) -> str:
        """Where the copy of an absolute path is."""
        return os.path.join(self.directory, path.lstrip("/"))

    def keep(self, directory: int, path: str, state: os.stat_result, name: str | None = None) -> str:
        """Keep a copy, beside those of the same path that there are already.

        Args:
            directory: the descriptor that the name of the file is looked up with.
            path: its absolute path.
            state: of the file that is meant.
            name: where it is now, if that is not its own name.

        Returns:
            The sha256 of its content in hex, that of the path it names for a symbolic link.

        Raises:
            OSError: there is no whole copy of that very file.
        """
        target, name = self._free(self.place(path)), os.path.basename(path) if name is None else name
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
        if stat.S_ISLNK(state.st_mode):
            os.symlink(os.readlink(name, dir_fd=directory), target)
            self._copies.append((path, target))
            return digest(directory, name, state)
        with closing(os.open(target, WRITING, 0o600)) as copy:
            try:
                told = _read(directory, name, state, lambda piece: write_all(copy, piece))
                os.fsync(copy)
                os.utime(copy, ns=(state.st_atime_ns, state.st_mtime_ns))
            except BaseException:
                # Half of a file must not be taken for it later, nor fill a disk that is full.
                os.unlink(target)
                raise
        self._copies.append((path, target))
        return told

    @contextmanager
    def unless_refused(self) -> Iterator[None]:
        """Forget the copies that are made meanwhile, if it is refused: of what is as it was nothing has been saved."""
        before = len(self._copies)
        try:
            yield
        except BaseException:
            for path, target in self._copies[before:]:
                with contextlib.suppress(OSError):
                    os.unlink(target)
                    self._copies.remove((path, target))
                    self._remove_empty(os.path.dirname(target))
            raise

    @property
    def kept(self) -> list[str]:
        """Absolute paths of which there are copies."""
        return list(dict.fromkeys(path for path, _ in self._copies))

    def _free(self, target: str) -> str:
        free, number = target, 1
        while os.path.lexists(free):
            number += 1
            free = f"{target}~{number}"
        return free

    def _remove_empty(self, directory: str) -> None:
        while directory.startswith(self.directory):
            os.rmdir(directory)
            directory = os.path.dirname(directory)


def digest(directory: int, name: str, state: os.stat_result) -> str:
    """The sha256 of a file in hex, that of the path it names for a symbolic link."""
    if stat.S_ISLNK(state.st_mode):
        return hashlib.sha256(os.fsencode(os.readlink(name, dir_fd=directory))).hexdigest()
    return _read(directory, name, state, lambda _: None)


def _read(directory: int, name: str, state: os.stat_result, take: Callable[[bytes], None]) -> str:
    """Read a whole file, and its sha256 in hex."""
    told = hashlib.sha256()
    with closing(os.open(name, READING, dir_fd=directory)) as source:
        if identity(os.fstat(source)) != identity(state):
            raise NotPutBackError(CHANGING)
        while piece := os.read(source, PIECE):
            told.update(piece)
            take(piece)
    return told.hexdigest()


def write_all(fd: int, data: bytes) -> None:
    """Write all of it, to a descriptor."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


@contextmanager
def closing(fd: int) -> Iterator[int]:
    """A descriptor that is closed afterwards."""
    try:
        yield fd
    finally:
        os.close(fd)
