"""A small HTTP client for one's own server: over TCP, TLS or a Unix socket, never longer than it is given."""

from __future__ import annotations

import http.client
import io
import json as jsons
import socket
import ssl
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, NamedTuple, Protocol

from supervise.model.need import Need, Port

# The metrics of a large vLLM are some 300 kB; whatever is longer is no answer to anything we ask.
MOST_BYTES = 4 << 20
CLOSED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED)
"""A server that does not know the path, or does not let us ask: it speaks HTTP, and that is all there is to be had."""
# What a server that binds all interfaces is asked at. A `::` that is not shared with IPv4 answers at `::1` alone.
_LOOPBACKS = {"": ("127.0.0.1",), "0.0.0.0": ("127.0.0.1",), "::": ("::1", "127.0.0.1")}


class Response(NamedTuple):
    """What a server answered.

    Attributes:
        status: of HTTP.
        body: at most 4 MiB of it, as sent.
        content_type: as sent, in lower case and without parameters, empty if there was none.
    """

    status: int
    body: bytes
    content_type: str = ""


class Asks(Protocol):
    """What probes want of a client."""

    def get(self, path: str, timeout_s: float) -> Response | None:
        """See `Client`."""

    def post(self, path: str, json: object, timeout_s: float) -> Response | None:
        """See `Client`."""


class Client:
    """Asks one server, with a connection of its own each time.

    Certificates are not looked at: who answers is proven by the owner of the listening socket, and a server's own
    certificate is seldom one for 127.0.0.1. Proxies of the environment are not used.

    Args:
        need: where the server listens.
        key: what it wants as a bearer token, None for nothing. It is sent, and told nobody.
    """

    def __init__(self, need: Need, key: str | None) -> None:
        self._need, self._key = need, key

    def get(self, path: str, timeout_s: float) -> Response | None:
        """GET a path.

        Args:
            path: absolute, without a host.
            timeout_s: seconds for all of it: connecting, TLS, and the last byte of the body.

        Returns:
            The answer whatever its status, None if there was none in time.
        """
        return self._ask("GET", path, None, timeout_s)

    def post(self, path: str, json: object, timeout_s: float) -> Response | None:
        """POST a document.

        Args:
            path: absolute, without a host.
            json: what is sent.
            timeout_s: seconds for all of it.

        Returns:
            The answer whatever its status, None if there was none in time.
        """
        return self._ask("POST", path, jsons.dumps(json).encode(), timeout_s)

    def stream(self, path: str, json: object, timeout_s: float, hear: Callable[[bytes], None]) -> Response | None:
        """POST a document whose answer comes bit by bit.

        Args:
            path: absolute, without a host.
            json: what is sent.
            timeout_s: seconds for all of it.
            hear: told of each line of the body as it comes, in pieces of 4 MiB where it is longer; of all of them.

        Returns:
            The answer, the first 4 MiB of its body in it as well; None if it was not whole in time.
        """
        return self._ask("POST", path, jsons.dumps(json).encode(), timeout_s, hear)

    def _ask(
        self,
        method: str,
        path: str,
        body: bytes | None,
        timeout_s: float,
        hear: Callable[[bytes], None] | None = None,
    ) -> Response | None:
        deadline = time.monotonic() + timeout_s
        try:
            with self._connected(deadline) as sock:
                sock.settimeout(_left(deadline))
                sock.sendall(self._head(method, path, body) + (body or b""))
                return _answer(sock, method, deadline, hear)
        except (OSError, http.client.HTTPException, ValueError):
            # ValueError: a port or name that no address can be made of, a chunk that is no number.
            return None

    def _connected(self, deadline: float) -> socket.socket:
        sock = self._plain(deadline)
        if self._need.scheme != "https":
            return sock
        try:
            sock.settimeout(_left(deadline))
            return _context().wrap_socket(sock)
        except BaseException:
            sock.close()
            raise

    def _plain(self, deadline: float) -> socket.socket:
        if self._need.uds is not None:
            return _connect(socket.AF_UNIX, self._need.uds, deadline)
        port = self._need.http
        if port is None:
            raise ConnectionRefusedError("nothing is served here")
        failure: OSError = ConnectionRefusedError(f"no address for {port.host}")
        for family, address in _addresses(port):
            try:
                return _connect(family, address, deadline)
            except OSError as error:
                failure = error
        raise failure

    def _head(self, method: str, path: str, body: bytes | None) -> bytes:
        lines = [f"{method} {path} HTTP/1.1", f"Host: {_host(self._need)}", "Connection: close", "Accept: */*"]
        if self._key is not None and self._key.isascii() and self._key.isprintable():
            lines.append(f"Authorization: Bearer {self._key}")
        if body is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


class _UntilDeadline(io.RawIOBase):
    """Reads from a socket; each read may take what is left of the time, so that dripping bytes gain none."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock, self._deadline = sock, deadline

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Some bytes, 0 at the end.

        Raises:
            OSError: of the socket; TimeoutError once the deadline has passed.
        """
        self._sock.settimeout(_left(self._deadline))
        return self._sock.recv_into(buffer)


class _Answer(http.client.HTTPResponse):
    """An answer that is read under a deadline."""

    def __init__(self, sock: socket.socket, method: str, deadline: float) -> None:
        super().__init__(sock, method=method)
        self.fp.close()
        self.fp = io.BufferedReader(_UntilDeadline(sock, deadline))


def _answer(sock: socket.socket, method: str, deadline: float, hear: Callable[[bytes], None] | None) -> Response:
    with _Answer(sock, method, deadline) as answer:
        answer.begin()
        kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        body = answer.read(MOST_BYTES) if hear is None else _heard(answer, hear)
        return Response(answer.status, body, kind)


def _heard(answer: http.client.HTTPResponse, hear: Callable[[bytes], None]) -> bytes:
    body = bytearray()
    while line := answer.readline(MOST_BYTES):
        hear(line)
        body += line[: MOST_BYTES - len(body)]
    return bytes(body)


def _connect(family: int, address: Any, deadline: float) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.settimeout(_left(deadline))
        sock.connect(address)
    except BaseException:
        sock.close()
        raise
    return sock


def _left(deadline: float) -> float:
    """Seconds until then.

    Raises:
        TimeoutError: there are none.
    """
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("no answer in time")
    return left


def _addresses(port: Port) -> list[tuple[int, Any]]:
    """Family and address, as `socket.connect` wants them; those of a name are looked up, whatever that takes."""
    host = port.host.strip("[]")
    return [
        (family, address)
        for name in _LOOPBACKS.get(host, (host,))
        for family, _, _, _, address in socket.getaddrinfo(name, port.number, type=socket.SOCK_STREAM)
    ]


def base_url(need: Need) -> str:
    """Where clients on this host reach the server, `unix:PATH` for a socket, empty if it serves nothing."""
    if need.uds is not None:
        return f"unix:{need.uds}"
    return "" if need.http is None else f"{need.scheme}://{_host(need)}"


def _host(need: Need) -> str:
    """The Host header; a server that checks it (SGLang and vLLM do not) will know its own address."""
    if need.uds is not None or need.http is None:
        return "localhost"
    host = need.http.host.strip("[]")
    host = _LOOPBACKS.get(host, (host,))[0]
    return f"{f'[{host}]' if ':' in host else host}:{need.http.number}"


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    # Old ciphers of an own server are no reason not to ask it.
    context.set_ciphers("ALL:@SECLEVEL=0")
    return context
