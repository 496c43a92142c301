"""The door to ports and sockets."""

from __future__ import annotations

import errno
import os
import socket
from collections import defaultdict
from collections.abc import Collection, Iterable

from supervise.host import procfs
from supervise.model.process import Process, ProcessId
from supervise.model.slate import PortReading, PortState

_LISTEN = "0A"
_UNIX_LISTENING = 0x10000


def probe_port(host: str, number: int) -> PortReading:
    """Tell whether a server could bind a port, also when a holder has bound it and does not listen yet.

    A vLLM that still loads owns its port invisibly: not in /proc/net/tcp, connections refused, and a bind with
    SO_REUSEADDR beside it succeeds. Only a bind without that option sees it (FIELD.md A4). Connections in TIME_WAIT
    make that bind fail too, without being in any server's way: they are told apart by what does have a socket.

    Args:
        host: address to bind, empty for all.
        number: the port.

    Returns:
        FREE, HELD, or UNKNOWN with the reason (no such address here, no permission).
    """
    states = [_try_bind(family, address, number) for family, address in _addresses(host)]
    for code in states:
        if code == errno.EADDRINUSE:
            return _held_or_waiting(host, number)
    for code in states:
        if code:
            return PortReading(number, host, PortState.UNKNOWN, error=os.strerror(code))
    return PortReading(number, host, PortState.FREE)


def _held_or_waiting(host: str, number: int) -> PortReading:
    waiting = _states(number)
    only_waiting = bool(waiting) and waiting <= {"06"}
    reusable = all(
        _try_bind(family, address, number, reuse=True, listen=True) == 0 for family, address in _addresses(host)
    )
    if only_waiting and reusable:
        return PortReading(number, host, PortState.FREE)
    return PortReading(number, host, PortState.HELD)


def _addresses(host: str) -> list[tuple[socket.AddressFamily, str]]:
    if host in ("", "0.0.0.0"):
        return [(socket.AF_INET, "0.0.0.0")]
    if host in ("::", "[::]"):
        return [(socket.AF_INET6, "::")]
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return [(socket.AF_INET, host)]
    return [(socket.AddressFamily(family), str(address[0])) for family, _, _, _, address in found[:1]]


def _try_bind(
    family: socket.AddressFamily, address: str, number: int, *, reuse: bool = False, listen: bool = False
) -> int:
    """The errno of a trial bind, 0 if it went well."""
    with socket.socket(family, socket.SOCK_STREAM) as trial:
        try:
            if family is socket.AF_INET6:
                trial.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if address == "::" else 1)
            if reuse:
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind((address, number))
            if listen:
                trial.listen(1)
        except OverflowError:
            return errno.EINVAL
        except OSError as error:
            return error.errno or errno.EINVAL
    return 0


def listeners(number: int) -> tuple[int, ...]:
    """Inodes of all sockets that listen on a TCP port, in our network namespace (proc(5), /proc/net/tcp)."""
    return tuple(inode for port, state, inode in _table() if port == number and state == _LISTEN)


def listening_ports() -> dict[int, int]:
    """All listening TCP sockets of our network namespace: inode to port."""
    return {inode: port for port, state, inode in _table() if state == _LISTEN}


def _states(number: int) -> set[str]:
    return {state for port, state, _ in _table() if port == number}


def _table() -> Iterable[tuple[int, str, int]]:
    """Local port, state and inode of every TCP socket that has a state."""
    for name in ("tcp", "tcp6"):
        try:
            with open(f"/proc/self/net/{name}", encoding="ascii") as file:
                rows = file.readlines()[1:]
        except OSError:
            continue
        for row in rows:
            fields = row.split()
            yield int(fields[1].rpartition(":")[2], 16), fields[3], int(fields[9])


def holders(inodes: Collection[int], processes: Iterable[Process]) -> tuple[ProcessId, ...]:
    """Which of these processes hold one of these sockets; those whose descriptors are hidden cannot be told."""
    wanted = frozenset(inodes)
    if not wanted:
        return ()
    return tuple(p.id for p in processes if wanted & (procfs.sockets_of(p.pid) or frozenset()))


def unix_listeners() -> dict[str, tuple[int, ...]]:
    """Paths of all listening Unix sockets with their inodes (proc(5), /proc/net/unix)."""
    found: dict[str, list[int]] = defaultdict(list)
    with open("/proc/self/net/unix", encoding="utf-8", errors="surrogateescape") as file:
        for row in file.readlines()[1:]:
            fields = row.rstrip("\n").split(maxsplit=7)
            if len(fields) == 8 and int(fields[3], 16) & _UNIX_LISTENING:
                found[fields[7]].append(int(fields[6]))
    return {path: tuple(inodes) for path, inodes in found.items()}
