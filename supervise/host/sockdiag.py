"""The door to sock_diag(7): TCP sockets that are bound and neither listen nor are connected.

They are in no file under /proc/net. Linux 6.8 and later list them; an older kernel answers with none of them.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterator

# linux/netlink.h, linux/sock_diag.h and linux/inet_diag.h.
_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_REQUEST_DUMP = 0x1 | 0x300
_ERROR, _DONE = 2, 3
_BOUND_INACTIVE = 13
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBxI48x")
# struct inet_diag_msg, 72 bytes: four bytes, source port in network order, …, inode as the last word.
_ANSWER = struct.Struct("=4x2s62xI")
_TIMEOUT_S = 2.0
_BUFFER = 64 * 1024


def bound(number: int) -> tuple[int, ...]:
    """Inodes of the sockets that have bound a TCP port and do not listen on it yet, in our network namespace.

    Args:
        number: the port.

    Returns:
        The inodes; empty also where the kernel cannot tell.
    """
    families = (socket.AF_INET, socket.AF_INET6)
    return tuple(inode for family in families for port, inode in _dump(family) if port == number)


def _dump(family: int) -> Iterator[tuple[int, int]]:
    request = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, 1 << _BOUND_INACTIVE)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG) as door:
            door.settimeout(_TIMEOUT_S)
            door.send(_HEADER.pack(_HEADER.size + len(request), _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, 1, 0) + request)
            yield from _answers(door)
    except OSError:
        # No module, no permission (a container's seccomp filter), no answer: then nobody can be named, that is all.
        return


def _answers(door: socket.socket) -> Iterator[tuple[int, int]]:
    while True:
        data = door.recv(_BUFFER)
        while len(data) >= _HEADER.size:
            length, kind, *_ = _HEADER.unpack_from(data)
            if kind == _DONE:
                return
            if kind == _ERROR or length < _HEADER.size + _ANSWER.size:
                raise OSError(errno.EPROTO, "sock_diag")
            port, inode = _ANSWER.unpack_from(data, _HEADER.size)
            yield int.from_bytes(port, "big"), inode
            data = data[(length + 3) & ~3 :]
