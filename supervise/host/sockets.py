"""The door to ports and sockets."""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from supervise.host import procfs, sockdiag
from supervise.model.process import Process, ProcessId
from supervise.model.snapshot import PortReading, PortState

_LISTEN = "0A"
# Nobody serves on it, and every Linux host has it (127.0.0.0/8 is local as a whole).
_ANOTHER_LOOPBACK = "127.93.57.21"
_UNIX_LISTENING = 0x10000


def probe_port(host: str, number: int) -> PortReading:
    """Tell whether a server could bind a port, also when a holder has bound it and does not listen yet.

    A vLLM that still loads owns its port invisibly: not in /proc/net/tcp, connections refused, and a bind with
    SO_REUSEADDR beside it succeeds. Only a bind without that option sees it (FIELD.md A4).

    Args:
        host: address to bind, a name, or empty for all of IPv4.
        number: the port.

    Returns:
        FREE, HELD, or UNKNOWN with the reason (no such address here, no permission). A name is held if any of its
        addresses is, and free if any can be bound.
    """
    try:
        addresses = _addresses(host)
    except OSError as error:
        return PortReading(number, host, PortState.UNKNOWN, error=error.strerror or str(error))
    states = [_state(family, address, number) for family, address in addresses]
    if errno.EADDRINUSE in states:
        return PortReading(number, host, PortState.HELD)
    if 0 in states:
        return PortReading(number, host, PortState.FREE)
    return PortReading(number, host, PortState.UNKNOWN, error=os.strerror(states[0]))


def _state(family: socket.AddressFamily, address: str, number: int) -> int:
    """0 if a server with SO_REUSEADDR, as all of them are, could listen there; the errno of a bind if not."""
    code = _try_bind(family, address, number)
    return 0 if code == errno.EADDRINUSE and _only_connections(family, address, number) else code


def _only_connections(family: socket.AddressFamily, address: str, number: int) -> bool:
    """Whether nothing is left of an earlier server but its connections (TIME_WAIT, FIN_WAIT2, ESTABLISHED).

    They make a bind without SO_REUSEADDR fail and are in no server's way. A holder beside them that has not begun to
    listen is told by sock_diag; a kernel before 6.8 does not, there a bind to another loopback address finds one that
    has bound all interfaces.
    """
    states = {row.state for row in _rows() if row.port == number}
    if not states or _LISTEN in states or sockdiag.bound(number):
        return False
    elsewhere = _try_bind(socket.AF_INET, _ANOTHER_LOOPBACK, number)
    return elsewhere != errno.EADDRINUSE and _try_bind(family, address, number, reuse=True) == 0


def _addresses(host: str) -> list[tuple[socket.AddressFamily, str]]:
    """What a server binds for this host; the address may carry a scope."""
    if host in ("", "0.0.0.0"):
        return [(socket.AF_INET, "0.0.0.0")]
    if host in ("::", "[::]"):
        return [(socket.AF_INET6, "::")]
    found = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys((socket.AddressFamily(family), str(address[0])) for family, _, _, _, address in found))


def _try_bind(family: socket.AddressFamily, address: str, number: int, *, reuse: bool = False) -> int:
    """The errno of a trial bind, 0 if it went well. It never listens: no client may take the trial for a server."""
    try:
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            if family is socket.AF_INET6:
                trial.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if address == "::" else 1)
            if reuse:
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind((address, number))
    except OverflowError:
        return errno.EINVAL
    except OSError as error:
        return error.errno or errno.EINVAL
    return 0


class Listener(NamedTuple):
    """A listening TCP socket: its inode, and the user whose it is."""

    inode: int
    uid: int


def listeners(number: int, host: str = "") -> tuple[Listener, ...]:
    """The sockets that listen on a TCP port in the way of a bind (proc(5), /proc/net/tcp).

    Args:
        number: the port.
        host: the address that is to be bound, as in `probe_port`. Who listens on another one is in nobody's way.

    Returns:
        Those of our network namespace. All of IPv6 counts as all of IPv4 too (ipv6(7), IPV6_V6ONLY cannot be seen),
        but only where nothing else is in the way of an IPv4 address.
    """
    wanted = {address.partition("%")[0] for _, address in _addresses(host)}
    found = [row for row in _rows() if row.port == number and row.state == _LISTEN]
    clashing = [row for row in found if any(_clash(row.address, other) for other in wanted)]
    certain = [row for row in clashing if row.address != "::" or any(":" in other for other in wanted)]
    return tuple(Listener(row.inode, row.uid) for row in certain or clashing)


def _clash(one: str, other: str) -> bool:
    if one == other or "::" in (one, other):
        return True
    return "0.0.0.0" in (one, other) and ":" not in one + other


def listening_ports() -> dict[int, int]:
    """All listening TCP sockets of our network namespace: inode to port."""
    return {row.inode: row.port for row in _rows() if row.state == _LISTEN}


class _Row(NamedTuple):
    """A TCP socket that has a state; an address of IPv4 in an IPv6 socket is told as such."""

    address: str
    port: int
    state: str
    uid: int
    inode: int


def _rows() -> Iterator[_Row]:
    for name in ("tcp", "tcp6"):
        try:
            with open(f"/proc/self/net/{name}", encoding="ascii") as file:
                rows = file.readlines()[1:]
        except OSError:
            continue
        for row in rows:
            fields = row.split()
            address, _, port = fields[1].rpartition(":")
            yield _Row(_address(address), int(port, 16), fields[3], int(fields[7]), int(fields[9]))


def _address(digits: str) -> str:
    """An address of /proc/net/tcp: words of four bytes, each in the order of this machine."""
    packed = b"".join(struct.pack("=I", int(digits[at : at + 8], 16)) for at in range(0, len(digits), 8))
    family = socket.AF_INET if len(packed) == 4 else socket.AF_INET6
    return socket.inet_ntop(family, packed).removeprefix("::ffff:")


def holders(inodes: Collection[int], processes: Iterable[Process]) -> tuple[ProcessId, ...]:
    """Which of these processes hold one of these sockets; those whose descriptors are hidden cannot be told."""
    wanted = frozenset(inodes)
    if not wanted:
        return ()
    return tuple(p.id for p in processes if wanted & (procfs.sockets_of(p.pid) or frozenset()))


def bound(number: int) -> tuple[int, ...]:
    """Inodes of sockets that have bound a TCP port and do not listen yet, as far as the kernel tells (Linux 6.8)."""
    return sockdiag.bound(number)


def unix_listeners() -> dict[str, tuple[int, ...]]:
    """Paths of all listening Unix sockets with their inodes (proc(5), /proc/net/unix)."""
    found: dict[str, list[int]] = defaultdict(list)
    for flags, inode, path in _unix_table():
        if flags & _UNIX_LISTENING:
            found[path].append(inode)
    return {path: tuple(inodes) for path, inodes in found.items()}


def unix_path_in_use(path: str) -> bool:
    """Whether any socket is bound to this path, listening or not yet.

    A server may have bound it under another spelling or in another network namespace: a listening one answers a
    connection, and a relative path that ends the same counts as this one.
    """
    ending = os.path.basename(path)
    for _, _, other in _unix_table():
        if other == path or (not other.startswith(("/", "@")) and os.path.basename(other) == ending):
            return True
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as client:
        try:
            client.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            # A full backlog, another type of socket, no permission: somebody may well be there.
            return True
    return True


def _unix_table() -> Iterable[tuple[int, int, str]]:
    """Flags, inode and path of every Unix socket that is bound to one."""
    with open("/proc/self/net/unix", encoding="utf-8", errors="surrogateescape") as file:
        rows = file.readlines()[1:]
    for row in rows:
        fields = row.rstrip("\n").split(maxsplit=7)
        try:
            if len(fields) == 8:
                yield int(fields[3], 16), int(fields[6]), fields[7]
        except ValueError:
            # The rest of a name with a line break in it.
            continue
