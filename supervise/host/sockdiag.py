"""The door to sock_diag(7): TCP sockets that are bound and neither listen nor are connected, and what others received.

The former are in no file under /proc/net. Linux 6.8 and later list them; an older kernel answers with none of them.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

# linux/netlink.h, linux/sock_diag.h and linux/inet_diag.h.
_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_REQUEST_DUMP = 0x1 | 0x300
_ERROR, _DONE = 2, 3
_ESTABLISHED, _BOUND_INACTIVE = 1, 13
_INFO = 2
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBxI48x")
# struct inet_diag_msg, 72 bytes: four bytes, source port in network order, …, destination, …, inode as the last word.
_ANSWER = struct.Struct("=4x2s18x16s28xI")
_ATTRIBUTE = struct.Struct("=HH")
# tcpi_bytes_received of struct tcp_info, linux/tcp.h.
_RECEIVED = struct.Struct("=128xQ")
_LOOPBACK, _LOOPBACK6, _MAPPED = 127, bytes(15) + b"\1", bytes(10) + b"\xff\xff"
_TIMEOUT_S = 2.0
_BUFFER = 64 * 1024


def bound(number: int) -> tuple[int, ...]:
    """Inodes of the sockets that have bound a TCP port and do not listen on it yet, in our network namespace.

    Args:
        number: the port.

    Returns:
        The inodes; empty also where the kernel cannot tell.
    """
    try:
        found = [each for family in _FAMILIES for each in _dump(family, _BOUND_INACTIVE)]
        return tuple(each.inode for each in found if each.port == number)
    except OSError:
        # No module, no permission (a container's seccomp filter), no answer: then nobody can be named, that is all.
        return ()


def received() -> dict[int, int] | None:
    """How many bytes connected TCP sockets of our network namespace have received from other hosts, by inode.

    Returns:
        None where the kernel does not tell.
    """
    told = {}
    try:
        for family in _FAMILIES:
            for each in _dump(family, _ESTABLISHED, 1 << _INFO - 1):
                if not _is_local(family, each.peer):
                    told[each.inode] = each.received
    except OSError:
        return None
    return told


class _Socket(NamedTuple):
    port: int
    peer: bytes
    inode: int
    received: int


_FAMILIES = (socket.AF_INET, socket.AF_INET6)


def _dump(family: int, state: int, extensions: int = 0) -> Iterator[_Socket]:
    request = _REQUEST.pack(family, socket.IPPROTO_TCP, extensions, 1 << state)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG) as door:
        door.settimeout(_TIMEOUT_S)
        door.send(_HEADER.pack(_HEADER.size + len(request), _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, 1, 0) + request)
        yield from _answers(door)


def _answers(door: socket.socket) -> Iterator[_Socket]:
    while True:
        data = door.recv(_BUFFER)
        while len(data) >= _HEADER.size:
            length, kind, *_ = _HEADER.unpack_from(data)
            if kind == _DONE:
                return
            if kind == _ERROR or length < _HEADER.size + _ANSWER.size:
                raise OSError(errno.EPROTO, "sock_diag")
            port, peer, inode = _ANSWER.unpack_from(data, _HEADER.size)
            told = _received(data[_HEADER.size + _ANSWER.size : length])
            yield _Socket(int.from_bytes(port, "big"), peer, inode, told)
            data = data[(length + 3) & ~3 :]


def _received(attributes: bytes) -> int:
    """What the attributes of an answer tell, 0 if nothing."""
    while len(attributes) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(attributes)
        value = attributes[_ATTRIBUTE.size : length]
        if kind == _INFO and len(value) >= _RECEIVED.size:
            return int(_RECEIVED.unpack_from(value)[0])
        attributes = attributes[max(_ATTRIBUTE.size, (length + 3) & ~3) :]
    return 0


def _is_local(family: int, peer: bytes) -> bool:
    """Whether it is the loopback, 127.0.0.0/8 or ::1, also as an IPv6 address that stands for an IPv4 one."""
    if family == socket.AF_INET:
        return peer[0] == _LOOPBACK
    return peer == _LOOPBACK6 or (peer[:12] == _MAPPED and peer[12] == _LOOPBACK)
