"""The door to /dev/shm: who uses a segment is decided by inode, never by name.

A live `sem.mp-*` is mapped under its temporary name, "(deleted)", because it was linked into place after it had been
opened; a comparison of names calls it unused (FIELD.md A4).
"""

from __future__ import annotations

import os
import stat
import time
from collections import defaultdict
from collections.abc import Collection

from supervise.host import usage
from supervise.model.litter import FileId, Segment
from supervise.model.slate import Verdict

DIRECTORY = "/dev/shm"
_OTHERS = 0o077


def mapped_by(pid: int) -> frozenset[FileId] | None:
    """Files on /dev/shm that a process maps or holds open.

    Args:
        pid: the process.

    Returns:
        Their identities, None if its maps or descriptors may not be read (proc(5), maps and fd).
    """
    device = os.stat(DIRECTORY).st_dev
    # By device, not by path: a container that shares this /dev/shm may have it elsewhere.
    needle = f" {os.major(device):02x}:{os.minor(device):02x} ".encode()
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            found = {FileId(device, int(line.split(maxsplit=5)[4])) for line in file if needle in line}
        for fd in os.listdir(f"/proc/{pid}/fd"):
            held = _held(f"/proc/{pid}/fd/{fd}")
            if held is not None and held.dev == device:
                found.add(held)
    except OSError:
        return None
    return frozenset(found)


def segments() -> tuple[Segment, ...]:
    """All regular files at the top of /dev/shm; who uses them is not filled in."""
    found = []
    now = time.time()
    try:
        entries = list(os.scandir(DIRECTORY))
    except OSError:
        return ()
    for entry in entries:
        try:
            state = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        if stat.S_ISREG(state.st_mode):
            file = FileId(state.st_dev, state.st_ino)
            private = not state.st_mode & _OTHERS
            size, age_s = state.st_blocks * 512, now - state.st_mtime
            found.append(Segment(entry.name, file, size, state.st_uid, age_s, private=private))
    return tuple(found)


def users(files: Collection[FileId], *, private: bool = False) -> tuple[dict[FileId, tuple[int, ...]], bool]:
    """Who maps or holds these files.

    Args:
        files: the files asked about.
        private: whether they are all our own and closed to other users: processes of others, which an ordinary user
            cannot read, then need not be.

    Returns:
        Pids for each file that is used, and whether every process was read that may use one.
    """
    found: dict[FileId, list[int]] = defaultdict(list)
    known = True
    for name in os.listdir("/proc") if files else ():
        if not name.isdigit():
            continue
        mapped = mapped_by(int(name))
        if mapped is None:
            known = known and not usage.may_use(int(name), private=private)
            continue
        for file in mapped.intersection(files):
            found[file].append(int(name))
    return {file: tuple(pids) for file, pids in found.items()}, known


def unlink_if_unused(name: str, file: FileId) -> Verdict:
    """Remove a segment if the name still is that very file, it is ours, and nobody uses it.

    Args:
        name: its name in /dev/shm, without a slash.
        file: its identity as recorded.

    Returns:
        GONE if the file is not there any more, REMAINS if it is used or is another user's, UNKNOWN if that could not
        be told.
    """
    if "/" in name or name in ("", ".", ".."):
        return Verdict.UNKNOWN
    directory = os.open(DIRECTORY, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        state = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if FileId(state.st_dev, state.st_ino) != file:
            return Verdict.GONE
        if not stat.S_ISREG(state.st_mode) or state.st_uid != os.geteuid():
            return Verdict.REMAINS
        used, known = users({file}, private=not state.st_mode & _OTHERS)
        if used or not known:
            return Verdict.REMAINS if used else Verdict.UNKNOWN
        os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        return Verdict.GONE
    except OSError:
        return Verdict.UNKNOWN
    finally:
        os.close(directory)
    return Verdict.GONE


def _held(path: str) -> FileId | None:
    """Device and inode of an open file on /dev/shm; sockets and pipes are not worth a stat."""
    try:
        if not os.readlink(path).startswith(DIRECTORY):
            return None
        state = os.stat(path)
    except FileNotFoundError:
        return None
    return FileId(state.st_dev, state.st_ino)
