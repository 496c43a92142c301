"""The door to lock files: what is written in one, and which compilers work on what it guards."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from typing import NamedTuple

from supervise.host import procfs, removal
from supervise.model.litter import FileId, FoundFile

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
# What an extension is built with (FIELD.md C6): ninja runs the others. The kernel cuts a name after 15 bytes.
_COMPILER = re.compile(
    r"ninja|nvcc|cicc|ptxas|fatbinary|cudafe\+\+|nvlink|hipcc|cc1|cc1plus|collect2|lto1|lto-wrapper|"
    r"(?:\S+-)?(?:gcc|g\+\+|cc|c\+\+|clang|clang\+\+|ld|ld\.\w+|as)(?:-[\d.]*)?|x86_64-linux-gn|aarch64-linux-g"
)


class Compiler(NamedTuple):
    """A compiler that runs: whose, where, and on what; None for what may not be read.

    In another mount namespace, a container that shares a cache with us, a path means something else: there `place` says
    which directory it works in.
    """

    pid: int
    uid: int | None
    directory: str | None
    argv: tuple[str, ...] | None
    place: FileId | None = None

    def works_in(self, directory: str, identity: FileId) -> bool:
        """Whether it may work on what is in a directory (absolute, without links)."""
        if self.place is not None:
            return self.place == identity
        if self.directory is None or self.argv is None:
            return True
        inside = self.directory == directory or self.directory.startswith(directory + "/")
        return inside or any(directory in word for word in self.argv)


def executable(found: FoundFile) -> bool:
    """Whether a lock file, if it still is that very one, may be executed by its owner.

    A baton may, by accident: torch makes it by os.open without a mode, which means 0777 less the umask. What flock(2)
    locks under the same name, as in newer versions of torch, is made with 0644 and stays for ever.

    Args:
        found: the file.
    """
    try:
        with removal.opened_directory(os.path.dirname(found.path)) as directory:
            state = os.stat(os.path.basename(found.path), dir_fd=directory, follow_symlinks=False)
    except (OSError, ValueError):
        return False
    return FileId(state.st_dev, state.st_ino) == found.file and bool(state.st_mode & stat.S_IXUSR)


def content(found: FoundFile, most: int) -> bytes | None:
    """What stands in a regular file, if its name still is that very one.

    Args:
        found: the file.
        most: how many bytes are wanted.

    Returns:
        At most that many bytes; None if it is another file, may not be read, or is longer. Never blocks on a FIFO.
    """
    try:
        with removal.opened_directory(os.path.dirname(found.path)) as directory:
            fd = os.open(os.path.basename(found.path), _READ, dir_fd=directory)
        try:
            state = os.fstat(fd)
            if FileId(state.st_dev, state.st_ino) != found.file:
                return None
            data = os.read(fd, most + 1)
        finally:
            os.close(fd)
    except (OSError, ValueError):
        return None
    return data if len(data) <= most else None


def compilers() -> tuple[Compiler, ...]:
    """All compilers that run, of any user."""
    found = []
    for process in procfs.scan(cmdline=False, environ=False).values():
        if not process.gone and _COMPILER.fullmatch(process.comm):
            whole = procfs.read(process.pid, environ=False)
            directory, place = _directory(process.pid)
            found.append(Compiler(process.pid, process.uid, directory, whole.argv if whole else None, place))
    return tuple(found)


def built_by(found: FoundFile, compilers: Iterable[Compiler]) -> bool:
    """Whether one of these compilers, of the file's own user, may work in the directory that holds it."""
    directory = os.path.dirname(found.path)
    try:
        state = os.lstat(directory)
    except OSError:
        return True
    identity = FileId(state.st_dev, state.st_ino)
    return any(each.uid in (found.uid, None) and each.works_in(directory, identity) for each in compilers)


def _directory(pid: int) -> tuple[str | None, FileId | None]:
    """Where a process works (proc(5), cwd): its path, or its identity if it is in another mount namespace."""
    try:
        if os.stat(f"/proc/{pid}/ns/mnt").st_ino == os.stat("/proc/self/ns/mnt").st_ino:
            return os.readlink(f"/proc/{pid}/cwd"), None
        state = os.stat(f"/proc/{pid}/cwd")
    except OSError:
        return None, None
    return None, FileId(state.st_dev, state.st_ino)
