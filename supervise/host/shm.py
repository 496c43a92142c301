"""The door to /dev/shm: what lies in it, and what one process has of it.

Who uses a segment is asked of `host.usage`, which reads everybody; it is removed through `host.removal`.
"""

from __future__ import annotations

import os
import stat
import time

from supervise.model.litter import FileId, Segment
from supervise.model.process import FIRST_PID_NAMESPACE

# Without links: on old Debian /dev/shm is one to /run/shm, and the removal of a file follows none.
DIRECTORY = os.path.realpath("/dev/shm")
_OTHERS = 0o077
# PROC_IPC_INIT_INO, linux/proc_ns.h.
_FIRST_IPC_NAMESPACE = 0xEFFFFFFF


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
            segment = Segment(entry.name, file, size, state.st_uid, age_s, private=private, links=state.st_nlink)
            found.append(segment)
    return tuple(found)


def users_hidden() -> bool:
    """Whether what lies here may be used by processes that we cannot see.

    In a container that shares its host's IPC namespace and /dev/shm (`docker run --ipc=host`), but not its PID
    namespace, the host's processes and those of other containers are not in our /proc (pid_namespaces(7)).
    """
    try:
        pid, ipc = (os.stat(f"/proc/self/ns/{kind}").st_ino for kind in ("pid", "ipc"))
    except OSError:
        return True
    return pid != FIRST_PID_NAMESPACE and ipc == _FIRST_IPC_NAMESPACE


def _held(path: str) -> FileId | None:
    """Device and inode of an open file on /dev/shm; sockets and pipes are not worth a stat."""
    try:
        if not os.readlink(path).startswith(DIRECTORY):
            return None
        state = os.stat(path)
    except FileNotFoundError:
        return None
    return FileId(state.st_dev, state.st_ino)
