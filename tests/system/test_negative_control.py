"""What the hostile roles are good for: ways of ending a server other than ours leave them alive."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator

import pytest

from supervise.group.members import living_below
from supervise.host import procfs, signals
from tests.support.family import Family
from tests.support.hydra import ALL, FOR_ROOT, HOP_COMM, RESTLESS, STORM_COMM, any_left, members
from tests.support.hydra_census import hunt_down
from tests.support.launcher import hydra
from tests.support.leaks import reap
from tests.support.waiting import wait_gone, wait_until

CROWD = 20
EVERY_ROLE = [pytest.param(role, marks=[pytest.mark.root] if role in FOR_ROOT else []) for role in ALL]
STAY = tuple(role for role in ALL if role not in (*RESTLESS, *FOR_ROOT))

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def plain(family: Family) -> Iterator[Start]:
    """Starts a tree that nobody supervises; whatever it has become is ended at tear-down."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*roles: str) -> subprocess.Popen[bytes]:
        command = hydra("--crowd", str(CROWD), *roles, pids=family.path)
        started.append(subprocess.Popen(command, start_new_session=True))
        family.wait_ready()
        return started[-1]

    yield start
    family.kill()
    wait_until(lambda: hunt_down(family.path))
    for popen in started:
        popen.wait(10)


class TestNegativeControl:
    """What the roles are good for: other ways leave them alive."""

    @pytest.mark.parametrize("role", EVERY_ROLE)
    def test_killing_the_leader_leaves_every_role(self, plain: Start, family: Family, role: str) -> None:
        popen = plain(role)
        popen.kill()
        popen.wait(10)
        assert family.living == set(members(role, CROWD))
        # Without an environment the lock is lost as well: only exec can do that.
        assert any_left(str(family.path)) or role in ("env-cleared", "ghost")

    def test_killing_the_process_group_leaves_those_that_left_it(self, plain: Start, family: Family) -> None:
        popen = plain(*STAY)
        os.killpg(popen.pid, signal.SIGKILL)
        popen.wait(10)
        left = {"setsid", "setpgid", "double-fork", "grandchild", "ghost"}
        left |= {f"crowd-{number}" for number in range(0, CROWD, 5)}
        wait_until(lambda: family.living == left, failure=lambda: family.living)

    @pytest.mark.parametrize("role", RESTLESS)
    def test_killing_all_that_were_seen_misses_those_born_since(self, plain: Start, family: Family, role: str) -> None:
        """As everything does that lists first and kills then, once."""
        plain(role)
        seen = [process.id for process in living_below(os.getpid())]
        wait_gone(set(seen) - set(family.members.values()))
        for target in seen:
            signals.send(target, signal.SIGKILL)
        wait_gone(seen)
        assert any_left(str(family.path))


class TestRoles:
    """They are what they say."""

    def test_adopted_has_its_parent_from_below_us(self, plain: Start, family: Family) -> None:
        plain("nested-subreaper")
        adopted = procfs.read(family.members["adopted"].pid)
        assert adopted is not None
        assert adopted.ppid == family.members["nested-subreaper"].pid

    def test_ghost_has_nothing_that_leads_to_it(self, plain: Start, family: Family) -> None:
        popen = plain("ghost")
        ghost = procfs.read(family.members["ghost"].pid)
        assert ghost is not None
        assert ghost.ppid == os.getpid(), "the reaper of all orphans, the session that runs this test"
        assert popen.pid not in (ghost.sid, ghost.pgid)
        assert _slurp(ghost.pid, "environ") == b""
        assert {os.readlink(f"/proc/{ghost.pid}/fd/{fd}") for fd in (0, 1, 2)} == {os.devnull}

    def test_traced_is_stopped_by_its_tracer(self, plain: Start, family: Family) -> None:
        plain("traced")
        wait_until(lambda: b"\nState:\tt" in _slurp(family.members["traced"].pid, "status"))
        tracer = family.members["tracer"].pid
        assert f"\nTracerPid:\t{tracer}\n".encode() in _slurp(family.members["traced"].pid, "status")

    def test_zombie_keeper_keeps_one(self, plain: Start, family: Family) -> None:
        plain("zombie-keeper")
        found = procfs.descendants(procfs.scan(), family.members["zombie-keeper"].pid)
        assert [process.state for process in found] == ["Z"]

    @pytest.mark.root
    def test_other_uid_is_another_user(self, plain: Start, family: Family) -> None:
        plain("other-uid")
        other = procfs.read(family.members["other-uid"].pid)
        assert other is not None
        assert other.uid not in (0, None) or b"\nUid:\t65534\t65534\t65534\t65534\n" in _slurp(other.pid, "status")

    def test_storm_changes_its_pids_and_stays_small(self, plain: Start, family: Family) -> None:
        plain("fork-storm")
        looks: list[set[int]] = []

        def seen_three_generations() -> bool:
            reap()
            looks.append({p.pid for p in living_below(os.getpid()) if p.comm == STORM_COMM})
            return len(set().union(*looks)) > 3 * 8

        wait_until(seen_three_generations)
        assert max(map(len, looks)) <= 8

    def test_hop_is_never_the_same_process_twice(self, plain: Start, family: Family) -> None:
        plain("hop-chain")
        seen: set[int] = set()

        def seen_many() -> bool:
            reap()
            seen.update(p.pid for p in living_below(os.getpid()) if p.comm == HOP_COMM)
            return len(seen) > 3

        wait_until(seen_many)


def _slurp(pid: int, name: str) -> bytes:
    with open(f"/proc/{pid}/{name}", "rb") as file:
        return file.read()
