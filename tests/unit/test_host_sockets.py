"""Ports and sockets on the real kernel: what is in a server's way, and what only looks like it."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from supervise.host import procfs, sockets
from supervise.model.snapshot import PortState


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def inet(opened: ExitStack, *, reuse: bool = True, family: socket.AddressFamily = socket.AF_INET) -> socket.socket:
    made = opened.enter_context(socket.socket(family, socket.SOCK_STREAM))
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
    return made


def bound(opened: ExitStack, host: str = "0.0.0.0", port: int = 0, **more) -> tuple[socket.socket, int]:
    server = inet(opened, **more)
    server.bind((host, port))
    return server, server.getsockname()[1]


def inode(of: socket.socket) -> int:
    return os.fstat(of.fileno()).st_ino


def states(port: int, *hosts: str) -> list[PortState]:
    return [sockets.probe_port(host, port).state for host in hosts]


def connection(opened: ExitStack, *, reuse: bool = True) -> tuple[int, socket.socket, socket.socket]:
    """One connection to a server that listens no more: port, server's end, client's end."""
    server, port = bound(opened, "127.0.0.1", reuse=reuse)
    server.listen()
    client = opened.enter_context(socket.create_connection(("127.0.0.1", port)))
    accepted, _ = server.accept()
    opened.enter_context(accepted)
    server.close()
    return port, accepted, client


def test_a_port_that_nobody_has_is_free(port):
    assert states(port, "", "0.0.0.0", "127.0.0.1", "localhost") == [PortState.FREE] * 4


@pytest.mark.parametrize("reuse", [True, False])
@pytest.mark.parametrize("listening", [True, False])
@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1"])
def test_a_bound_port_is_held_whether_or_not_it_listens(opened, reuse, listening, host):
    server, port = bound(opened, host, reuse=reuse)
    if listening:
        server.listen()
    assert states(port, "", "127.0.0.1", "localhost") == [PortState.HELD] * 3


def test_a_bind_with_reuse_does_not_see_a_server_that_loads(opened):
    _, port = bound(opened)
    other, _ = bound(opened, port=port)
    assert other.getsockname()[1] == port
    assert sockets.probe_port("", port).state is PortState.HELD


def test_another_address_is_another_port(opened):
    _, port = bound(opened, "127.0.0.1")
    assert states(port, "127.0.0.2") == [PortState.FREE]


def test_a_connection_that_outlives_its_server_is_in_nobody_s_way(opened):
    port, accepted, client = connection(opened)
    assert states(port, "", "127.0.0.1") == [PortState.FREE] * 2
    accepted.close()
    assert states(port, "", "127.0.0.1") == [PortState.FREE] * 2
    client.close()
    assert "06" in {row.state for row in sockets._rows() if row.port == port}
    assert states(port, "", "127.0.0.1") == [PortState.FREE] * 2


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1"])
def test_a_server_that_loads_beside_old_connections_is_seen(opened, host):
    port, accepted, client = connection(opened)
    accepted.close()
    client.close()
    _, again = bound(opened, host, port)
    if host != "0.0.0.0" and not sockets.bound(again):
        pytest.skip("a kernel before 6.8 does not tell")
    assert states(port, "127.0.0.1") == [PortState.HELD]


def test_old_connections_of_a_server_without_reuse_are_in_the_way(opened):
    port, accepted, client = connection(opened, reuse=False)
    accepted.close()
    client.close()
    server = inet(opened)
    with pytest.raises(OSError, match="in use"):
        server.bind(("127.0.0.1", port))
    assert states(port, "127.0.0.1") == [PortState.HELD]


def test_both_families_hold_a_port(opened):
    try:
        server = inet(opened, family=socket.AF_INET6)
        server.bind(("::", 0))
    except OSError:
        pytest.skip("no IPv6 here")
    port = server.getsockname()[1]
    assert states(port, "::", "[::]", "", "127.0.0.1") == [PortState.HELD] * 4


@pytest.mark.parametrize("host", ["192.0.2.7", "no such host", "2001:db8::7"])
def test_an_address_that_is_not_here_is_unknown_with_its_reason(host, port):
    reading = sockets.probe_port(host, port)
    assert reading.state is PortState.UNKNOWN
    assert reading.error


def test_a_number_that_is_no_port_is_unknown():
    assert states(70000, "", "127.0.0.1") == [PortState.UNKNOWN] * 2


def test_who_listens_is_told_by_inode(opened):
    server, port = bound(opened, "127.0.0.1")
    assert sockets.listeners(port) == ()
    server.listen()
    assert sockets.listeners(port) == (sockets.Listener(inode(server), os.geteuid()),)
    assert sockets.listening_ports()[inode(server)] == port
    mine = procfs.scan(cmdline=False, environ=False)
    assert sockets.holders([each.inode for each in sockets.listeners(port)], mine.values()) == (procfs.self_id(),)
    assert sockets.holders((), mine.values()) == ()


def test_who_has_bound_a_port_and_does_not_listen_is_told_where_the_kernel_tells(opened):
    server, port = bound(opened)
    found = sockets.bound(port)
    if not found:
        pytest.skip("a kernel before 6.8 does not tell")
    assert found == (inode(server),)
    server.listen()
    assert sockets.bound(port) == ()


class TestUnixPaths:
    def test_nobody(self, short_dir):
        assert not sockets.unix_path_in_use(str(short_dir / "none"))

    def test_left_behind(self, short_dir):
        path = left_behind(short_dir)
        assert path.exists()
        assert not sockets.unix_path_in_use(str(path))

    @pytest.mark.parametrize("listening", [True, False])
    def test_bound(self, opened, short_dir, listening):
        path = str(short_dir / "s")
        server = opened.enter_context(socket.socket(socket.AF_UNIX))
        server.bind(path)
        if listening:
            server.listen()
        assert sockets.unix_path_in_use(path)
        assert (path in sockets.unix_listeners()) is listening

    def test_bound_under_a_relative_name(self, opened, short_dir, monkeypatch):
        monkeypatch.chdir(short_dir)
        server = opened.enter_context(socket.socket(socket.AF_UNIX))
        server.bind("s")
        assert sockets.unix_path_in_use(str(short_dir / "s"))

    def test_of_another_type(self, opened, short_dir):
        path = str(short_dir / "s")
        server = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        server.bind(path)
        server.listen()
        assert sockets.unix_path_in_use(path)


def left_behind(directory: Path) -> Path:
    path = directory / "s"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
    return path
