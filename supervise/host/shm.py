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

from supervise.model.slate import FileId, Segment, Verdict

DIRECTORY = "/dev/shm"
_PREFIX = b"/dev/shm/"


def mapped_by(pid: int) -> frozenset[FileId] | None:
    """Files on /dev/shm that a process maps or holds open.

    Args:
        pid: the process.

    Returns:
        Their identities, None if its maps or descriptors may not be read (proc(5), maps and fd).
    """
    device = _device()
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            mapped = {_mapped(line) for line in file if _PREFIX in line}
        found = {file for file in mapped if file.dev == device}
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
            found.append(Segment(entry.name, file, state.st_blocks * 512, state.st_uid, now - state.st_mtime))
    return tuple(found)


def users(files: Collection[FileId]) -> tuple[dict[FileId, tuple[int, ...]], bool]:
    """Who maps or holds these files.

    Args:
        files: the files asked about.

    Returns:
        Pids for each file that is used, and whether every process could be read: an unread one may use any of them.
    """
    found: dict[FileId, list[int]] = defaultdict(list)
    known = True
    for name in os.listdir("/proc") if files else ():
        if not name.isdigit():
            continue
        mapped = mapped_by(int(name))
        if mapped is None:
            known = known and not os.path.exists(f"/proc/{name}")
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
        used, known = users({file})
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


def _device() -> int:
    return os.stat(DIRECTORY).st_dev


def _mapped(line: bytes) -> FileId:
    """Device and inode of one line of maps: `address perms offset dev inode path`, dev as hexadecimal major:minor."""
    _, _, _, device, inode, *_ = line.split(maxsplit=5)
    major, _, minor = device.partition(b":")
    return FileId(os.makedev(int(major, 16), int(minor, 16)), int(inode))


def _held(path: str) -> FileId | None:
    """Device and inode of an open file on /dev/shm; sockets and pipes are not worth a stat."""
    try:
        if not os.readlink(path).startswith(DIRECTORY):
            return None
        state = os.stat(path)
    except FileNotFoundError:
        return None
    return FileId(state.st_dev, state.st_ino)
