"""The HTTP client of the probes: every way to reach a server, and no way for a server to hold it."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from supervise.model.need import Need, Port
from supervise.probes.http import Client

ENOUGH_S = 20.0
# Long enough for a loaded machine to connect, short beside what a server that drips would take.
SHORT_S = 0.5
Talk = Callable[[socket.socket, bytes], None]


@contextmanager
def served(
    talk: Talk, address: str | tuple[str, int] = ("127.0.0.1", 0)
) -> Iterator[tuple[socket.socket, list[bytes]]]:
    """A server of one request; what it was asked is in the list."""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.bind(address)
    listening.listen()
    asked: list[bytes] = []

    def serve() -> None:
        try:
            with listening.accept()[0] as connection:
                asked.append(request(connection))
                talk(connection, asked[0])
        except OSError:
            pass

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    with listening:
        yield listening, asked
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(ENOUGH_S)


def request(connection: socket.socket) -> bytes:
    text = b""
    while b"\r\n\r\n" not in text:
        more = connection.recv(4096)
        if not more:
            return text
        text += more
    head, _, body = text.partition(b"\r\n\r\n")
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length: "):
            while len(body) < int(line[16:]):
                body += connection.recv(4096)
    return head + b"\r\n\r\n" + body


def says(text: bytes) -> Talk:
    return lambda connection, _: connection.sendall(text)


def need(host: str, port: int, scheme: str = "http") -> Need:
    return Need("p", "r", (), (), ports=(Port(port, host, "http", "--port"),), scheme=scheme)


def at(listening: socket.socket, host: str = "127.0.0.1") -> Need:
    return need(host, listening.getsockname()[1])


OK = b"HTTP/1.1 200 OK\r\nContent-Type: Application/JSON; charset=utf-8\r\nContent-Length: 2\r\n\r\n{}"


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "", "localhost"])
def test_all_of_ipv4_is_asked_at_the_loopback(host: str) -> None:
    with served(says(OK)) as (listening, asked):
        answer = Client(at(listening, host), None).get("/health", ENOUGH_S)
    assert answer == (200, b"{}", "application/json")
    assert asked[0].startswith(b"GET /health HTTP/1.1\r\n")
    assert b"Authorization" not in asked[0]


@pytest.mark.parametrize("host", ["::1", "::", "[::1]"])
def test_ipv6(host: str) -> None:
    try:
        with served(says(OK), ("::1", 0)) as (listening, asked):
            answer = Client(at(listening, host), None).get("/health", ENOUGH_S)
    except OSError:
        pytest.skip("no IPv6 here")
    assert (answer and answer.status) == 200
    assert b"\r\nHost: [::1]:" in asked[0]


def test_all_of_ipv6_may_be_served_over_ipv4_alone() -> None:
    with served(says(OK)) as (listening, _):
        answer = Client(at(listening, "::"), None).get("/health", ENOUGH_S)
    assert (answer and answer.status) == 200


def test_a_unix_socket(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with served(says(OK), path):
        answer = Client(Need("p", "r", (), (), uds=path), None).get("/health", ENOUGH_S)
    assert (answer and answer.status) == 200


def test_the_key_is_sent_and_never_shown() -> None:
    with served(says(OK)) as (listening, asked):
        client = Client(at(listening), "s3cret")
        assert client.get("/v1/models", ENOUGH_S) is not None
    assert b"\r\nAuthorization: Bearer s3cret\r\n" in asked[0]
    assert "s3cret" not in repr(client)


@pytest.mark.parametrize("key", ["a\r\nX-Other: b", "a\nb", "schlüssel", ""])
def test_a_key_that_is_no_header_adds_none(key: str) -> None:
    with served(says(OK)) as (listening, asked):
        Client(at(listening), key).get("/", ENOUGH_S)
    assert b"X-Other" not in asked[0]
    assert (b"Authorization" in asked[0]) == (key == "")


def test_a_document_is_posted() -> None:
    with served(says(OK)) as (listening, asked):
        answer = Client(at(listening), None).post("/v1/completions", {"prompt": "ä"}, ENOUGH_S)
    assert answer is not None
    head, _, body = asked[0].partition(b"\r\n\r\n")
    assert b"Content-Type: application/json" in head
    assert json.loads(body) == {"prompt": "ä"}


@pytest.mark.parametrize("status", [204, 401, 404, 500, 503])
def test_every_status_is_an_answer(status: int) -> None:
    with served(says(b"HTTP/1.1 %d No\r\nContent-Length: 0\r\n\r\n" % status)) as (listening, _):
        assert Client(at(listening), None).get("/", ENOUGH_S) == (status, b"", "")


def test_chunks_are_joined() -> None:
    text = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    with served(says(text)) as (listening, _):
        assert Client(at(listening), None).get("/", ENOUGH_S) == (200, b"abcde", "")


def test_a_body_without_end_is_cut() -> None:
    def pour(connection: socket.socket, _: bytes) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            connection.sendall(b"x" * 65536)

    with served(pour) as (listening, _):
        answer = Client(at(listening), None).get("/", ENOUGH_S)
    assert len(answer.body if answer else b"") == 4 << 20


def drips(text: bytes, released: threading.Event) -> Talk:
    """A byte now and then, each of them well within any time-out for a single read."""

    def talk(connection: socket.socket, _: bytes) -> None:
        connection.sendall(text)
        while not released.wait(SHORT_S / 10):
            connection.sendall(b"x")

    return talk


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"", id="status line"),
        pytest.param(b"HTTP/1.1 200 OK\r\nX: ", id="header"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", id="body"),
    ],
)
def test_a_server_that_drips_does_not_hold_us(text: bytes) -> None:
    released = threading.Event()
    found: list[object] = []
    with served(drips(text, released)) as (listening, _):
        asking = threading.Thread(target=lambda: found.append(Client(at(listening), None).get("/", SHORT_S)))
        asking.start()
        asking.join(ENOUGH_S)
        ended = not asking.is_alive()
        released.set()
    assert ended, "still reading long after its deadline"
    assert found == [None]


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_what_is_no_http_is_no_answer(text: bytes) -> None:
    with served(says(text)) as (listening, _):
        assert Client(at(listening), None).get("/", ENOUGH_S) is None


def test_nobody_there_is_no_answer(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        nowhere = at(listening)
    assert Client(nowhere, None).get("/", ENOUGH_S) is None
    assert Client(Need("p", "r", (), (), uds=str(tmp_path / "none")), None).get("/", ENOUGH_S) is None
    assert Client(Need("p", "r", (), ()), None).get("/", ENOUGH_S) is None
    assert Client(need("no.such.host.invalid", 1), None).get("/", ENOUGH_S) is None


def test_a_server_that_speaks_no_tls_is_no_answer() -> None:
    with served(says(OK)) as (listening, _):
        assert Client(need("127.0.0.1", listening.getsockname()[1], "https"), None).get("/", SHORT_S) is None
