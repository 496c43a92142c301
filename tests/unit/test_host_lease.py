"""File leases: the kernel says whether anybody has a file open, whoever and wherever that is."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from supervise.host import lease
from tests.support.readable import readable_python

DIRECTORIES = ["/dev/shm", tempfile.gettempdir()]

_HOLDER = """
import mmap, os, sys
how, path = sys.argv[1:]
fd = os.open(path, os.O_RDONLY if how in ("read", "map") else os.O_WRONLY)
if how == "map":
    mapping = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
    os.close(fd)
print("holds", flush=True)
sys.stdin.read()
"""


@pytest.fixture(params=DIRECTORIES)
def path(request: pytest.FixtureRequest) -> Iterator[Path]:
    fd, name = tempfile.mkstemp(dir=request.param, prefix="lease-")
    os.write(fd, bytes(4096))
    os.close(fd)
    yield Path(name)
    Path(name).unlink(missing_ok=True)


@contextmanager
def held(path: Path, how: str, python: str = sys.executable, **popen: object) -> Iterator[None]:
    command = [python, "-I", "-S", "-c", _HOLDER, how, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **popen) as holder:  # type: ignore[call-overload]
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"holds\n"
        yield


def asked(path: Path) -> bool | None:
    fd = os.open(path, os.O_PATH | os.O_NOFOLLOW)
    try:
        with lease.leased(fd) as free:
            return free
    finally:
        os.close(fd)


def test_a_file_that_nobody_has_open_is_free(path: Path) -> None:
    assert asked(path) is True


@pytest.mark.parametrize("how", ["read", "write", "map"])
def test_a_file_that_somebody_has_open_is_not(path: Path, how: str) -> None:
    with held(path, how):
        assert asked(path) is False
    assert asked(path) is True


@pytest.mark.root
@pytest.mark.parametrize("how", ["read", "map"])
def test_whoever_has_it_open(path: Path, how: str) -> None:
    path.chmod(0o644)
    with held(path, how, readable_python(), user=65534, extra_groups=[]):
        assert asked(path) is False


@pytest.mark.root
def test_an_ordinary_user_is_told_of_those_whom_he_cannot_see(path: Path) -> None:
    """/proc shows him nothing of them."""
    os.chown(path, 65534, 65534)
    with held(path, "map"):
        assert _in_child(lambda: asked(path)) == "False"
    assert _in_child(lambda: asked(path)) == "True"


def test_nothing_but_a_plain_file_is_opened(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    assert asked(fifo) is None
    assert asked(tmp_path) is None
    (tmp_path / "link").symlink_to("/etc/passwd")
    assert asked(tmp_path / "link") is None


def test_a_file_system_where_leases_do_not_tell() -> None:
    assert asked(Path("/proc/self/status")) is None


def test_an_open_in_the_very_moment_does_not_end_us(path: Path) -> None:
    """The kernel tells the holder of a lease that somebody wants the file; with SIGIO that would be the end."""
    assert signal.getsignal(signal.SIGIO) is signal.SIG_DFL
    fd = os.open(path, os.O_PATH)
    opened = threading.Thread(target=lambda: os.close(os.open(path, os.O_RDONLY)))
    with lease.leased(fd) as free:
        assert free is True
        opened.start()
        opened.join(0.2)
    opened.join(20)
    os.close(fd)
    assert not opened.is_alive()


def test_it_is_given_back(path: Path) -> None:
    assert asked(path) is True
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0):
        assert asked(path) is False


def _in_child(ask: Callable[[], bool | None]) -> str:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setuid(65534)
            os.write(writer, str(ask()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as told:
        answer = told.read()
    os.waitpid(child, 0)
    return answer
