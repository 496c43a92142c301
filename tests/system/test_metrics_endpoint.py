"""The endpoint and the file: clients, ports, threads and disks that do their worst."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from supervise.model.need import Port
from supervise.model.news import Entered
from supervise.model.telling import Address, Telling, TellingError
from supervise.runner.endpoint import Endpoint, listen
from supervise.runner.textfile import Textfile
from tests.support.waiting import wait_until

BODY = b"# HELP x y\nx 1\n" * 20_000


@contextmanager
def served(port: int, host: str = "127.0.0.1", text=lambda: BODY, client_s=5.0) -> Iterator[str]:
    listener = listen(Address(host, port), ())
    endpoint = Endpoint(listener, text, "text/plain; version=0.0.4", client_s=client_s)
    try:
        yield f"http://{Address(host, port)}"
    finally:
        endpoint.close()
        wait_until(lambda: listener.fileno() < 0)


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_it_answers_and_gives_the_port_back(port, host):
    for _ in range(2):
        with served(port, host) as url:
            assert get(f"{url}/metrics") == BODY == get(f"{url}/?x")
            with pytest.raises(urllib.error.HTTPError, match="404"):
                get(f"{url}/other")
            with pytest.raises(urllib.error.HTTPError, match="405"):
                urllib.request.urlopen(urllib.request.Request(f"{url}/metrics", data=b"x"), timeout=10)
    with pytest.raises(urllib.error.URLError):
        get(url)


def test_clients_that_say_nothing_or_read_nothing_keep_nobody_waiting(port):
    with served(port, client_s=1.0) as url:
        before = len(os.listdir("/proc/self/fd"))
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(10)]
        greedy = [socket.create_connection(("127.0.0.1", port)) for _ in range(5)]
        for client in greedy:
            client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert get(f"{url}/metrics") == BODY
        flood = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
        endless = socket.create_connection(("127.0.0.1", port))
        endless.sendall(b"x" * 100_000)
        ours = len(silent) + len(greedy) + len(flood) + 1
        wait_until(lambda: len(os.listdir("/proc/self/fd")) <= before + ours + 16)
        # Once their time is over there is room again, and none of their descriptors stays.
        wait_until(lambda: len(os.listdir("/proc/self/fd")) == before + ours)
        assert get(f"{url}/metrics") == BODY
        for client in (*silent, *greedy, *flood, endless):
            client.close()


def test_a_text_that_cannot_be_made_is_made_later(port):
    failing = [MemoryError(), None]

    def text() -> bytes:
        error = failing.pop(0) if failing else None
        if error:
            raise error
        return b"ok"

    with served(port, text=text) as url:
        with pytest.raises((urllib.error.URLError, ConnectionError)):
            get(url)
        assert get(url) == b"ok"


@pytest.mark.parametrize("listening", [True, False])
def test_a_port_that_somebody_has_is_refused(port, listening):
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", port))
        if listening:
            holder.listen()
        with pytest.raises(TellingError, match=f"--metrics 127.0.0.1:{port}: somebody has the port") as refused:
            listen(Address("127.0.0.1", port), ())
        assert refused.value.status == 125
    listen(Address("127.0.0.1", port), ()).close()


def test_a_port_that_the_server_wants_is_a_mistake(port):
    with pytest.raises(TellingError, match=f"the server itself wants port {port}") as refused:
        listen(Address("127.0.0.1", port), (Port(port + 1, "", "x", "flag"), Port(port, "0.0.0.0", "http", "flag")))
    assert refused.value.status == 2
    listen(Address("127.0.0.1", port), (Port(port + 1, "", "x", "flag"),)).close()


def test_an_address_that_is_not_ours_is_refused(port):
    with pytest.raises(TellingError, match="nothing was launched"):
        listen(Address("192.0.2.1", port), ())


def test_no_child_inherits_the_socket(port):
    with served(port):
        listing = "[os.readlink(f'/proc/self/fd/{fd}') for fd in os.listdir('/proc/self/fd') if int(fd) > 2]"
        code = f"import os; print({listing})"
        seen = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, close_fds=False, check=False
        )
        assert "socket:" not in seen.stdout


class Told:
    def __init__(self) -> None:
        self.errors: list[str] = []

    def error(self, text: str) -> None:
        self.errors.append(text)


def test_the_file_is_whole_at_any_time_and_stays_with_the_last_word(tmp_path):
    path, texts = tmp_path / "run.prom", [BODY, BODY * 2]
    over = threading.Event()
    seen: set[int] = set()

    def read() -> None:
        while not over.is_set():
            if path.exists():
                seen.add(path.stat().st_size)

    async def story() -> None:
        kept = Textfile(str(path), lambda: texts[-1], Told(), every_s=0.01)
        reader = threading.Thread(target=read)
        reader.start()
        for _ in range(20):
            kept.wake()
            texts.reverse()
            await asyncio.sleep(0.01)
        texts.append(b"supervise_up 0\n")
        kept.close()
        await kept.finished()
        over.set()
        reader.join()

    asyncio.run(story())
    assert path.read_bytes() == b"supervise_up 0\n"
    assert seen <= {len(BODY), 2 * len(BODY), 15}
    assert [each.name for each in tmp_path.iterdir()] == ["run.prom"]


def test_a_file_that_cannot_be_written_is_said_once_and_written_later(tmp_path):
    path, console = tmp_path / "later" / "run.prom", Told()

    async def story() -> None:
        kept = Textfile(str(path), lambda: b"x 1\n", console, every_s=0.01)
        kept.wake()
        deadline = time.monotonic() + 20
        while not console.errors:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        kept.wake()
        path.parent.mkdir()
        kept.close()
        await kept.finished()

    asyncio.run(story())
    assert console.errors == [f"metrics: {path}: No such file or directory; it is tried again"]
    assert path.read_text() == "x 1\n"


def test_both_show_what_has_been_heard(port, tmp_path):
    from supervise.runner.exposition import Exposition

    path = tmp_path / "run.prom"

    async def story() -> bytes:
        telling = Telling(Address("127.0.0.1", port), str(path))
        shown = Exposition(telling, "vllm-8000", "vllm", (), Told())
        shown.hear(Entered("ready", 1, None, None, 0.0))
        text = await asyncio.to_thread(get, f"http://127.0.0.1:{port}/metrics")
        shown.close()
        await shown.finished()
        return text

    ready = 'supervise_ready{engine="vllm",run="vllm-8000"} 1.0'
    assert ready in asyncio.run(story()).decode()
    assert ready in path.read_text()
