"""The door to mounted file systems: which of them other machines may share, or let us hang in."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

# On these nothing that is read here proves that nobody uses a file: a client elsewhere is not seen. And a server that
# does not answer makes every look into them hang, which no signal ends.
_REMOTE = re.compile(
    r"nfs4?|cifs|smb3?|9p|virtiofs|ceph|lustre|gpfs|beegfs|afs|glusterfs|ocfs2|gfs2|autofs|fuse(\..+)?"
)
_OCTAL = re.compile(rb"\\([0-7]{3})")


class Remote(NamedTuple):
    """Mount points of shared file systems, and the devices (stat(2), st_dev) of the files in them."""

    points: frozenset[str]
    devices: frozenset[int]


def remote() -> Remote:
    """All file systems in our mount namespace that other machines may share (proc(5), mountinfo)."""
    points, devices = set(), set()
    with open("/proc/self/mountinfo", "rb") as file:
        lines = file.read().splitlines()
    for line in lines:
        before, _, after = line.partition(b" - ")
        fields = before.split()
        if len(fields) < 5 or not _REMOTE.fullmatch(after.split(maxsplit=1)[0].decode("ascii", "replace")):
            continue
        major, _, minor = fields[2].partition(b":")
        devices.add(os.makedev(int(major), int(minor)))
        points.add(os.fsdecode(_OCTAL.sub(lambda match: bytes([int(match[1], 8)]), fields[4])))
    return Remote(frozenset(points), frozenset(devices))
