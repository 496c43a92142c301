"""The door to mounted file systems: what is where, and what of it other machines may share or let us hang in."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

# On these nothing that is read here proves that nobody uses a file: a client elsewhere is not seen. And a server that
# does not answer makes every look into them hang, which no signal ends.
_REMOTE = re.compile(
    r"nfs4?|cifs|smb3?|9p|virtiofs|ceph|lustre|gpfs|beegfs|afs|glusterfs|ocfs2|gfs2|autofs|fuse(\..+)?"
)
_OCTAL = re.compile(rb"\\([0-7]{3})")


class Mount(NamedTuple):
    """One mount: st_dev of its file system, which directory of it is seen where, its type and options."""

    device: int
    root: bytes
    point: bytes
    type: bytes
    options: bytes


def listed(pid: str = "self") -> Iterator[Mount]:
    """All mounts of a process's namespace, in the order in which they cover each other (proc(5), mountinfo).

    Args:
        pid: the process, as a name in /proc.

    Raises:
        OSError: they cannot be read.
    """
    with open(f"/proc/{pid}/mountinfo", "rb") as file:
        for line in file:
            before, _, after = line.rstrip(b"\n").partition(b" - ")
            fields, source = before.split(b" "), after.split(b" ", 2)
            if len(fields) < 5 or len(source) < 3:
                continue
            major, _, minor = fields[2].partition(b":")
            device = os.makedev(int(major), int(minor))
            yield Mount(device, _plain(fields[3]), _plain(fields[4]), source[0], source[2])


class Remote(NamedTuple):
    """Mount points of shared file systems, and the devices (stat(2), st_dev) of the files in them."""

    points: frozenset[str]
    devices: frozenset[int]


def remote() -> Remote:
    """All file systems in our mount namespace that other machines may share."""
    shared = [mount for mount in listed() if _REMOTE.fullmatch(mount.type.decode("ascii", "replace"))]
    return Remote(frozenset(os.fsdecode(mount.point) for mount in shared), frozenset(mount.device for mount in shared))


def _plain(field: bytes) -> bytes:
    r"""A path as it is: blanks and backslashes stand as `\040` and `\134`."""
    return _OCTAL.sub(lambda match: bytes([int(match[1], 8)]), field)
