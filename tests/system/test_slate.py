"""The clean slate before a real launch, among real processes: what is ours goes, everything else stays."""

from __future__ import annotations

import ctypes
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from supervise.host import kernel, procfs, shm, signals
from supervise.model.litter import Segment
from supervise.model.process import ProcessId
from tests.support.family import Family
from tests.support.launcher import Launched, Supervise, free_port
from tests.support.leaks import reap
from tests.support.waiting import alive, survivors, wait_gone, wait_until

_PR_SET_CHILD_SUBREAPER = 36
_FIRST_UID = 61000
_SAY_AND_STAY = "import signal\nprint('up', flush=True)\nwhile True: signal.pause()\n"


class Others:
    """Programs of somebody else; ended at tear-down."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._stack = ExitStack()

    def start(self, *argv: str, executable: str | None = None, says: bytes = b"up\n") -> ProcessId:
        """Start one with exactly this command line, once it has said that it is there."""
        popen = subprocess.Popen(
            argv, executable=executable, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=self.directory
        )
        self._stack.callback(_end, popen)
        assert _first_line(popen.stdout) == says
        found = procfs.read(popen.pid)
        assert found is not None
        assert found.argv == argv
        return found.id

    def python(self, code: str, *arguments: str) -> ProcessId:
        return self.start(sys.executable, "-c", code, *arguments)

    def close(self) -> None:
        self._stack.close()


def _first_line(stream: IO[bytes] | None) -> bytes:
    assert stream is not None
    return stream.readline()


def _end(popen: subprocess.Popen[bytes]) -> None:
    popen.kill()
    popen.communicate(timeout=10)


@pytest.fixture
def others(short_dir: Path) -> Iterator[Others]:
    directory = short_dir / "others"
    directory.mkdir()
    made = Others(directory)
    yield made
    made.close()


def start(supervise: Supervise, port: int, *options: object, name: str = "X") -> tuple[Launched, Family]:
    """Launch a stand-in and wait until it serves."""
    family = supervise.family(f"pids-{name}-{port}")
    standin = supervise.standin("--load-s", 0.05, *options, port=port, pids=family.path)
    launched = supervise.start("--profile", "vllm", "--name", name, "--grace", 1, *standin)
    launched.wait_said("ready    in")
    return launched, family.wait_ready()


def stop(launched: Launched) -> None:
    launched.send(signal.SIGTERM)
    assert launched.wait() == -signal.SIGTERM


def refused(supervise: Supervise, port: int, name: str = "X") -> str:
    """Launch where something stands in the way: 94, nothing launched; what it said."""
    family = supervise.family(f"never-{name}-{port}")
    standin = supervise.standin(port=port, pids=family.path)
    launched = supervise.run("--profile", "vllm", "--name", name, *standin)
    assert launched.popen.returncode == 94, launched.stderr
    assert not family.path.exists()
    assert "attempt  " not in launched.stderr
    return launched.stderr


class TestOthersAreLeftAlone:
    def test_whose_command_line_mentions_an_engine(self, supervise: Supervise, others: Others, port: int) -> None:
        (others.directory / "vllm.md").write_text(_SAY_AND_STAY)
        (others.directory / "bench.py").write_text(_SAY_AND_STAY)
        (others.directory / "vllm.log").write_text("(EngineCore pid=1) INFO\n")
        decoys = [
            others.start("vim", "vllm.md", executable=sys.executable),
            others.start("tail", "-f", "vllm.log", says=b"(EngineCore pid=1) INFO\n"),
            others.start("python", "bench.py", "--backend", "vllm", executable=sys.executable),
            others.start("bash", "-c", f"echo up; read -r _; : vllm serve /models/tiny --port {port} VLLM::EngineCore"),
        ]
        # With something to end beside them: a slate that has nothing to do proves little.
        left, family = start(supervise, port)
        _kill_everything_but(left, "VLLM::EngineCore")
        assert family.living == {"VLLM::EngineCore", "VLLM::Worker"}
        launched, _ = start(supervise, port, "--served-name", "again")
        assert f"ended   pid {family.members['VLLM::EngineCore'].pid} VLLM::EngineCore" in launched.stderr
        assert family.survivors == []
        stop(launched)
        assert supervise.run("clean", "vllm", "serve", "/models/tiny", "--port", port).popen.returncode == 0
        assert len(survivors(decoys)) == len(decoys)

    def test_live_server_of_another_run(self, supervise: Supervise, port: int) -> None:
        other_port = free_port()
        other, family = start(supervise, other_port, name="other")
        launched, _ = start(supervise, port)
        stop(launched)
        assert supervise.run("clean").popen.returncode == 0
        assert family.living == set(family.members)
        with urllib.request.urlopen(f"http://127.0.0.1:{other_port}/health", timeout=10) as answer:
            assert answer.status == 200
        assert other.popen.poll() is None
        stop(other)


class TestObstacles:
    def test_port_that_is_bound_and_not_listening(self, supervise: Supervise, others: Others, port: int) -> None:
        code = "import socket, sys\ns = socket.socket()\ns.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
        holder = others.python(f"{code}s.bind(('127.0.0.1', int(sys.argv[1])))\n{_SAY_AND_STAY}", str(port))
        said = refused(supervise, port)
        (line,) = [line for line in said.splitlines() if "BLOCKED" in line]
        assert f"BLOCKED port {port} " in line
        # Only root can see whose descriptor it is, and only where the kernel lists sockets that do not listen.
        assert f"held by pid {holder.pid} " in line or "bound and not listening" in line
        assert alive(holder)

    def test_port_of_somebody_else(self, supervise: Supervise, others: Others, port: int) -> None:
        code = "import socket, sys\ns = socket.create_server(('127.0.0.1', int(sys.argv[1])))\n"
        holder = others.python(f"{code}{_SAY_AND_STAY}", str(port))
        said = refused(supervise, port)
        assert f"BLOCKED port {port}  (foreign, held by pid {holder.pid} " in said
        assert f"kill {holder.pid}" in said
        assert alive(holder)

    def test_same_run_twice(self, supervise: Supervise, port: int) -> None:
        first, family = start(supervise, port)
        said = refused(supervise, port)
        assert f"run X is live: supervise pid {first.popen.pid} holds it" in said
        assert "supervise stop X" in said
        assert family.living == set(family.members)
        assert first.popen.poll() is None
        stop(first)

    def test_port_of_another_run(self, supervise: Supervise, port: int) -> None:
        first, family = start(supervise, port, name="other")
        said = refused(supervise, port)
        assert f"held by pid {family.members['leader'].pid} " in said
        assert "supervise stop other" in said
        assert family.living == set(family.members)
        stop(first)


# A launcher that dies, and its engine, which has renamed itself.
_ORPHAN = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from supervise.demo.family import set_title
if os.fork():
    os._exit(0)
set_title(sys.argv[2])
print(os.getpid(), flush=True)
while True: signal.pause()
"""


@contextmanager
def _not_a_reaper() -> Iterator[None]:
    """What is orphaned meanwhile goes to init, as on a host without a test run in between."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    try:
        yield
    finally:
        kernel.become_subreaper()


@contextmanager
def orphan(supervise: Supervise, title: str) -> Iterator[ProcessId]:
    """A process that nobody marked, with this title and without a launcher."""
    as_user: dict[str, Any] = {} if supervise.uid is None else {"user": supervise.uid, "group": supervise.uid}
    command = [supervise.python, "-c", _ORPHAN, str(supervise.code), title]
    with (
        _not_a_reaper(),
        subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True, **as_user) as launcher,
    ):
        pid = int(_first_line(launcher.stdout))
        assert launcher.wait(10) == 0
    target = procfs.identify(pid)
    assert target is not None
    try:
        yield target
    finally:
        signals.send(target, signal.SIGKILL)
        wait_gone([target])


@pytest.fixture
def apart(short_dir: Path) -> Iterator[Supervise]:
    """A user of our own where we may choose: a slate of somebody else on this host ends his own orphans, not ours."""
    launched = Supervise(short_dir, uid=_FIRST_UID + secrets.randbelow(1000) if os.geteuid() == 0 else None)
    yield launched
    launched.close()


class TestLeftovers:
    def test_unmarked_engine_whose_launcher_is_gone(self, apart: Supervise, port: int) -> None:
        with orphan(apart, "VLLM::EngineCore") as engine, orphan(apart, "VLLM::EngineCare") as namesake:
            found = procfs.read(engine.pid)
            assert found is not None
            assert (found.argv, found.marker) == (("VLLM::EngineCore",), None)
            if found.ppid != 1:
                pytest.skip(f"orphans go to pid {found.ppid} here, not to pid 1")
            launched, _ = start(apart, port)
            assert f"ended   pid {engine.pid} VLLM::EngineCore  (orphan of vllm, " in launched.stderr
            assert not alive(engine)
            assert alive(namesake)
            stop(launched)

    def test_socket_file_that_nobody_listens_on(self, supervise: Supervise, port: int) -> None:
        path, told = supervise.base / "s", supervise.family("server")
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(str(path))
        # Binding fails if the file is still there.
        code = (
            "import os, signal, socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.bind(sys.argv[2])\ns.listen()\n"
            f"open({str(told.path)!r}, 'w').write(f'leader {{os.getpid()}}\\nready\\n')\nsignal.pause()\n"
        )
        server = (supervise.python, "-c", code, "--uds", path)
        launched = supervise.start("--profile", "vllm", "--name", "X", "--grace", 1, *server)
        launched.wait_said(f"removed {path}")
        told.wait_ready()
        stop(launched)
        told.wait_gone()

    def test_recorded_segment_goes_and_somebody_elses_stays(self, apart: Supervise, port: int) -> None:
        left, family = start(apart, port, "--shm", 4096)
        segment = _only_segment_of(family.members["leader"])
        recorded = apart.attempt() / "attempt.json"
        wait_until(
            lambda: list(segment.file) in json.loads(recorded.read_text())["segments"], failure=recorded.read_text
        )
        foreign = Path(shm.DIRECTORY) / f"psm_{secrets.token_hex(4)}"
        try:
            foreign.write_bytes(b"x" * 4096)
            # The same owner, too: only the record tells them apart.
            os.chown(foreign, segment.uid, -1)
            _kill_everything_but(left)
            assert family.survivors == []
            assert segment.file in {found.file for found in shm.segments()}
            cleaned = apart.run("clean", "--name", "X")
            assert cleaned.popen.returncode == 0
            assert f"removed /dev/shm/{segment.name} " in cleaned.stderr
            assert segment.file not in {found.file for found in shm.segments()}
            assert foreign.exists()
            assert foreign.name not in cleaned.stderr
        finally:
            foreign.unlink()


def _only_segment_of(leader: ProcessId) -> Segment:
    mapped = shm.mapped_by(leader.pid) or frozenset()
    (segment,) = [segment for segment in shm.segments() if segment.file in mapped]
    return segment


def _kill_everything_but(launched: Launched, *kept: str) -> None:
    """SIGKILL to supervise and all below it, Python's own helpers included: nobody has a moment to tidy up.

    Those with a title in `kept`, and their children, live on.
    """
    below = procfs.descendants(procfs.scan(environ=False), launched.popen.pid)
    spared = {process.pid for process in below if process.title in kept}
    doomed = [launched.id, *(p.id for p in below if p.pid not in spared and p.ppid not in spared)]
    for signum in (signal.SIGSTOP, signal.SIGKILL):
        for target in doomed:
            signals.send(target, signum)
    assert launched.wait() == -signal.SIGKILL
    wait_gone(doomed)
    reap()
