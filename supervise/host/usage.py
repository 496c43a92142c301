"""The door to who uses a file: decided by identity over all maps and descriptors, never by name alone.

The kernel is asked first, file by file, whether anybody has it open; only for what it does not answer with a plain no
are all processes looked at.

A live `sem.mp-*` is mapped under its temporary name, "(deleted)", because it was linked into place after it had been
opened; a comparison of names calls it unused (FIELD.md A4).
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from supervise.host import lease, procfs
from supervise.model.litter import FileId


class Usage(NamedTuple):
    """Who uses files: pids for each that is used, and the files of which every process was read that may use them."""

    users: dict[FileId, tuple[int, ...]]
    known: frozenset[FileId]


def users(files: Mapping[FileId, str], *, private: bool = False) -> tuple[dict[FileId, tuple[int, ...]], bool]:
    """Who maps these files or holds them open: `read` where all of them are alike.

    Args:
        files: identities with their paths.
        private: whether they are all our own and closed to other users.

    Returns:
        Pids for each file that is used, and whether every process was read that may use one.
    """
    usage = read(files, files.keys() if private else ())
    return usage.users, len(usage.known) == len(files)


def read(files: Mapping[FileId, str], closed: Collection[FileId] = ()) -> Usage:
    """Who maps these files or holds them open, by one look at every process.

    Args:
        files: identities with their paths: an overlay shows what is mapped under the identity of the layer below, there
            the path tells.
        closed: those that are our own and closed to other users: processes of others, which an ordinary user cannot
            read, then need not be.

    Returns:
        Their users; blocking, some 50 µs per process if any of them may be in use.
    """
    told = {file: _free(path, file) for file, path in files.items()}
    free = frozenset(file for file, answer in told.items() if answer is True)
    asked = {file: path for file, path in files.items() if file not in free}
    found: dict[FileId, list[int]] = defaultdict(list)
    by_inode: dict[int, set[FileId]] = defaultdict(set)
    for file in asked:
        by_inode[file.ino].add(file)
    by_path = {os.fsencode(path): file for file, path in asked.items()}
    unread = []
    for name in os.listdir("/proc") if asked else ():
        if not name.isdigit():
            continue
        used = _used_by(int(name), asked, by_inode, by_path)
        if used is None:
            unread.append(int(name))
        for file in used or ():
            found[file].append(int(name))
    known = {
        private: not any(may_use(pid, private=private) for pid in unread)
        for private in {file in closed for file in asked}
    }
    return Usage(
        {file: tuple(pids) for file, pids in found.items()},
        # Of one that the kernel says is in use, whoever it is must have been seen.
        free | {file for file in asked if known[file in closed] and (told[file] is None or file in found)},
    )


def may_use(pid: int, *, private: bool) -> bool:
    """Whether a process that could not be read may hold a file.

    It may not if it has ended (a zombie hides its descriptors from its own user), if the file is closed to it, or if it
    is an ancestor of ours: the init of a container or a virtual machine, unreadable even for root, is no client of a
    server that was started below it.

    Args:
        pid: the process.
        private: whether the file is our own and closed to other users.
    """
    process = procfs.read(pid, cmdline=False, environ=False)
    if process is None or process.gone:
        return False
    return (process.uid == os.geteuid() or not private) and pid not in procfs.lineage()


def _free(path: str, file: FileId) -> bool | None:
    """Whether the kernel says that nobody has this very file open; None if it does not say."""
    try:
        fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        state = os.fstat(fd)
        if FileId(state.st_dev, state.st_ino) != file:
            return None
        with lease.leased(fd) as free:
            return free
    finally:
        os.close(fd)


def _used_by(
    pid: int, files: Mapping[FileId, str], by_inode: Mapping[int, Collection[FileId]], by_path: Mapping[bytes, FileId]
) -> set[FileId] | None:
    """None if its maps or descriptors may not be read (proc(5), maps and fd)."""
    try:
        used = set(_mapped(pid, files, by_path))
        for fd in os.listdir(f"/proc/{pid}/fd"):
            if (file := _opened(pid, fd, by_inode)) is not None:
                used.add(file)
    except OSError:
        return None
    return used


def _mapped(pid: int, files: Mapping[FileId, str], by_path: Mapping[bytes, FileId]) -> Iterator[FileId]:
    with open(f"/proc/{pid}/maps", "rb") as maps:
        for line in maps:
            fields = line.rstrip(b"\n").split(maxsplit=5)
            if len(fields) < 6 or not fields[5].startswith(b"/"):
                continue
            major, _, minor = fields[3].partition(b":")
            file = FileId(os.makedev(int(major, 16), int(minor, 16)), int(fields[4]))
            if file in files:
                yield file
            elif fields[5] in by_path:
                yield by_path[fields[5]]


def _opened(pid: int, fd: str, by_inode: Mapping[int, Collection[FileId]]) -> FileId | None:
    """The wanted file behind a descriptor; stat only where the inode fits: on a dead network mount it would block."""
    try:
        if not os.readlink(f"/proc/{pid}/fd/{fd}").startswith("/"):
            return None
        inode = _inode(pid, fd)
        if inode is not None and inode not in by_inode:
            return None
        state = os.stat(f"/proc/{pid}/fd/{fd}")
    except FileNotFoundError:
        return None
    file = FileId(state.st_dev, state.st_ino)
    return file if file in by_inode.get(file.ino, ()) else None


def _inode(pid: int, fd: str) -> int | None:
    """From fdinfo (proc(5)); None on kernels before 5.14, which do not say."""
    with open(f"/proc/{pid}/fdinfo/{fd}", "rb") as info:
        return next((int(line.split()[1]) for line in info if line.startswith(b"ino:")), None)
