"""What a group does, read from the real /proc: a reader, a sleeper, one that maps, and bytes that come by TCP."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervise.host import effort, sockdiag
from supervise.model.effort import NO_LOAD, Effort, GpuLoad
from supervise.model.process import ProcessId
from tests.support.nvml import library

MIB = 2**20
READS = "import sys; open(sys.argv[1], 'rb').read(); print(flush=True); sys.stdin.read()"
MAPS = (
    "import mmap, sys; f = open(sys.argv[1], 'rb'); m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ);"
    "sum(m[i] for i in range(0, len(m), 4096)); print(flush=True); sys.stdin.read()"
)
SLEEPS = "import sys; print(flush=True); sys.stdin.read()"


@contextlib.contextmanager
def running(program: str, path: str = "") -> Iterator[int]:
    """Its pid, once it has done what it does."""
    popen = subprocess.Popen([sys.executable, "-c", program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert popen.stdin is not None
    assert popen.stdout is not None
    try:
        assert popen.stdout.readline() == b"\n"
        yield popen.pid
    finally:
        popen.stdin.close()
        popen.wait(20)
        popen.stdout.close()


def seen(pid: int) -> Effort:
    look = effort.look(os.getpid(), gpus=False)
    assert look.gpu == NO_LOAD
    return next(done for process, done in look.efforts.items() if process.pid == pid)


def test_a_reader_is_told_from_a_sleeper_and_a_mapping_shows_as_memory(tmp_path):
    (file := tmp_path / "weights").write_bytes(os.urandom(MIB) * 32)
    with running(SLEEPS) as sleeper, running(READS, str(file)) as reader, running(MAPS, str(file)) as mapper:
        quiet, read, mapped = seen(sleeper), seen(reader), seen(mapper)
    assert quiet.read is not None
    assert read.read is not None
    assert read.read - quiet.read >= 30 * MIB
    assert mapped.resident - quiet.resident >= 30 * MIB
    assert mapped.read is not None
    assert mapped.read - quiet.read < 2 * MIB, "which is why reads alone are no measure"
    assert quiet.cpu_s < 5
    assert not quiet.traced


def test_who_has_ended_and_who_took_its_pid_are_not_in_it():
    with running(SLEEPS) as pid:
        assert effort._effort(ProcessId(pid, 1)) is None
    assert pid not in {process.pid for process in effort.look(os.getpid(), gpus=False).efforts}


def test_what_may_not_be_read_is_unknown():
    assert effort._read(2**22 + 7) is None


def outside() -> str | None:
    """An address of this host that is not its loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        return str(probe.getsockname()[0])


def received_through(host: str) -> int:
    with socket.create_server((host, 0)) as server, socket.create_connection(server.getsockname()) as client:
        far, _ = server.accept()
        with far:
            far.sendall(bytes(100_000))
            left = 100_000
            while left:
                left -= len(client.recv(left))
            told = sockdiag.received()
            if told is None:
                pytest.skip("sock_diag is not to be had here")
            return told.get(os.fstat(client.fileno()).st_ino, 0)


def test_bytes_from_the_network_count_and_those_of_the_loopback_do_not():
    assert received_through("127.0.0.1") == 0
    host = outside()
    if host is None or host.startswith("127."):
        pytest.skip("this host has no network")
    assert received_through(host) >= 100_000


# --- GPUs -------------------------------------------------------------------------------------------------------------

LOAD = """
import contextlib, sys, time
with contextlib.suppress(RuntimeError):
    import pynvml
from supervise.host import nvml
began = time.monotonic()
print(nvml.load([int(sys.argv[1])], float(sys.argv[2])), nvml.load([], 0.1) if sys.argv[3:] else "")
assert time.monotonic() - began < 10
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return library.build(tmp_path_factory.mktemp("nvml"))


def loaded(built: Path, tmp_path: Path, *state: str, timeout_s: float = 10.0, again: bool = False) -> str:
    (path := tmp_path / "nvml").write_text("\n".join(state))
    command = [sys.executable, "-c", LOAD, str(os.getpid()), str(timeout_s), *(["again"] if again else [])]
    done = subprocess.run(
        command, env=library.environment(built, path), capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.strip()


def test_only_gpus_that_the_group_holds_count(built, tmp_path):
    gpus = ("gpu GPU-a 1000 10", "gpu GPU-b 1000 20", "busy 0 100", "busy 1 7")
    assert loaded(built, tmp_path, *gpus, f"proc 1 {os.getpid()} 500") == str(GpuLoad(1, 7, 520 * MIB))
    assert loaded(built, tmp_path, *gpus) == str(GpuLoad(2, 100, 30 * MIB)), "who is not seen to hold any may hold all"


def test_a_driver_that_does_not_tell_is_unknown(built, tmp_path):
    assert loaded(built, tmp_path, "gpu GPU-a 1000 10", "fails utilization 3 0") == "None"


def test_a_driver_that_hangs_costs_its_deadline_and_is_not_asked_again(built, tmp_path):
    assert loaded(built, tmp_path, "gpu GPU-a 1000 10", "hangs utilization", timeout_s=1.0, again=True) == "None None"
