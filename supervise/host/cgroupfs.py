"""The door to cgroup v2: leaves of our own, entered, killed and removed as a whole.

Only the core files are used (cgroup.procs, cgroup.kill, cgroup.events), which need no controller, so that
a hybrid host serves as well as a unified one. File names and semantics are those of the kernel's cgroup-v2.rst.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Iterator

from supervise.host import mounts

PREFIX = "supervise-"
_OURSELVES = b"0"
_FORGOTTEN_S = 60.0


class NoCgroupError(Exception):
    """No leaf can be had here; the text says why, in one clause."""


def own() -> str:
    """The directory of the cgroup v2 that we are in.

    Raises:
        NoCgroupError: there is no cgroup v2 here, or ours lies outside of what is mounted.
    """
    with open("/proc/self/cgroup", encoding="utf-8", errors="surrogateescape") as file:
        path = next((line[3:].rstrip("\n") for line in file if line.startswith("0::")), None)
    if path is None:
        raise NoCgroupError("this kernel runs without cgroup v2")
    directory, _ = located(path)
    if directory is None:
        raise NoCgroupError("our cgroup v2 is not mounted here")
    return directory


def make_leaf(run: str, token: str) -> str:
    """Make a leaf below the cgroup that we are in, so that limits set on us hold for the server too.

    Empty leaves that earlier attempts of the same run could not remove go on the way.

    Args:
        run: name of the run; its lock is held.
        token: 12 hexadecimal digits that nobody else uses.

    Returns:
        Its directory.

    Raises:
        NoCgroupError: it cannot be made, or not be used.
    """
    base = own()
    try:
        remove_forgotten(run)
        leaf = os.path.join(base, f"{PREFIX}{run}-{token}")
        os.mkdir(leaf, 0o755)
    except OSError as error:
        raise NoCgroupError(_refusal(base, error)) from None
    incapable = not os.path.exists(f"{leaf}/cgroup.kill")
    # Whoever enters must be able to come back, which takes the right to write where it came from.
    locked = next((d for d in (leaf, base) if not os.access(f"{d}/cgroup.procs", os.W_OK)), None)
    if incapable or locked:
        remove(leaf)
        raise NoCgroupError("no cgroup.kill: it takes Linux 5.14" if incapable else f"{locked} is not delegated to us")
    return leaf


def enter(directory: str) -> None:
    """Move ourselves there; whatever we start from now on is born there (cgroup-v2.rst, Processes).

    Raises:
        OSError: we are where we were.
    """
    _write(f"{directory}/cgroup.procs", _OURSELVES)


def pids(directory: str) -> frozenset[int]:
    """All processes in it and below, zombies left out by the kernel; empty if it is not there.

    Raises:
        OSError: it is there and cannot be read.
    """
    found: set[int] = set()
    for path in _tree(directory):
        try:
            with open(f"{path}/cgroup.procs", encoding="ascii") as file:
                found.update(int(line) for line in file)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP):
                raise
    # A process of another PID namespace reads as 0: it is there, but has no name here.
    return frozenset(found - {0})


def populated(directory: str) -> bool:
    """Whether a living process is in it or below: the kernel's own word, which no fork can outrun.

    Raises:
        OSError: it is there and cannot be read.
    """
    try:
        with open(f"{directory}/cgroup.events", encoding="ascii") as file:
            return "populated 1" in file.read()
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENODEV):
            return False
        raise


def kill(directory: str) -> None:
    """SIGKILL everything in it and below in one step, also what is being forked meanwhile.

    Raises:
        OSError: it could not be.
    """
    _write(f"{directory}/cgroup.kill", b"1")


def remove(directory: str) -> bool:
    """Remove an empty leaf with the empty groups that its server made in it; True if it is gone."""
    for path in reversed(list(_tree(directory))):
        try:
            os.rmdir(path)
        except OSError:
            return not os.path.lexists(directory)
    return not os.path.lexists(directory)


def _tree(directory: str) -> Iterator[str]:
    """It and all below, parents first."""
    for path, below, _ in os.walk(directory):
        below.sort()
        yield path


def remove_forgotten(run: str) -> None:
    """Remove empty leaves of a run below our own cgroup.

    Not the youngest: a run of the same name in another state directory may be about to enter its own.

    Raises:
        NoCgroupError: there is no cgroup v2 here.
        OSError: ours cannot be read.
    """
    name = re.compile(rf"{PREFIX}{re.escape(run)}-[0-9a-f]{{12}}")
    with os.scandir(own()) as entries:
        for entry in entries:
            if name.fullmatch(entry.name) and _is_forgotten(entry):
                remove(entry.path)


def _is_forgotten(entry: os.DirEntry[str]) -> bool:
    try:
        return time.time() - entry.stat().st_mtime > _FORGOTTEN_S and not populated(entry.path)
    except FileNotFoundError:
        return False


def _refusal(base: str, error: OSError) -> str:
    match error.errno:
        case errno.EROFS:
            return f"{base} is mounted read-only"
        case errno.EACCES | errno.EPERM:
            return f"{base} is not delegated to us"
    return f"{base}: {error.strerror}"


def located(path: str, controller: str | None = None) -> tuple[str | None, str]:
    """Where a cgroup is to be found in the file system (proc(5), mountinfo).

    Args:
        path: as /proc/PID/cgroup has it; it begins with "/.." outside of our cgroup namespace (cgroup_namespaces(7)).
        controller: the controller of a v1 hierarchy, None for cgroup v2.

    Returns:
        Its directory, None if it is not below anything mounted here, and the mount point.
    """
    kind = b"cgroup" if controller else b"cgroup2"
    for mount in mounts.listed():
        if mount.type != kind or (controller and controller.encode() not in mount.options.split(b",")):
            continue
        root, top = os.fsdecode(mount.root), os.fsdecode(mount.point)
        below = os.path.relpath(path, root)
        if below != ".." and not below.startswith("../") and not path.startswith("/.."):
            return os.path.normpath(os.path.join(top, below)), top
    return None, ""


def _write(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)
