"""Members that no signal of ours ends: named with what they hold, never waited for without end, never forgotten.

A task in a frozen cgroup v1 freezer is as unkillable as one that waits for a broken driver: state D, SIGKILL pending
until it is thawed (the kernel's cgroup-v1/freezer-subsystem.rst).
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervise.host import procfs, signals
from supervise.model.process import ProcessId
from tests.support.family import Family
from tests.support.launcher import NOBODY, Launched, Supervise
from tests.support.waiting import describe, wait_gone, wait_until

pytestmark = pytest.mark.root

SLATE, SURVIVORS = 94, 95
KILL_S = 15.0
_FREEZER = Path("/sys/fs/cgroup/freezer")

# A leader whose worker has the port, as an engine has its GPU.
_SERVER = """
import os, signal, socket, sys
tell = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
reader, writer = os.pipe()
role = "leader" if os.fork() else "worker"
if role == "worker":
    server = socket.create_server(("127.0.0.1", int(sys.argv[2])))
    os.write(tell, f"worker {os.getpid()}\\n".encode())
os.close(writer)
if role == "leader":
    os.read(reader, 1)
    os.write(tell, f"leader {os.getpid()}\\nready\\n".encode())
while True:
    signal.pause()
"""

# A leader with a child that runs a program of the caller's choice.
_WITH_CHILD = """
import os, signal, sys
tell = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
child = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
os.write(tell, f"child {child}\\nleader {os.getpid()}\\nready\\n".encode())
while True:
    signal.pause()
"""

# A leader that ends in its own way when it is asked to.
_OBEDIENT = """
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
with open(sys.argv[1], "a") as tell:
    tell.write(f"leader {os.getpid()}\\nready\\n")
while True:
    signal.pause()
"""

# Attaches to a process and holds it until its standard input ends (ptrace(2); PTRACE_ATTACH is 16).
_DEBUGGER = """
import ctypes, os, sys
pid = int(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
if libc.ptrace(16, pid, None, None):
    sys.exit(os.strerror(ctypes.get_errno()))
os.waitpid(pid, 0)
print("attached", flush=True)
sys.stdin.read()
"""


class Freezer:
    """A freezer of our own: whoever is in it is in state D until `thaw`."""

    def __init__(self) -> None:
        self._directory = _FREEZER / f"supervise-test-{os.getpid()}"
        self._directory.mkdir()

    def freeze(self, target: ProcessId) -> None:
        (self._directory / "cgroup.procs").write_text(str(target.pid))
        self._state.write_text("FROZEN")
        wait_until(lambda: self._state.read_text() == "FROZEN\n", failure=self._state.read_text)

    def thaw(self) -> None:
        self._state.write_text("THAWED")

    def close(self) -> None:
        self.thaw()
        # Whoever ends is taken out of it on the way, which may take a moment.
        wait_until(self._removed)

    @property
    def _state(self) -> Path:
        return self._directory / "freezer.state"

    def _removed(self) -> bool:
        try:
            self._directory.rmdir()
        except OSError:
            return False
        return True


@pytest.fixture
def freezer(supervise: Supervise) -> Iterator[Freezer]:
    """Thawed before `supervise` is torn down."""
    if not (_FREEZER / "cgroup.procs").exists():
        pytest.skip("no cgroup v1 freezer is mounted here")
    made = Freezer()
    yield made
    made.thaw()
    supervise.close()
    made.close()


def start(supervise: Supervise, code: str, *arguments: object, grace_s: float = 0.5) -> tuple[Launched, Family]:
    """A Python that runs this code behind the command line; returns when it has told who is there."""
    family = supervise.family()
    server = [supervise.python, "-c", code, family.path, *arguments]
    launched = supervise.start("--name", "X", "--grace", grace_s, *server)
    family.wait_ready(failure=supervise.said)
    return launched, family


class TestUninterruptible:
    def test_is_given_up_and_named_and_refuses_the_next_launch(
        self, supervise: Supervise, freezer: Freezer, port: int
    ) -> None:
        launched, family = start(supervise, _SERVER, port, grace_s=600)
        worker = family.members["worker"]
        freezer.freeze(worker)
        for _ in range(2):  # the second one is told to be impatient
            launched.send(signal.SIGTERM)
            launched.wait_said("stop     SIGTERM")
        assert launched.wait(KILL_S + 10) == SURVIVORS
        assert family.living == {"worker"}
        assert "the keeper does not answer" not in launched.stderr

        outcome = supervise.outcome()
        (survivor,) = outcome["survivors"]
        assert survivor.pop("seconds") >= KILL_S
        assert survivor.pop("title").startswith(supervise.python)
        assert survivor == {
            "pid": worker.pid,
            "ticks": worker.ticks,
            "state": "D",
            "wchan": "__refrigerator",
            "ports": [port],
            "devices": [],
            "uid": os.geteuid(),
        }
        assert (outcome["exit_status"], outcome["verified"], outcome["signal"]) == (SURVIVORS, False, None)
        (named,) = (line for line in launched.stderr.splitlines() if f"survived  pid {worker.pid} " in line)
        assert re.search(rf"state D in __refrigerator, after 1\d s, holds port {port}$", named)

        refused = supervise.run("--name", "X", "--slate-timeout", 1, "sh", "-c", "exit 7", deadline_s=KILL_S + 10)
        assert refused.popen.returncode == SLATE
        assert f"pid {worker.pid}" in refused.stderr
        assert "nothing was launched" in refused.stderr

        freezer.thaw()
        wait_gone([worker])
        assert supervise.run("--name", "X", "sh", "-c", "exit 7").popen.returncode == 7


class TestAnotherUsers:
    def test_is_named_with_what_helps_and_not_waited_for(self, supervise_as_nobody: Supervise) -> None:
        supervise = supervise_as_nobody
        become_root = _owned_by_root(supervise, "setpriv")
        launched, family = start(
            supervise, _WITH_CHILD, become_root, "--reuid", 0, "--clear-groups", shutil.which("sleep"), 600
        )
        child = family.members["child"]
        wait_until(lambda: _real_uid(child) == 0, failure=lambda: describe(child))
        began = time.monotonic()
        launched.send(signal.SIGTERM)
        assert launched.wait() == SURVIVORS
        assert time.monotonic() - began < KILL_S / 2
        assert family.living == {"child"}
        (survivor,) = supervise.outcome()["survivors"]
        assert (survivor["pid"], survivor["uid"], survivor["state"]) == (child.pid, 0, "S")
        assert f"it belongs to uid 0: sudo kill -KILL {child.pid}" in launched.stderr

    def test_is_ended_where_the_kernel_lets_us(self, supervise_as_nobody: Supervise) -> None:
        """A program that is root's in effect alone is still its caller's to signal (kill(2))."""
        supervise = supervise_as_nobody
        launched, family = start(supervise, _WITH_CHILD, _owned_by_root(supervise, "sleep"), 600)
        child = family.members["child"]
        wait_until(lambda: _status(child, "Uid")[:2] == [str(NOBODY), "0"], failure=lambda: describe(child))
        launched.send(signal.SIGTERM)
        assert launched.wait() == -signal.SIGTERM
        assert family.survivors == []


class TestStopped:
    @pytest.mark.parametrize("role", ["leader", "worker"])
    def test_under_a_debugger(self, supervise: Supervise, port: int, role: str) -> None:
        """What it is sent waits for its tracer, and when it is dead its parent cannot reap it (ptrace(2))."""
        launched, family = start(supervise, _SERVER, port)
        target = family.members[role]
        with subprocess.Popen(
            [sys.executable, "-c", _DEBUGGER, str(target.pid)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as debugger:
            assert debugger.stdout is not None
            assert debugger.stdout.readline() == b"attached\n"
            launched.send(signal.SIGTERM)
            assert launched.wait() == -signal.SIGTERM
            zombie = procfs.read(target.pid)
            assert zombie is not None
            assert zombie.id == target
            assert zombie.gone
            debugger.communicate()
        assert family.survivors == []
        assert supervise.outcome()["verified"] is True

    def test_leader_gets_its_sigterm(self, supervise: Supervise) -> None:
        launched, family = start(supervise, _OBEDIENT, grace_s=600)
        leader = family.members["leader"]
        signals.send(leader, signal.SIGSTOP)
        wait_until(lambda: _status(leader, "State")[0] == "T", failure=lambda: describe(leader))
        launched.send(signal.SIGTERM)
        assert launched.wait() == -signal.SIGTERM
        assert supervise.outcome()["leader_status"] == 3
        assert family.survivors == []


def _owned_by_root(supervise: Supervise, name: str) -> Path:
    """A copy of a program that makes whoever runs it root."""
    program = shutil.which(name)
    if program is None:
        pytest.skip(f"no {name}")
    copy = supervise.base / name
    shutil.copyfile(program, copy)
    copy.chmod(0o4755)
    return copy


def _real_uid(target: ProcessId) -> int:
    return int(_status(target, "Uid")[0])


def _status(target: ProcessId, field: str) -> list[str]:
    """The words of a field of /proc/PID/status (proc(5))."""
    for line in Path(f"/proc/{target.pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return line.split()[1:]
    return []
