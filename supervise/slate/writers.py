"""Who writes to an attempt's log: processes that have it as their standard output or error.

That survives what a member does to its environment, session and name: the server's children inherit it. Whoever only
reads the log (`tail -f`, a pager, an editor) has it elsewhere or has not opened it for writing.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping

from supervise.host import procfs
from supervise.model.litter import FileId
from supervise.model.process import Process, ProcessId

_STANDARD = ("1", "2")


def find(processes: Iterable[Process], logs: Iterable[str]) -> dict[ProcessId, str]:
    """Look at the standard output and error of every process that we may look at (proc(5), fd and fdinfo).

    Args:
        processes: those of one reading.
        logs: paths of logs; one that does not exist is nobody's.

    Returns:
        For each writer the log that it writes, as given. By device and inode: a name proves nothing.
    """
    known = _identities(logs)
    names = {os.path.basename(log) for log in known.values()}
    uid = os.geteuid()
    found = {}
    for process in processes if known else ():
        if process.gone or uid not in (0, process.uid):
            continue
        file = next((file for fd in _STANDARD if (file := _written(process.pid, fd, names)) in known), None)
        # Asked again at the end: what was read is what this process has, and not one that has inherited its pid.
        if file and not _reads(process.pid, file, names) and procfs.identify(process.pid) == process.id:
            found[process.id] = known[file]
    return found


def _identities(logs: Iterable[str]) -> Mapping[FileId, str]:
    known = {}
    for log in logs:
        try:
            state = os.stat(log)
        except OSError:
            continue
        if stat.S_ISREG(state.st_mode):
            known[FileId(state.st_dev, state.st_ino)] = log
    return known


def _written(pid: int, fd: str, names: Iterable[str]) -> FileId | None:
    """The file that a descriptor may write to, None for everything that is no log by its name."""
    file = _file(pid, fd, names)
    return file if file and _access(pid, fd) not in (os.O_RDONLY, None) else None


def _reads(pid: int, file: FileId, names: Iterable[str]) -> bool:
    """Whether a process also reads this file: `supervise logs -f`, say, however strange a place it was sent to."""
    try:
        others = [fd for fd in os.listdir(f"/proc/{pid}/fd") if fd not in _STANDARD]
    except OSError:
        return False
    return any(_file(pid, fd, names) == file and _access(pid, fd) == os.O_RDONLY for fd in others)


def _file(pid: int, fd: str, names: Iterable[str]) -> FileId | None:
    """Identity of an open file; only of one that is named like a log, since a dead network mount would block stat."""
    path = f"/proc/{pid}/fd/{fd}"
    try:
        if os.path.basename(os.readlink(path)).removesuffix(" (deleted)") not in names:
            return None
        state = os.stat(path)
    except OSError:
        return None
    return FileId(state.st_dev, state.st_ino)


def _access(pid: int, fd: str) -> int | None:
    """How a descriptor was opened (open(2), O_ACCMODE; octal in fdinfo), None if it cannot be read."""
    try:
        with open(f"/proc/{pid}/fdinfo/{fd}", encoding="ascii", errors="replace") as file:
            flags = next((line.split()[1] for line in file if line.startswith("flags:")), None)
    except OSError:
        return None
    return None if flags is None else int(flags, 8) & os.O_ACCMODE
