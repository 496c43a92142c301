"""Each tier of containment by itself: what it adds is there, and is what holds."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from supervise.group.enclosure import Enclosure
from supervise.host import cgroupfs, procfs, signals
from supervise.model.process import ProcessId
from tests.support.launcher import Launched, Supervise
from tests.support.readable import ROOT, readable_copy, readable_python
from tests.support.waiting import wait_gone, wait_until

TOKEN = "0123456789ab"
# Cgroups are the host's: no other test has a run of this name.
RUN = "tiers-leaf"
# A server that says where it is, with its first instruction, and then sits there with a child that detached itself.
_SERVER = textwrap.dedent(
    """
    import os, signal, sys, time
    print("cgroup", [line.strip() for line in open("/proc/self/cgroup") if line.startswith("0::")][0][3:], flush=True)
    print("pid", os.getpid(), os.readlink("/proc/self"), flush=True)
    for signum in (signal.SIGUSR1, signal.SIGINT):
        signal.signal(signum, lambda number, _: print("got", number, flush=True))
    if os.fork() == 0:
        os.setsid()
        middle = os.getpid()
        if os.fork():
            os._exit(0)
        while os.getppid() == middle:
            time.sleep(0.01)
        print("detached", open("/proc/self/stat").read().split()[3], flush=True)
        print("up", flush=True)
        while True:
            signal.pause()
    os.wait()
    while True:
        signal.pause()
    """
)


@pytest.fixture
def leaf() -> Iterator[str]:
    made = cgroupfs.make_leaf("test", TOKEN)
    yield made
    cgroupfs.remove(made)


@contextmanager
def inside(leaf: str, code: str) -> Iterator[subprocess.Popen[str]]:
    """A Python that runs in the leaf, and has said something."""
    enter = f"from supervise.host import cgroupfs; cgroupfs.enter({leaf!r})\n"
    with subprocess.Popen([sys.executable, "-c", enter + code], stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


class TestLeaf:
    pytestmark = pytest.mark.root
    sleeper = "print('up', flush=True)\nimport signal\nwhile True: signal.pause()"

    def test_lists_and_kills_what_was_born_in_it(self, leaf: str) -> None:
        code = "import os, signal\nos.fork() or os.setsid()\nprint('up', flush=True)\nwhile True: signal.pause()"
        with inside(leaf, code) as process:
            members = wait_until(lambda: len(cgroupfs.pids(leaf)) == 2 and cgroupfs.pids(leaf))
            assert process.pid in members
            assert cgroupfs.populated(leaf)
            cgroupfs.kill(leaf)
            assert process.wait(10) == -signal.SIGKILL
        wait_until(lambda: not cgroupfs.populated(leaf))
        assert cgroupfs.pids(leaf) == frozenset()

    def test_is_removed_with_the_groups_that_a_server_made_in_it(self, leaf: str) -> None:
        os.makedirs(f"{leaf}/a/b")
        assert cgroupfs.remove(leaf)
        assert not os.path.exists(leaf)
        assert not cgroupfs.populated(leaf)
        assert cgroupfs.pids(leaf) == frozenset()

    def test_stays_while_somebody_is_in_it(self, leaf: str) -> None:
        with inside(leaf, self.sleeper):
            assert not cgroupfs.remove(leaf)
            assert cgroupfs.populated(leaf)

    def test_empty_ones_of_the_same_run_are_removed_and_no_others(self, leaf: str) -> None:
        base = os.path.dirname(leaf)
        other = os.path.join(base, "supervise-test-0123456789ab-0123456789ab")
        os.mkdir(other)
        try:
            _make_again()
            assert os.path.exists(leaf), "somebody may be about to enter it"
            os.utime(leaf, (0, 0))
            os.utime(other, (0, 0))
            _make_again()
            assert not os.path.exists(leaf)
            assert os.path.exists(other)
        finally:
            os.rmdir(other)

    def test_a_used_one_of_the_same_run_stays(self, leaf: str) -> None:
        with inside(leaf, self.sleeper):
            os.utime(leaf, (0, 0))
            _make_again()
            assert os.path.exists(leaf)

    def test_members_are_found_there_that_descend_from_somebody_else(self, leaf: str) -> None:
        with inside(leaf, self.sleeper) as process, subprocess.Popen(["sleep", "60"]) as root:
            assert [member.pid for member in Enclosure(root.pid, bool, leaf).living()] == [process.pid]
            assert Enclosure(root.pid, bool).living() == []
            root.kill()


def _make_again() -> None:
    cgroupfs.remove(cgroupfs.make_leaf("test", "ba9876543210"))


@pytest.mark.root
class TestRefusal:
    def test_read_only(self) -> None:
        code = "from supervise.host import cgroupfs; cgroupfs.make_leaf('x', '0123456789ab')"
        script = f'mount -o remount,ro,bind {cgroupfs.own()} && exec "$@"'
        boxed = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", sys.executable, "-c", code]
        done = subprocess.run(boxed, cwd=ROOT, capture_output=True, text=True, check=False, timeout=30)
        assert f"NoCgroupError: {cgroupfs.own()} is mounted read-only" in done.stderr

    def test_a_tier_that_is_refused_degrades_with_one_line(self, supervise_as_nobody: Supervise) -> None:
        launched = supervise_as_nobody.start("--name", "X", "sleep", "60")
        launched.wait_said("ready    in")
        told = re.findall(r"^note     no cgroup tier: .* is not delegated to us$", launched.stderr, re.MULTILINE)
        assert len(told) == 1
        assert supervise_as_nobody.status()["tiers"] == ["subreaper"]
        assert "not delegated" in supervise_as_nobody.record()["tiers_refused"]["cgroup"]

    def test_a_tier_that_is_required_and_refused_launches_nothing(self, supervise_as_nobody: Supervise) -> None:
        done = supervise_as_nobody.run("--name", "X", "--require-tier", "cgroup", "sleep", "60")
        assert done.popen.returncode == 125
        (line,) = done.stderr.splitlines()
        assert line.startswith("supervise: --require-tier cgroup: ")
        assert "--scope" in line
        assert supervise_as_nobody.runs() == []


def start(supervise: Supervise, *options: str) -> tuple[Launched, dict[str, list[str]]]:
    """Start the server; what it has said, by first word."""
    launched = supervise.start(*options, "--name", "X", "--grace", "1", supervise.python, "-c", _SERVER)
    launched.wait_said("ready    in")
    wait_until(lambda: "up\n" in supervise.log(), failure=supervise.log)
    return launched, {line.split()[0]: line.split()[1:] for line in supervise.log().splitlines()}


def test_two_options_that_contradict_each_other_are_told(supervise: Supervise) -> None:
    done = supervise.run("--no-cgroup", "--require-tier", "cgroup", "sleep", "60")
    assert done.popen.returncode == 2
    assert "contradict" in done.stderr
    assert supervise.runs() == []


@pytest.mark.root
class TestCgroup:
    def test_the_server_is_born_in_its_leaf_and_we_are_not(self, supervise: Supervise) -> None:
        launched, said = start(supervise)
        leaf = supervise.record()["cgroup"]
        assert leaf.endswith(said["cgroup"][0])
        assert said["cgroup"][0] != "/"
        members = cgroupfs.pids(leaf)
        assert len(members) == 2
        assert not members & {launched.id.pid, supervise.identity("keeper").pid, supervise.identity("guard").pid}
        assert supervise.status()["tiers"] == ["subreaper", "cgroup"]
        launched.send(signal.SIGTERM)
        assert launched.wait() == -signal.SIGTERM
        assert not os.path.exists(leaf)

    def test_a_refused_launch_leaves_no_leaf(self, supervise: Supervise) -> None:
        script = supervise.base / "script"
        script.write_text("no interpreter line")
        script.chmod(0o755)
        assert supervise.run("--name", RUN, str(script)).popen.returncode == 126
        assert supervise.record()["cgroup"]
        assert _leaves() == []

    def test_a_refused_slate_leaves_no_leaf(self, supervise: Supervise, port: int) -> None:
        with socket.socket() as other:
            other.bind(("127.0.0.1", port))
            other.listen()
            server = supervise.standin(port=port)
            done = supervise.run("--name", RUN, "--profile", "vllm", "--slate-timeout", "1", *server)
            assert done.popen.returncode == 94
        assert _leaves() == []

    def test_it_can_be_done_without(self, supervise: Supervise) -> None:
        _, said = start(supervise, "--no-cgroup")
        assert supervise.record()["cgroup"] is None
        assert supervise.status()["tiers"] == ["subreaper"]
        assert said["cgroup"] == Path("/proc/self/cgroup").read_text().rpartition("0::")[2].split()


def _leaves() -> list[str]:
    return [name for name in os.listdir(cgroupfs.own()) if name.startswith(f"supervise-{RUN}-")]


class TestPidNamespace:
    def test_the_server_sees_itself_and_its_orphans_fall_to_our_init(self, user: Supervise) -> None:
        launched, said = start(user, "--pidns", "--require-tier", "pidns")
        assert said["pid"][0] == said["pid"][1] != str(user.identity("leader").pid)
        assert said["detached"] == ["1"]
        assert user.status()["tiers"][-1] == "pidns"
        launched.send(signal.SIGTERM)
        assert launched.wait() == -signal.SIGTERM

    @pytest.mark.parametrize(("option", "survive"), [("--pidns", False), ("--no-cgroup", True)])
    def test_the_kernel_ends_it_with_the_keeper_when_nobody_else_can(
        self, user: Supervise, option: str, survive: bool
    ) -> None:
        """Supervise and guard are stopped: what happens now is not their doing."""
        launched, _ = start(user, option)
        keeper = user.identity("keeper")
        below = [p.id for p in procfs.descendants(procfs.scan(), keeper.pid)]
        assert len(below) == (2 if survive else 3)
        others = [launched.id, user.identity("guard")]
        for target in others:
            signals.send(target, signal.SIGSTOP)
        signals.send(keeper, signal.SIGKILL)
        if survive:
            wait_gone([keeper])
            assert all(signals.alive(target) for target in below)
        else:
            wait_gone(below)
        for target in reversed(others):
            signals.send(target, signal.SIGCONT)
        assert launched.wait() == 125
        wait_gone(below)

    def test_the_leaders_status_comes_out(self, user: Supervise) -> None:
        done = user.run("--pidns", "--name", "X", user.python, "-c", "raise SystemExit(7)")
        assert done.popen.returncode == 7
        done = user.run("--pidns", "--name", "X", user.python, "-c", "import os; os.kill(os.getpid(), 9)")
        assert done.popen.returncode in (128 + 9, 1)

    def test_what_cannot_be_executed_is_told(self, user: Supervise) -> None:
        script = user.base / "script"
        script.write_text("no interpreter line")
        script.chmod(0o755)
        done = user.run("--pidns", "--name", "X", str(script))
        assert done.popen.returncode == 126
        assert "no interpreter line" in done.stderr

    def test_its_init_passes_signals_on(self, user: Supervise) -> None:
        start(user, "--pidns")
        leader = procfs.read(user.identity("leader").pid)
        assert leader is not None
        init = procfs.identify(leader.ppid)
        assert init is not None
        signals.send(init, signal.SIGUSR1)
        wait_until(lambda: f"got {int(signal.SIGUSR1)}" in user.log(), failure=user.log)

    def test_killing_its_init_is_the_end_of_the_leader(self, user: Supervise) -> None:
        launched, _ = start(user, "--pidns")
        leader = user.identity("leader")
        process = procfs.read(leader.pid)
        assert process is not None
        signals.send(procfs.identify(process.ppid) or ProcessId(0, 0), signal.SIGKILL)
        assert launched.wait() == 128 + signal.SIGKILL
        wait_gone([leader])

    @pytest.mark.root
    def test_where_it_is_refused_the_reason_is_the_kernels(self) -> None:
        """No mount may be made below a /proc that is partly hidden, as in most containers."""
        code = "from supervise.host import namespaces; print(namespaces.refusal())"
        script = 'mount -t tmpfs none /proc/sys && exec setpriv --reuid=65534 --regid=65534 --clear-groups "$@"'
        boxed = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", readable_python(), "-c"]
        env = {"PYTHONPATH": str(readable_copy()), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run([*boxed, code], capture_output=True, text=True, check=False, timeout=30, env=env)
        assert done.stdout.strip() not in ("", "None"), done.stderr
