"""The `port` check: whether we may bind the ports at all; whether they are free is the slate's to tell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from supervise.model.need import Port
from supervise.model.preflight import Check, Level
from supervise.preflight.launch import Launch

NAME = "port"
_FIRST = "/proc/sys/net/ipv4/ip_unprivileged_port_start"
_STATUS = "/proc/self/status"
_CAP_NET_BIND_SERVICE = 10


def check(launch: Launch) -> Iterator[Check]:
    """Look at what the kernel lets us bind (ip(7), capabilities(7))."""
    for note in launch.need.notes:
        if "is not a port" in note:
            yield Check(NAME, launch.worst(sure=note.startswith("--port ")), note, "choose another")
    start, capabilities = _read(_FIRST), _read(_STATUS)
    if start is None or capabilities is None or not start.strip().isdecimal():
        return
    if not _capable(capabilities):
        # An interpreter with capabilities of its own, or a wrapper, may be allowed what we are not.
        yield from judge(launch.need.ports, int(start), Level.WARNING)


def judge(ports: Iterable[Port], start: int, level: Level) -> Iterator[Check]:
    """Judge the ports of somebody without privileges.

    Args:
        ports: wanted.
        start: the first that anybody may bind.
        level: of what is found.
    """
    for port in ports:
        if 0 < port.number < start:
            text = f"port {port.number} ({port.source}) takes a privilege: anybody may bind those from {start} on only"
            fix = f"choose one from {start} on, or grant CAP_NET_BIND_SERVICE"
            yield Check(NAME, level, text, fix)


def _capable(status: str) -> bool:
    line = next((line for line in status.splitlines() if line.startswith("CapEff:")), "CapEff:\t0")
    return bool(int(line.split()[1], 16) >> _CAP_NET_BIND_SERVICE & 1)


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return None
