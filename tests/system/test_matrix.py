"""Every way in which a run can end, on a tree whose every child gets away from a naive supervisor: nothing is left."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from supervise.demo.family import ESCAPES
from supervise.host import procfs, shm, signals, sockets
from supervise.model.litter import FileId
from supervise.model.process import ProcessId
from supervise.model.snapshot import PortState
from tests.support import launcher
from tests.support.family import Family
from tests.support.launcher import Launched, Supervise
from tests.support.readable import ROOT
from tests.support.waiting import wait_gone, wait_until

ENGINE = {"VLLM::EngineCore", "VLLM::Worker"}


@dataclass
class Scene:
    """A stand-in behind the command line, and what it holds on this host."""

    supervise: Supervise
    launched: Launched
    family: Family
    port: int
    segments: frozenset[FileId] = frozenset()
    contained: list[ProcessId] = field(default_factory=list)

    def note_what_it_holds(self) -> Scene:
        """Remember segments and helpers; a check for leftovers of what never was could not fail."""
        leader = self.family.members["leader"]
        self.segments = shm.mapped_by(leader.pid) or frozenset()
        assert self.segments & _existing_segments()
        assert [path for path in self.supervise.tmp.iterdir() if path.is_dir() and any(path.iterdir())]
        assert sockets.probe_port("127.0.0.1", self.port).state is PortState.HELD
        keeper = self.supervise.identity("keeper")
        below = procfs.descendants(procfs.scan(cmdline=False, environ=False), keeper.pid)
        self.contained = [keeper, *(process.id for process in below)]
        assert set(self.family.members.values()) <= set(self.contained)
        return self

    @property
    def guard(self) -> ProcessId:
        return self.supervise.identity("guard")

    def wait_noted(self) -> None:
        """Wait until the attempt's record knows all members: those without any mark of ours cannot be found else."""
        wait_until(
            lambda: (
                {tuple(member) for member in self.supervise.record()["members"]} >= set(self.family.members.values())
            )
        )

    def assert_nothing_left(self) -> None:
        wait_gone([*self.contained, *self.family.refresh().members.values()])
        self.assert_nothing_left_on_disk()
        assert sockets.probe_port("127.0.0.1", self.port).state is PortState.FREE
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(("127.0.0.1", self.port))
            server.listen()

    def assert_nothing_left_on_disk(self) -> None:
        assert not self.segments & _existing_segments()
        assert [path for path in self.supervise.tmp.iterdir() if path.is_dir()] == []


def _existing_segments() -> frozenset[FileId]:
    return frozenset(segment.file for segment in shm.segments())


def start(
    supervise: Supervise, port: int, *options: object, roles: tuple[str, ...] = ESCAPES, grace: float = 1.0
) -> Scene:
    family = supervise.family(f"pids-{len(list(supervise.tmp.iterdir()))}")
    standin = supervise.standin(
        "--load-s", 0.05, "--shm", 4096, "--ipc", 2, "--escape", ",".join(roles), *options, port=port, pids=family.path
    )
    launched = supervise.start("--profile", "vllm", "--name", "X", "--grace", grace, *standin)
    return Scene(supervise, launched, family, port)


def start_ready(
    supervise: Supervise, port: int, *options: object, roles: tuple[str, ...] = ESCAPES, grace: float = 1.0
) -> Scene:
    scene = start(supervise, port, *options, roles=roles, grace=grace)
    scene.launched.wait_said("ready    in")
    scene.family.wait_ready()
    assert set(scene.family.members) == {"leader", *ENGINE, *roles}
    return scene.note_what_it_holds()


@pytest.fixture(autouse=True)
def _interruptible() -> Iterator[None]:
    """A shell starts background jobs with SIGINT ignored; what we start must not inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class TestEveryEnd:
    def test_stop(self, user: Supervise, port: int) -> None:
        scene = start_ready(user, port)
        scene.launched.send(signal.SIGTERM)
        assert scene.launched.wait() == -signal.SIGTERM
        assert scene.family.survivors == []
        scene.assert_nothing_left()
        assert user.outcome()["verified"] is True

    def test_ctrl_c_twice_does_not_wait_for_the_grace(self, user: Supervise, port: int) -> None:
        scene = start_ready(user, port, "--ignore-term", grace=600.0)
        scene.launched.send(signal.SIGINT)
        scene.launched.wait_said("stop     SIGINT")
        assert "leader" in scene.family.living
        scene.launched.send(signal.SIGINT)
        assert scene.launched.wait() == -signal.SIGINT
        assert scene.family.survivors == []
        scene.assert_nothing_left()

    def test_supervise_is_killed(self, user: Supervise, port: int) -> None:
        scene = start_ready(user, port)
        scene.launched.send(signal.SIGKILL)
        assert scene.launched.wait() == -signal.SIGKILL
        scene.assert_nothing_left()

    def test_keeper_is_killed(self, user: Supervise, port: int) -> None:
        scene = start_ready(user, port)
        signals.send(user.identity("keeper"), signal.SIGKILL)
        assert scene.launched.wait() == 125
        assert scene.family.survivors == []
        scene.assert_nothing_left()

    def test_leader_dies_alone(self, user: Supervise, port: int) -> None:
        scene = start_ready(user, port)
        signals.send(scene.family.members["leader"], signal.SIGKILL)
        assert scene.launched.wait() == 128 + signal.SIGKILL
        assert scene.family.survivors == []
        scene.assert_nothing_left()

    def test_stop_while_loading_when_the_first_sigterm_is_lost(self, user: Supervise, port: int) -> None:
        scene = start(user, port, "--hang-at", "load", "--lose-first-term", grace=3.0)
        scene.family.wait_for(ESCAPES[-1])
        leader = scene.note_what_it_holds().family.members["leader"]
        scene.launched.send(signal.SIGTERM)
        assert scene.launched.wait() == -signal.SIGTERM
        assert scene.family.survivors == []
        scene.assert_nothing_left()
        outcome = user.outcome()
        # The one repetition was enough: the leader has ended by itself, long before its grace was over.
        assert outcome["sent"][:2] == [[leader.pid, signal.SIGTERM]] * 2
        assert outcome["leader_status"] == 0


def kill_together(scene: Scene, *who: str) -> None:
    """SIGKILL to these of us, without a moment in which one can see the other die."""
    targets = [scene.launched.id, *(scene.supervise.identity(name) for name in who)]
    for signum in (signal.SIGSTOP, signal.SIGKILL):
        for target in targets:
            signals.send(target, signum)
    assert scene.launched.wait() == -signal.SIGKILL
    wait_gone(targets)


def kill_all_of_us(scene: Scene) -> None:
    scene.wait_noted()
    kill_together(scene, "keeper", "guard")
    assert scene.family.living == set(scene.family.members), "nobody is left who could have ended them"


class TestTwoAreKilled:
    @pytest.mark.parametrize("other", ["keeper", "guard"])
    def test_the_third_ends_everything(self, user: Supervise, port: int, other: str) -> None:
        scene = start_ready(user, port)
        kill_together(scene, other)
        wait_gone([scene.guard])
        scene.assert_nothing_left()

    def test_a_guard_that_dies_is_told_and_not_missed(self, user: Supervise, port: int) -> None:
        scene = start_ready(user, port)
        signals.send(scene.guard, signal.SIGKILL)
        scene.launched.wait_said("the guard was killed")
        scene.launched.send(signal.SIGTERM)
        assert scene.launched.wait() == -signal.SIGTERM
        scene.assert_nothing_left()

    def test_keeper_and_guard_are_killed(self, user: Supervise, port: int) -> None:
        scene = start_ready(user, port)
        targets = [user.identity(name) for name in ("guard", "keeper")]
        for signum in (signal.SIGSTOP, signal.SIGKILL):
            for target in targets:
                signals.send(target, signum)
        assert scene.launched.wait() == 125
        assert scene.family.survivors == []
        scene.assert_nothing_left()


@pytest.mark.root
@pytest.mark.parametrize("options", [(), ("--pidns",)], ids=" ".join)
def test_kill_minus_one_of_a_user_leaves_nothing_and_the_next_start_works(
    short_dir: Path, port: int, options: tuple[str, ...]
) -> None:
    """`kill -9 -1` reaches everything of a user in one step: supervise, guard, keeper, and the server."""
    uid = 61234  # nobody else's, or we would reach them too
    supervise = Supervise(short_dir, uid=uid)
    try:
        family = supervise.family()
        launched = supervise.start(
            *options, "--name", "X", "--grace", "1", *supervise.standin(port=port, pids=family.path)
        )
        launched.wait_said("ready    in")
        subprocess.run(["sh", "-c", "kill -9 -1"], user=uid, group=uid, extra_groups=[], check=False, timeout=20)
        assert launched.wait() == -signal.SIGKILL
        wait_until(lambda: not [p for p in procfs.scan().values() if p.uid == uid and not p.gone])
        again = supervise.start("--name", "X", "--grace", "1", *supervise.standin(port=port))
        again.wait_said("ready    in")
        again.send(signal.SIGTERM)
        assert again.wait() == -signal.SIGTERM
    finally:
        supervise.close()


class TestStrangers:
    def test_what_a_script_started_before_it_became_supervise_is_not_the_group(
        self, user: Supervise, port: int
    ) -> None:
        """`exporter & exec supervise …` in an entry point: its child is ours by descent only."""
        told, family = user.tmp / "stranger", user.family("pids")
        server = user.standin("--load-s", 0.05, "--escape", "setsid,double-fork", port=port, pids=family.path)
        script = f'sh -c "sleep 1000 & wait" & echo $! > {told}; exec "$@"'
        command = [user.python, "-m", "supervise", "--profile", "vllm", "--name", "X", "--grace", "1", *server]
        as_user = {} if user.uid is None else {"user": user.uid, "group": user.uid, "extra_groups": []}
        streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        launched = subprocess.Popen(
            ["sh", "-c", script, "sh", *command], env=user.env, cwd=user.base, **streams, **as_user
        )
        try:
            family.wait_ready()
            user.wait_state("ready")
            stranger = procfs.identify(int(told.read_text()))
            assert stranger is not None
            for role in ("guard", "keeper"):
                signals.send(user.identity(role), signal.SIGKILL)
            assert launched.wait(30) == 125
            assert family.survivors == []
            assert signals.alive(stranger)
        finally:
            launched.kill()
            for left in procfs.descendants(procfs.scan(), int(told.read_text())):
                signals.send(left.id, signal.SIGKILL)
            signals.send(stranger, signal.SIGKILL)


class TestAllAreKilled:
    def test_next_start_ends_what_they_left_and_starts(self, user: Supervise, port: int) -> None:
        left = start_ready(user, port)
        kill_all_of_us(left)
        again = start_ready(user, port, roles=())
        assert left.family.survivors == []
        assert not left.segments & _existing_segments()
        again.launched.send(signal.SIGTERM)
        assert again.launched.wait() == -signal.SIGTERM
        left.assert_nothing_left()
        again.assert_nothing_left()

    def test_a_keeper_that_dies_during_the_slate_launches_nothing(self, user: Supervise, port: int) -> None:
        left = start_ready(user, port, roles=("ignore-term",))
        kill_all_of_us(left)
        again = start(user, port)
        wait_until(lambda: user.identity("supervisor") == again.launched.id)
        signals.send(user.identity("keeper"), signal.SIGKILL)
        assert again.launched.wait() == 125
        assert "killed before the launch" in again.launched.stderr
        assert again.family.refresh().members == {}
        assert user.run("clean").popen.returncode == 0
        left.assert_nothing_left()

    @pytest.mark.parametrize("record", ["", "{}", "\0garbage", None])
    def test_a_record_that_is_lost_does_not_make_them_clean(
        self, user: Supervise, port: int, record: str | None
    ) -> None:
        left = start_ready(user, port, roles=("setsid", "double-fork"))
        kill_all_of_us(left)
        path = user.attempt() / "attempt.json"
        path.unlink() if record is None else path.write_text(record)
        cleaned = user.run("clean")
        assert cleaned.popen.returncode == 0
        assert "writes the log of attempt 1" in cleaned.stderr
        assert left.family.survivors == []

    def test_clean_alone_ends_what_they_left(self, user: Supervise, port: int) -> None:
        # One that ignores SIGTERM costs five seconds, and the test above has it.
        left = start_ready(user, port, roles=tuple(role for role in ESCAPES if role != "ignore-term"))
        kill_all_of_us(left)
        assert user.run("clean").popen.returncode == 0
        assert left.family.survivors == []
        left.assert_nothing_left()


# A keeper in small: it starts a server and ends everything that it sees below itself, with the product's own stop path.
_SMALL_KEEPER = """
import os, subprocess, sys, time
from supervise.group import ending
from supervise.group.members import Members, living_below
from supervise.host import kernel, procfs
if sys.argv[1] == "subreaper":
    kernel.become_subreaper()
server = subprocess.Popen(sys.argv[2:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print("started", flush=True)
sys.stdin.read()
class Below(Members):
    def living(self):
        return living_below(os.getpid())
quick = ending.Deadlines(grace_s=1.0, term_s=0.2)
path = ending.Ending(Below(), procfs.identify(server.pid), quick)
ending.run(path, time.monotonic, time.sleep)
print("empty" if not path.survivors else "survivors", flush=True)
"""


class TestNegativeControl:
    """The tree is as hostile as it claims, and what holds it is what we think holds it."""

    def test_without_supervise_all_but_the_leader_survive_its_end(self, family: Family, port: int) -> None:
        command = launcher.standin("--load-s", 0.05, "--escape", ",".join(ESCAPES), port=port, pids=family.path)
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as leader:
            family.wait_ready()
            leader.kill()
            leader.wait(10)
        assert family.living == {*ENGINE, *ESCAPES}
        family.kill()
        family.wait_gone()

    @pytest.mark.parametrize(("how", "survivors"), [("subreaper", set()), ("plain", {"double-fork"})])
    def test_a_keeper_that_is_no_subreaper_loses_a_double_fork(
        self, family: Family, port: int, how: str, survivors: set[str]
    ) -> None:
        server = launcher.standin("--load-s", 0.05, "--escape", "double-fork", port=port, pids=family.path)
        keeper = subprocess.Popen(
            [sys.executable, "-c", _SMALL_KEEPER, how, *server],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )
        family.wait_ready()
        told, _ = keeper.communicate(timeout=20)
        assert told.split() == ["started", "empty"]
        assert family.living == survivors
        family.kill()
        family.wait_gone()
