"""What the hostile roles are good for: ways of ending a server other than ours leave them alive."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator

import pytest

from tests.support.family import Family
from tests.support.hydra import ROLES
from tests.support.launcher import hydra
from tests.support.waiting import wait_until


class TestNegativeControl:
    """What the roles are good for: other ways leave them alive."""

    @pytest.fixture
    def plain(self, family: Family) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
        started: list[subprocess.Popen[bytes]] = []

        def start(*roles: str) -> subprocess.Popen[bytes]:
            started.append(subprocess.Popen(hydra(*roles, pids=family.path), start_new_session=True))
            family.wait_ready()
            return started[-1]

        yield start
        family.kill()
        for popen in started:
            popen.wait(10)

    @pytest.mark.parametrize("role", ROLES)
    def test_killing_the_leader_leaves_every_role(
        self, plain: Callable[..., subprocess.Popen[bytes]], family: Family, role: str
    ) -> None:
        popen = plain(role)
        popen.kill()
        popen.wait(10)
        assert family.living == set(family.members) - {"leader"} != set()

    def test_killing_the_process_group_leaves_those_that_left_it(
        self, plain: Callable[..., subprocess.Popen[bytes]], family: Family
    ) -> None:
        popen = plain(*ROLES)
        os.killpg(popen.pid, signal.SIGKILL)
        popen.wait(10)
        left = {"setsid", "setpgid", "double-fork", "grandchild"}
        wait_until(lambda: family.living == left, failure=lambda: family.living)
