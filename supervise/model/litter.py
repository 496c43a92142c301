"""Readings of what lies about in file systems and in the kernel's tables, apart from processes, ports and GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class FileId(NamedTuple):
    """Identity of a file: device and inode. A name proves nothing (FIELD.md A4, the semaphore trap)."""

    dev: int
    ino: int


class FileType(StrEnum):
    """What is at a path, links not followed."""

    REGULAR = "file"
    SOCKET = "socket"
    DIRECTORY = "directory"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class FoundFile:
    """One name in a file system: absolute path, identity, what it is, bytes on disk, owner, seconds since last written.

    `links` counts its names. `users` are pids that map it or hold it open, all of them if `users_known`.
    """

    path: str
    file: FileId
    type: FileType
    size: int
    uid: int
    age_s: float
    links: int = 1
    users: tuple[int, ...] = ()
    users_known: bool = True


@dataclass(frozen=True, slots=True)
class Unfinished(FoundFile):
    """In the place of what may have been missed: `path` is the directory whose search was cut short or not allowed."""


def unfinished(directory: str) -> Unfinished:
    """What stands for the rest of a directory: no file of that identity exists."""
    return Unfinished(directory, FileId(-1, -1), FileType.OTHER, 0, -1, 0.0)


@dataclass(frozen=True, slots=True)
class Segment:
    """One name in /dev/shm. `links` counts its names; `users` are pids that map or hold it, all if `users_known`."""

    name: str
    file: FileId
    size: int
    uid: int
    age_s: float
    users: tuple[int, ...] = ()
    users_known: bool = True
    private: bool = False
    links: int = 1


@dataclass(frozen=True, slots=True)
class SysvSegment:
    """One System V shared memory segment (proc(5), /proc/sysvipc/shm); bytes, and seconds since it was last changed."""

    id: int
    key: int
    size: int
    uid: int
    creator: int
    attached: int
    age_s: float


class LockKind(StrEnum):
    """What makes a lock file a lock: that it exists, or whose pid it holds."""

    BATON = "baton"
    SOFT = "soft"


@dataclass(frozen=True, slots=True)
class LockReading:
    """One lock file.

    `owner` is the pid written in it, None for a baton; `owner_alive` whether that process lives and is older than the
    lock, None if that cannot be told (another host, say).
    """

    found: FoundFile
    kind: LockKind
    owner: int | None = None
    owner_alive: bool | None = None


@dataclass(frozen=True, slots=True)
class CacheReading:
    """One directory of a cache that was asked to be moved aside; `word` is what it was asked by.

    `aside` is the free name beside it that it is to get. `problem` says why it can be no matter of moving it: a link, a
    file, unreadable, no cache by the look of it; `remedy` what people can do about that, if there is more to say than
    to move it by hand.
    """

    found: FoundFile
    word: str
    aside: str = ""
    problem: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class SessionReading:
    """One session directory of a cluster (Ray) on this host; `users` of `found` are the processes that still use it."""

    found: FoundFile


@dataclass(frozen=True, slots=True)
class Litter:
    """Everything of one reading that may be left over, by kind; see slate/ for what is looked for."""

    segments: tuple[Segment, ...] = ()
    sysv: tuple[SysvSegment, ...] = ()
    sockets: tuple[FoundFile, ...] = ()
    locks: tuple[LockReading, ...] = ()
    artefacts: tuple[FoundFile, ...] = ()
    bytecode: tuple[FoundFile, ...] = ()
    caches: tuple[CacheReading, ...] = ()
    sessions: tuple[SessionReading, ...] = ()
