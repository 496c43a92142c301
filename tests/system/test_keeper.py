"""The keeper with real, hostile process trees: whatever ends it all, nothing is left.

test_negative_control.py shows that the same trees do survive a plain `Popen` and a killed process group.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervise.group.ending import Deadlines
from supervise.group.handle import Adoption, Keeper
from supervise.group.leftovers import Leftovers
from supervise.host import procfs, signals
from supervise.model.process import ProcessId
from tests.support.family import Family
from tests.support.hydra import ROLES
from tests.support.launcher import hydra
from tests.support.leaks import reap
from tests.support.readable import ROOT
from tests.support.waiting import DEADLINE_S, wait_gone, wait_until

QUICK = Deadlines(grace_s=0.4, term_s=0.3, tracker_s=0.2, kill_s=5.0)
# Everything that a tree needs to be ended by force, in one.
WORST = ("ignore-all", "setsid", "double-fork", "env-cleared", "renamed", "stopped", "grandchildren")


class Group:
    """A keeper with a hydra in it, and what it has said so far."""

    def __init__(self, directory: Path, family: Family) -> None:
        self.family = family
        self.log = directory / "server.log"
        self.keeper_log = directory / "keeper.log"
        self.keeper = Keeper(log=str(self.keeper_log))
        self.events: list[dict[str, Any]] = []

    def spawn(self, *options: str, deadlines: Deadlines = QUICK, env: dict[str, str] | None = None) -> Group:
        command = hydra(*options, pids=self.family.path)
        self.keeper.spawn(
            command[0],
            tuple(command),
            dict(os.environ) if env is None else env,
            log=str(self.log),
            deadlines=deadlines,
            runtime_dir=None,
            owner="",
        )
        return self

    def ready(self) -> Group:
        self.family.wait_ready(failure=self.log)
        return self

    def wait_event(self, name: str) -> dict[str, Any]:
        """Wait for an event of the keeper; fails when the keeper is gone without having told it."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            for event in self.events:
                if event["event"] == name:
                    return event
            assert time.monotonic() < deadline, f"no {name!r} among {self.events}"
            select.select([self.keeper.channel], [], [], 0.5)
            news = self.keeper.events()
            assert news is not None, f"the keeper is gone, no {name!r} among {self.events}"
            self.events.extend(news)

    def ended(self) -> dict[str, Any]:
        """The verdict of the keeper, checked against what the processes themselves have told."""
        ended = self.wait_event("ended")
        assert ended["survivors"] == []
        assert self.family.survivors == []
        return ended

    def close(self) -> None:
        self.keeper.close()
        wait_gone([self.keeper.id], 15.0)
        reap()


@pytest.fixture
def group(short_dir: Path, family: Family) -> Iterator[Group]:
    made = Group(short_dir, family)
    yield made
    made.close()


class TestStop:
    @pytest.mark.parametrize("role", ROLES)
    def test_reaches_every_role(self, group: Group, role: str) -> None:
        group.spawn(role).ready()
        group.keeper.stop(QUICK)
        group.ended()
        assert group.wait_event("leader")["status"] == -signal.SIGTERM

    def test_reaches_all_of_them_together(self, group: Group) -> None:
        group.spawn("--leader-ignores-term", *ROLES).ready()
        group.keeper.stop(QUICK)
        group.ended()

    def test_kills_a_leader_that_is_stuck(self, group: Group) -> None:
        group.spawn("--leader-ignores-term", "plain").ready()
        group.keeper.stop(QUICK)
        ended = group.ended()
        assert group.wait_event("leader")["status"] == -signal.SIGKILL
        assert ended["seconds"] >= QUICK.grace_s

    def test_kills_a_leader_that_is_stopped(self, group: Group) -> None:
        group.spawn("plain").ready()
        signals.send(group.family.members["leader"], signal.SIGSTOP)
        group.keeper.stop(QUICK)
        group.ended()

    def test_does_not_wait_for_patience_when_told_to_kill(self, group: Group) -> None:
        patient = Deadlines(grace_s=600.0, term_s=600.0)
        group.spawn("--leader-ignores-term", *WORST, deadlines=patient).ready()
        group.keeper.stop(patient)
        assert group.wait_event("stage")["stage"] == "leader"
        group.keeper.escalate()
        group.ended()

    def test_asks_politely_first(self, group: Group) -> None:
        group.spawn("plain").ready()
        group.keeper.stop(Deadlines(grace_s=60.0, term_s=60.0))
        ended = group.ended()
        assert [signum for _, signum in ended["sent"]] == [signal.SIGTERM, signal.SIGTERM]
        assert ended["sent"][0][0] == group.family.members["leader"].pid


class TestLeaderDies:
    @pytest.mark.parametrize("role", ROLES)
    def test_the_rest_is_ended(self, group: Group, role: str) -> None:
        group.spawn(role).ready()
        signals.send(group.family.members["leader"], signal.SIGKILL)
        group.ended()
        assert group.wait_event("leader")["status"] == -signal.SIGKILL

    def test_the_rest_is_ended_when_it_exits(self, group: Group) -> None:
        group.spawn("--leader-exits", "7", *WORST)
        group.ended()
        assert group.wait_event("leader")["status"] == 7

    def test_end_of_an_orphan_is_none_of_its_business(self, group: Group) -> None:
        group.spawn("plain", "double-fork").ready()
        orphan = group.family.members["double-fork"]
        signals.send(orphan, signal.SIGKILL)
        wait_until(lambda: procfs.identify(orphan.pid) != orphan)
        assert group.family.living == {"leader", "plain"}
        group.keeper.stop(QUICK)
        assert group.ended()["sent"][0] == [group.family.members["leader"].pid, signal.SIGTERM]
        assert group.wait_event("leader")["status"] == -signal.SIGTERM


class TestHolderGoes:
    """The keeper alone is left: it has the group end by itself."""

    @pytest.mark.parametrize("role", ROLES)
    def test_end_of_file_ends_every_role(self, group: Group, role: str) -> None:
        group.spawn(role).ready()
        group.keeper.close()
        group.family.wait_gone()
        wait_gone([group.keeper.id])

    @pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
    def test_keeper_that_is_asked_to_stop_ends_its_group_first(self, group: Group, signum: int) -> None:
        group.spawn("plain", "setsid").ready()
        signals.send(group.keeper.id, signum)
        group.ended()

    def test_sigkill_of_the_holder_ends_everything(self, short_dir: Path, family: Family) -> None:
        """The holder is a process of its own, killed with the keeper busy with nothing: as the OOM killer would."""
        holder = subprocess.Popen(
            [sys.executable, "-c", _HOLDER, str(ROOT), str(short_dir), str(family.path), *WORST],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert holder.stdout is not None
            keeper = procfs.identify(int(holder.stdout.readline().split()[0]))
            assert keeper is not None
            family.wait_ready()
        finally:
            holder.kill()
            holder.communicate()
        family.wait_gone()
        wait_gone([keeper])
        reap()

    def test_sigkill_of_the_holders_whole_group_and_session_ends_everything(
        self, short_dir: Path, family: Family
    ) -> None:
        """As a job scheduler would: the keeper is in neither."""
        holder = subprocess.Popen(
            [sys.executable, "-c", _HOLDER, str(ROOT), str(short_dir), str(family.path), *WORST],
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            family.wait_ready()
        finally:
            os.killpg(holder.pid, signal.SIGKILL)
            holder.communicate()
        family.wait_gone()
        reap()


class TestKeeperDies:
    def test_group_falls_to_the_holder_who_can_end_it(self, group: Group) -> None:
        """The test's own process is a subreaper, as supervise is."""
        group.spawn(*WORST, "plain").ready()
        for helper in (group.keeper.guard, group.keeper.id):
            signals.send(helper, signal.SIGKILL)
        wait_until(lambda: group.keeper.events() is None)
        assert group.family.living == {"leader", "plain", "grandchild", *WORST}
        adoption = Adoption(QUICK, Leftovers(frozenset()), keeper=group.keeper, childless=_childless)
        while (delay := adoption.step()) is not None:
            time.sleep(delay)
        survivors, left, _ = adoption.result()
        assert survivors == ()
        assert left.remaining == []
        assert group.family.survivors == []


class TestGuard:
    """The holder is the tests' own process here: for the guard it is supervise."""

    def test_ends_the_group_when_holder_and_keeper_are_killed_together(self, short_dir: Path, family: Family) -> None:
        with _held(short_dir, family) as (holder, keeper, _):
            _kill_together(holder, keeper)
        family.wait_gone()
        reap()

    def test_killed_with_them_it_leaves_the_group_alive(self, short_dir: Path, family: Family) -> None:
        with _held(short_dir, family) as (holder, keeper, guard):
            members = set(family.members)
            _kill_together(holder, keeper, guard)
        assert family.living == members
        family.kill()
        family.wait_gone()
        reap()

    def test_killed_alone_it_is_not_missed(self, group: Group) -> None:
        group.spawn(*WORST).ready()
        signals.send(group.keeper.guard, signal.SIGKILL)
        wait_gone([group.keeper.guard])
        group.keeper.stop(QUICK)
        group.ended()

    def test_cannot_be_asked_to_go(self, group: Group) -> None:
        group.spawn("plain").ready()
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signals.send(group.keeper.guard, signum)
        group.keeper.stop(QUICK)
        group.ended()
        group.keeper.close()
        wait_gone([group.keeper.guard])

    def test_holds_the_lock_for_as_long_as_there_may_be_members(self, group: Group, short_dir: Path) -> None:
        with (short_dir / "lock").open("w") as lock:
            group.close()
            group.keeper = Keeper(keep_open=(lock.fileno(),))
        assert str(short_dir / "lock") in _open_files(group.keeper.guard.pid)


@contextlib.contextmanager
def _held(directory: Path, family: Family) -> Iterator[tuple[ProcessId, ...]]:
    """A process of its own that holds the worst of trees: its identity, its keeper's and its guard's."""
    command = [sys.executable, "-c", _HOLDER, str(ROOT), str(directory), str(family.path), *WORST]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as holder:
        assert holder.stdout is not None
        keeper, guard = holder.stdout.readline().split()
        family.wait_ready()
        found = [procfs.identify(int(pid)) for pid in (holder.pid, keeper, guard)]
        yield tuple(who for who in found if who is not None)


def _kill_together(*targets: ProcessId) -> None:
    """Without a moment in which one can see the other die."""
    for signum in (signal.SIGSTOP, signal.SIGKILL):
        for target in targets:
            signals.send(target, signum)
    wait_gone(targets)


class TestSpawn:
    def test_failure_is_told_with_its_reason(self, group: Group) -> None:
        group.keeper.spawn(
            "/no/such/program", ("x",), {}, log=str(group.log), deadlines=QUICK, runtime_dir=None, owner=""
        )
        assert group.wait_event("failed")["errno"] == 2

    def test_leader_leads_a_session_and_ignores_no_signal(self, group: Group) -> None:
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            group.close()
            group.keeper = Keeper()
        finally:
            signal.signal(signal.SIGHUP, before)
        group.spawn().ready()
        leader = procfs.read(group.family.members["leader"].pid)
        assert leader is not None
        assert (leader.sid, leader.pgid, leader.ppid) == (leader.pid, leader.pid, group.keeper.id.pid)
        status = Path(f"/proc/{leader.pid}/status").read_text()
        ignored = int(next(line.split()[1] for line in status.splitlines() if line.startswith("SigIgn:")), 16)
        assert not ignored >> (signal.SIGHUP - 1) & 1
        group.keeper.stop(QUICK)
        group.ended()

    def test_arguments_and_output_arrive_byte_for_byte(self, group: Group) -> None:
        odd = os.fsdecode(b"\xff \xc3\xa9'\"\\\n")
        code = "import os, sys; os.write(1, os.fsencode(sys.argv[1])); os.write(2, os.environb[b'ODD'])"
        group.keeper.spawn(
            sys.executable,
            (sys.executable, "-c", code, odd),
            {**os.environ, "ODD": odd},
            log=str(group.log),
            deadlines=QUICK,
            runtime_dir=None,
            owner="",
        )
        assert group.wait_event("leader")["status"] == 0
        assert group.log.read_bytes() == os.fsencode(odd) * 2

    def test_what_the_keeper_holds_for_us_does_not_reach_the_server(self, group: Group, short_dir: Path) -> None:
        with (short_dir / "lock").open("w") as lock:
            group.close()
            group.keeper = Keeper(keep_open=(lock.fileno(),))
        group.spawn().ready()
        leader = group.family.members["leader"].pid
        assert str(short_dir / "lock") in _open_files(group.keeper.id.pid)
        assert str(short_dir / "lock") not in _open_files(leader)
        channel = procfs.sockets_of(group.keeper.id.pid)
        assert channel
        assert not channel & (procfs.sockets_of(leader) or set())
        group.keeper.stop(QUICK)
        group.ended()

    def test_keeper_has_no_stream_of_ours(self, group: Group) -> None:
        """A terminal or a pipe of ours would take it away at the very moment that it is for."""
        group.spawn().ready()
        streams = [_link(group.keeper.id.pid, fd) for fd in range(3)]
        assert streams == ["/dev/null", str(group.keeper_log), str(group.keeper_log)]


_HOLDER = f"""
import sys
sys.path.insert(0, sys.argv[1])
import os, signal
from supervise.group.ending import Deadlines
from supervise.group.handle import Keeper
directory, pids, roles = sys.argv[2], sys.argv[3], sys.argv[4:]
keeper = Keeper(log=directory + "/keeper.log")
command = (sys.executable, sys.argv[1] + "/tests/support/hydra.py", "--tell", pids, *roles)
deadlines = Deadlines(grace_s={QUICK.grace_s}, term_s={QUICK.term_s}, tracker_s={QUICK.tracker_s})
log = directory + "/server.log"
keeper.spawn(sys.executable, command, dict(os.environ), log=log, deadlines=deadlines, runtime_dir=None, owner="")
print(keeper.id.pid, keeper.guard.pid, flush=True)
while True:
    signal.pause()
"""


def _childless() -> bool:
    """Reap orphans of the tests' process; true when the tree that fell to it is gone."""
    reap()
    return not [p for p in procfs.descendants(procfs.scan(cmdline=False, environ=False), os.getpid()) if not p.gone]


def _open_files(pid: int) -> list[str]:
    return [target for fd in os.listdir(f"/proc/{pid}/fd") if (target := _link(pid, int(fd)))]


def _link(pid: int, fd: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/fd/{fd}")
    except FileNotFoundError:
        return None
