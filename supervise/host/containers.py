"""The door to the containers of this host: in which of them a process lives, told by the name of its cgroup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from supervise.model.process import Container

_ID = re.compile(r"[0-9a-f]{64}")
# What the runtimes call the cgroup of a container, the same on v1 and v2: with systemd's driver a scope, else a
# directory; containerd that knows of no slices writes "slice:prefix:id" (containerd, config SystemdCgroup). A runtime's
# monitor (libpod-conmon-…, crio-conmon-…, lxc.monitor.…) has a cgroup of its own, and is not in the container.
_NAMES = (
    ("docker", re.compile(r"docker-([0-9a-f]{64})\.scope")),
    ("podman", re.compile(r"libpod-([0-9a-f]{64})(?:\.scope)?")),
    ("nerdctl", re.compile(r"nerdctl-([0-9a-f]{64})\.scope")),
    ("cri", re.compile(r"(?:cri-containerd|crio)-([0-9a-f]{64})(?:\.scope)?")),
    ("cri", re.compile(r"[^:]+:(?:cri-containerd|crio):([0-9a-f]{64})")),
    ("lxc", re.compile(r"lxc\.payload\.(.+)")),
)


def container_of(pid: int) -> Container | None:
    """The container that a process lives in, as far as a runtime that we know has named its cgroup.

    Args:
        pid: the process.

    Returns:
        None if it is in none, in the same one as we are, or may not be asked.
    """
    theirs = _read(str(pid))
    return None if theirs is None or theirs == _read("self") else theirs


def containers_of(pids: Iterable[int]) -> dict[int, Container]:
    """The same for several processes: those that live in a container, by pid."""
    return {pid: found for pid in pids if (found := container_of(pid))}


def parse(text: str) -> Container | None:
    """Read /proc/PID/cgroup (cgroups(7)).

    Args:
        text: its lines, `number:controllers:path`.

    Returns:
        The innermost container that any of the paths names.
    """
    for line in text.splitlines():
        names = line.split(":", 2)[-1].split("/")
        for depth in range(len(names) - 1, 0, -1):
            if found := _named(names[depth], names[:depth]):
                return found
    return None


def _named(name: str, above: Sequence[str]) -> Container | None:
    """The container whose cgroup has this name, below these."""
    for engine, form in _NAMES:
        if match := form.fullmatch(name):
            return Container(engine, match[1])
    if _ID.fullmatch(name):
        if above[-1] == "docker":
            return Container("docker", name)
        if any(parent.startswith("kubepods") for parent in above):
            return Container("cri", name)
    if list(above) == ["", "lxc"]:
        return Container("lxc", name)
    return None


def _read(pid: str) -> Container | None:
    try:
        with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="surrogateescape") as file:
            return parse(file.read())
    except OSError:
        return None
