"""Probes of a running server: does it answer, and is it ours that answers?"""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Callable, Iterable

from supervise.host import procfs, sockets
from supervise.model.need import Need
from supervise.model.probe import Answer, Probed
from supervise.model.process import Process

_TIMEOUT_S = 5.0


def ready(need: Need, path: str | None, members: Callable[[], Iterable[Process]]) -> Probed:
    """Ask whether the server of this group serves.

    The listening socket must belong to a member of the group: a vLLM that starts on a port where another one
    listens loads, reports "Application startup complete." and never gets a request (VLLM_REAL.md section 4).

    Args:
        need: where it should listen.
        path: what to GET there, None to be content with the listener.
        members: reads who belongs to the group now.

    Returns:
        The answer; blocking, bounded by a time-out of 5 s.
    """
    listening = _listeners(need)
    if not listening:
        return Probed(Answer.SILENT)
    ours = any(listening & (procfs.sockets_of(member.pid) or frozenset()) for member in members())
    if not ours:
        return Probed(Answer.NOT_OURS, _holder(listening))
    if path is None or _get(need, path) == http.client.OK:
        return Probed(Answer.YES)
    return Probed(Answer.NOT_YET)


def _listeners(need: Need) -> frozenset[int]:
    if need.uds is not None:
        return frozenset(sockets.unix_listeners().get(need.uds, ()))
    if need.http is None:
        return frozenset()
    return frozenset(each.inode for each in sockets.listeners(need.http.number, need.http.host))


def _holder(inodes: frozenset[int]) -> str:
    for process in procfs.scan(environ=False).values():
        if inodes & (procfs.sockets_of(process.pid) or frozenset()):
            return f"pid {process.pid} {process.title[:80]}"
    return "a process that is not visible from here"


def _get(need: Need, path: str) -> int | None:
    """Status of a GET, None when there is none to be had."""
    connection = _connect(need)
    try:
        connection.request("GET", path, headers={"Connection": "close"})
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def _connect(need: Need) -> http.client.HTTPConnection:
    if need.uds is not None:
        return _UnixConnection(need.uds)
    port = need.http
    host, number = (port.host, port.number) if port else ("", 0)
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    if need.scheme == "https":
        # Who answers is proven by the owner of the socket, not by a certificate that may well be self-signed.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return http.client.HTTPSConnection(host, number, timeout=_TIMEOUT_S, context=context)
    return http.client.HTTPConnection(host, number, timeout=_TIMEOUT_S)


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_TIMEOUT_S)
        self.sock.connect(self._path)
