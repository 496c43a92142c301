"""Supervise where containers put it: PID 1 of a PID namespace, or behind a shell that is, its cgroup read-only.

Nothing of a container but its namespaces and mounts is needed, so unshare(1) makes one. When PID 1 ends the kernel
kills whatever is left: who wants to see that it was we who ended the group has to look while PID 1 lives.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervise.host import procfs, signals
from supervise.model.process import Process, ProcessId
from tests.support.hydra import members
from tests.support.hydra_census import Tree
from tests.support.launcher import Launched, Supervise
from tests.support.readable import ROOT
from tests.support.waiting import wait_gone, wait_until

pytestmark = pytest.mark.root

ROLES = ("plain", "setsid", "double-fork", "env-cleared", "ignore-term", "grandchildren")
KEEPER_LOST = 125
ORPHANS = 50

_NAMESPACES = ("--pid", "--mount", "--ipc", "--propagation", "private", "--mount-proc")
_UNSHARE = ("unshare", *_NAMESPACES, "--fork", "--kill-child")
_FURNISH = 'mount -o remount,ro,bind "$CGROUP2"; mount -t tmpfs tmpfs /dev/shm; '
IS_PID_1 = 'exec "$@"'
# The box outlives supervise until its standard input ends.
BEHIND_A_SHELL = '"$@" < /dev/null; status=$?; echo "box: $status"; read _; exit $status'

# A server that detaches short-lived children, and says `ready` when the last of them has gone.
_DETACHING = f"""
import os, signal, sys
tell = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
ticks = open("/proc/self/stat").read().rpartition(")")[2].split()[19]
namespace = os.stat("/proc/self/ns/pid").st_ino
os.write(tell, f"namespace {{namespace}}\\nleader {{os.getpid()}} {{ticks}}\\n".encode())
for _ in range({ORPHANS}):
    reader, writer = os.pipe()
    if os.fork() == 0:
        if os.fork() == 0:
            os.setsid()
        os._exit(0)
    os.close(writer)
    os.read(reader, 1)
    os.close(reader)
    os.wait()
os.write(tell, b"ready\\n")
while True:
    signal.pause()
"""

# Orphans that end once PID 1 is their parent.
_ORPHANING = f"""
import os, time
for _ in range({ORPHANS}):
    if os.fork() == 0:
        if os.fork() == 0:
            while os.getppid() != 1:
                time.sleep(0.001)
            os.write(1, b"orphan\\n")
        os._exit(0)
    os.wait()
"""


def test_a_proc_of_another_namespace_is_refused(supervise: Supervise) -> None:
    """`unshare -p -f` alone: every pid in /proc means somebody else."""
    inside = [sys.executable, "-m", "supervise", "--name", "X", "sleep", "60"]
    boxed = subprocess.run(
        ["unshare", "--pid", "--fork", "--kill-child", *inside],
        env=supervise.env,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert boxed.returncode == KEEPER_LOST
    assert boxed.stderr.splitlines() == [
        "supervise: /proc does not belong to this PID namespace; mount a new one (unshare --mount-proc)"
    ]
    assert supervise.runs() == []


class Box:
    """A PID namespace whose first process is what an entry makes of a command line.

    Args:
        supervise: the command line and its directories.
        entry: shell code in which `"$@"` is the command line.
    """

    def __init__(self, supervise: Supervise, entry: str) -> None:
        self.supervise, self._entry = supervise, entry
        self.tree = Tree(supervise.tmp / "pids")
        self._launched: Launched | None = None

    def start(self, *command: object) -> Launched:
        out, err = self.supervise.base / "box.out", self.supervise.base / "box.err"
        with out.open("wb") as stdout, err.open("wb") as stderr:
            popen = subprocess.Popen(
                [*_UNSHARE, "sh", "-c", _FURNISH + self._entry, "sh", *map(str, command)],
                stdin=subprocess.PIPE,
                stdout=stdout,
                stderr=stderr,
                env=self.supervise.env | {"CGROUP2": _cgroup2()},
                cwd=self.supervise.base,
            )
        self._launched = Launched(popen, out, err)
        return self._launched

    def start_supervise(self, *server: object) -> Launched:
        """Start supervise with a server that tells its pids to our tree; returns when all of it is there."""
        launched = self.start(sys.executable, "-m", "supervise", "--name", "X", "--grace", 0.5, *server)
        self.tree.wait_ready(failure=lambda: launched.stderr)
        wait_until(lambda: self.supervise.status().get("leader"))
        return launched

    def start_tree(self) -> Launched:
        launched = self.start_supervise(*self.supervise.hydra("--tell-namespace", *ROLES, pids=self.tree.path))
        assert self.tree.living == {"leader", *(name for role in ROLES for name in members(role))}
        return launched

    @property
    def popen(self) -> subprocess.Popen[bytes]:
        assert self._launched is not None
        return self._launched.popen

    @property
    def init(self) -> ProcessId:
        """PID 1 of the box, as it is known outside."""
        return self.inside(1)

    def inside(self, pid: int) -> ProcessId:
        """The process that has this pid in the box."""
        (found,) = (process.id for process in self.processes() if _inner_pid(process.pid) == pid)
        return found

    def who(self, who: str) -> ProcessId:
        """`supervisor`, `keeper` or `leader`."""
        return self.inside(self.supervise.status()[who]["pid"])

    def processes(self) -> list[Process]:
        """All in the box, zombies too."""
        return procfs.descendants(procfs.scan(cmdline=False, environ=False), self.popen.pid)

    def zombies(self) -> list[Process]:
        return [process for process in self.processes() if process.gone]

    def wait_emptied(self) -> None:
        """Wait until supervise and all that it started are gone; the shell that is PID 1 is still there."""
        wait_until(lambda: "box: " in self.stdout, failure=lambda: self._launched and self._launched.stderr)
        assert [process.id for process in self.processes()] == [self.init]

    @property
    def stdout(self) -> str:
        """What PID 1 has printed so far."""
        assert self._launched is not None
        return self._launched.stdout

    def orphan(self) -> None:
        """Have processes in the box lose their parents, as those that `docker exec` brings do."""
        into = ["nsenter", "--target", str(self.init.pid), "--pid", "--mount"]
        done = subprocess.run([*into, sys.executable, "-I", "-S", "-c", _ORPHANING], stdout=subprocess.PIPE, check=True)
        assert done.stdout.count(b"orphan") == ORPHANS

    def finish(self, launched: Launched) -> int:
        """Let a shell end, too; the status of the box."""
        assert launched.popen.stdin is not None
        launched.popen.stdin.close()
        return launched.wait()

    def close(self) -> None:
        """Whoever is PID 1, its end is the end of all in the box."""
        if self._launched is not None:
            self.popen.kill()
            self.popen.wait(10.0)
            assert self.popen.stdin is not None
            self.popen.stdin.close()
        self.tree.kill()


def _cgroup2() -> str:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        if " - cgroup2 " in line:
            return line.split()[4]
    pytest.skip("no cgroup v2 is mounted here")


def _inner_pid(pid: int) -> int | None:
    """The pid in its own namespace (proc(5), NSpid: outermost first)."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    return int(text.partition("\nNSpid:")[2].partition("\n")[0].split()[-1])


@pytest.fixture
def box(supervise: Supervise, request: pytest.FixtureRequest) -> Iterator[Box]:
    """Supervise is its PID 1, or is started by it where the test's class says so."""
    made = Box(supervise, getattr(request.cls, "entry", IS_PID_1))
    yield made
    made.close()


class TestTier:
    def test_is_the_subreaper_and_the_reason_is_said_once(self, box: Box) -> None:
        launched = box.start_tree()
        record = box.supervise.record()
        assert record["tiers"] == ["subreaper"]
        assert record["tiers_refused"] == {"cgroup": f"{_cgroup2()} is mounted read-only"}
        assert launched.stderr.count("no cgroup tier") == 1
        assert box.supervise.status()["supervisor"]["pid"] == 1

    def test_that_is_required_and_cannot_be_had_launches_nothing(self, box: Box) -> None:
        launched = box.start(
            sys.executable, "-m", "supervise", "--require-tier", "cgroup", "sh", "-c", 'echo > "$HOME/launched"'
        )
        assert launched.wait() == 125
        assert "mounted read-only" in launched.stderr
        assert not (box.supervise.base / "home/launched").exists()


class TestPid1:
    def test_sigterm_ends_the_group_before_it_ends(self, box: Box) -> None:
        """PID 1 is held as soon as it has asked its keeper: who is gone by then was not ended by the kernel."""
        launched = box.start_tree()
        init = box.init
        signals.send(init, signal.SIGTERM)
        launched.wait_said("stop     SIGTERM")
        signals.send(init, signal.SIGSTOP)
        box.tree.wait_gone()
        signals.send(init, signal.SIGCONT)
        assert launched.wait() == 128 + signal.SIGTERM
        outcome = box.supervise.outcome()
        assert (outcome["verified"], outcome["clean"], outcome["exit_status"]) == (True, True, 128 + signal.SIGTERM)

    def test_keeper_is_killed(self, box: Box) -> None:
        launched = box.start_tree()
        signals.send(box.who("keeper"), signal.SIGKILL)
        assert launched.wait() == KEEPER_LOST
        assert box.supervise.outcome()["verified"] is True
        assert box.tree.survivors == []

    def test_leader_dies(self, box: Box) -> None:
        launched = box.start_tree()
        signals.send(box.tree.members["leader"], signal.SIGKILL)
        assert launched.wait() == 128 + signal.SIGKILL
        assert box.supervise.outcome()["verified"] is True
        assert box.tree.survivors == []

    def test_is_killed_from_outside(self, box: Box) -> None:
        """As the container runtime does at the end of its patience; this one is the kernel's work."""
        box.start_tree()
        everybody = [process.id for process in box.processes()]
        signals.send(box.init, signal.SIGKILL)
        wait_gone([*everybody, *box.tree.members.values()])


class TestBehindAShell:
    entry = BEHIND_A_SHELL

    def test_sigterm(self, box: Box) -> None:
        launched = box.start_tree()
        signals.send(box.who("supervisor"), signal.SIGTERM)
        box.wait_emptied()
        assert box.finish(launched) == 128 + signal.SIGTERM
        assert box.supervise.outcome()["verified"] is True

    def test_keeper_is_killed(self, box: Box) -> None:
        launched = box.start_tree()
        signals.send(box.who("keeper"), signal.SIGKILL)
        box.wait_emptied()
        assert box.finish(launched) == KEEPER_LOST

    def test_leader_dies(self, box: Box) -> None:
        launched = box.start_tree()
        signals.send(box.tree.members["leader"], signal.SIGKILL)
        box.wait_emptied()
        assert box.finish(launched) == 128 + signal.SIGKILL

    def test_supervise_is_killed(self, box: Box) -> None:
        box.start_tree()
        signals.send(box.who("supervisor"), signal.SIGKILL)
        box.tree.wait_gone()
        wait_until(lambda: [process.id for process in box.processes() if not process.gone] == [box.init])


class TestFromAnotherNamespace:
    """Whoever shares its state directory only, as a sidecar does; here it is the host."""

    def test_it_is_seen_asked_and_stopped(self, box: Box) -> None:
        launched = box.start_tree()
        (told,) = json.loads(box.supervise.run("status", "X", "--json").stdout)["runs"]
        assert (told["live"], told["elsewhere"], told["members"]) == (True, True, None)
        health = box.supervise.run("healthcheck", "--live", "X")
        assert (health.popen.returncode, "in another PID namespace" in health.stdout) == (0, True)
        refused = box.supervise.run("--name", "X", "true")
        assert refused.popen.returncode == 94
        assert "run X is live in another PID namespace" in refused.stderr
        assert "keeper" not in refused.stderr
        stopped = box.supervise.run("stop", "X")
        assert (stopped.popen.returncode, launched.wait()) == (0, 128 + signal.SIGTERM)
        assert "stopped, verified" in stopped.stderr
        assert box.tree.survivors == []
        assert box.supervise.run("status", "X").popen.returncode == 3

    def test_one_that_cannot_be_asked_is_not_called_stopped(self, box: Box) -> None:
        box.start_tree()
        path = box.supervise.run_directory() / "control.sock"
        wait_until(path.exists)
        path.unlink()
        stopped = box.supervise.run("stop", "X")
        assert stopped.popen.returncode == 125
        assert "another PID namespace, and its control socket does not answer" in stopped.stderr
        assert box.supervise.run("healthcheck", "--live", "X").popen.returncode == 1
        assert box.tree.survivors != []


class TestOrphans:
    def test_of_the_server_are_reaped(self, box: Box) -> None:
        box.start_supervise(sys.executable, "-c", _DETACHING, box.tree.path)
        wait_until(lambda: not box.zombies(), failure=box.zombies)
        assert box.tree.living == {"leader"}

    def test_that_fall_to_pid_1_are_reaped(self, box: Box) -> None:
        launched = box.start_supervise(sys.executable, "-c", _DETACHING, box.tree.path)
        box.orphan()
        wait_until(lambda: not box.zombies(), failure=box.zombies)
        signals.send(box.init, signal.SIGTERM)
        assert launched.wait() == 128 + signal.SIGTERM

    def test_pile_up_below_a_pid_1_that_is_no_init(self, box: Box) -> None:
        """Negative control: without anybody who reaps them, they can be counted."""
        box.start(sys.executable, "-c", "import signal; print('up', flush=True); signal.pause()")
        wait_until(lambda: "up" in box.stdout)
        box.orphan()
        wait_until(lambda: len(box.zombies()) == ORPHANS, failure=box.zombies)
