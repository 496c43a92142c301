"""The door to who uses a file: decided by identity over all maps and descriptors, never by name alone.

A live `sem.mp-*` is mapped under its temporary name, "(deleted)", because it was linked into place after it had been
opened; a comparison of names calls it unused (FIELD.md A4).
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping

from supervise.host import procfs
from supervise.model.litter import FileId


def users(files: Mapping[FileId, str], *, private: bool = False) -> tuple[dict[FileId, tuple[int, ...]], bool]:
    """Who maps these files or holds them open.

    Args:
        files: identities with their paths: an overlay shows what is mapped under the identity of the layer below, there
            the path tells.
        private: whether they are all our own and closed to other users: processes of others, which an ordinary user
            cannot read, then need not be.

    Returns:
        Pids for each file that is used, and whether every process was read that may use one.
    """
    found: dict[FileId, list[int]] = defaultdict(list)
    known = True
    by_inode = {file.ino: file for file in files}
    by_path = {os.fsencode(path): file for file, path in files.items()}
    for name in os.listdir("/proc") if files else ():
        if not name.isdigit():
            continue
        used = _used_by(int(name), files, by_inode, by_path)
        if used is None:
            known = known and not may_use(int(name), private=private)
            continue
        for file in used:
            found[file].append(int(name))
    return {file: tuple(pids) for file, pids in found.items()}, known


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


def _used_by(
    pid: int, files: Mapping[FileId, str], by_inode: Mapping[int, FileId], by_path: Mapping[bytes, FileId]
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


def _opened(pid: int, fd: str, by_inode: Mapping[int, FileId]) -> FileId | None:
    """The wanted file behind a descriptor; stat only where the inode fits: on a dead network mount it would block."""
    try:
        inode = _inode(pid, fd)
        if inode is not None and inode not in by_inode:
            return None
        if inode is None and not os.readlink(f"/proc/{pid}/fd/{fd}").startswith("/"):
            return None
        state = os.stat(f"/proc/{pid}/fd/{fd}")
    except FileNotFoundError:
        return None
    file = FileId(state.st_dev, state.st_ino)
    return file if by_inode.get(file.ino) == file else None


def _inode(pid: int, fd: str) -> int | None:
    """From fdinfo (proc(5)); None on kernels before 5.14, which do not say."""
    with open(f"/proc/{pid}/fdinfo/{fd}", "rb") as info:
        return next((int(line.split()[1]) for line in info if line.startswith(b"ino:")), None)
