"""Evidence through the command line: taken when a group is ended for a fault of its own, and only then."""

from __future__ import annotations

import json
import signal
import textwrap
from pathlib import Path
from typing import Any

import pytest

from supervise.host import signals
from supervise.model.exits import Exit
from tests.support.family import Family
from tests.support.launcher import Launched, Supervise

# A server that never becomes ready: a leader and a worker, each waiting in a function with a name.
_STUCK = textwrap.dedent(
    """
    import os, signal, sys
    path, deaf = sys.argv[1], "deaf" in sys.argv

    def tell(role):
        with open(path, "a") as file:
            file.write(f"{role} {os.getpid()}\\n" if role != "ready" else "ready\\n")

    def worker_waits_here():
        while True:
            signal.pause()

    def leader_waits_here():
        while True:
            signal.pause()

    if deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    tell("leader")
    if os.fork() == 0:
        tell("worker")
        tell("ready")
        worker_waits_here()
    leader_waits_here()
    """
)


def start(supervise: Supervise, port: int, *words: str, ready_s: float = 600.0) -> tuple[Launched, Family]:
    """Start it with the profile of an engine, so that no line and no answer means not ready."""
    family = supervise.family()
    options = ("--profile", "vllm", "--name", "X", "--grace", "0.3", "--ready-timeout", str(ready_s))
    server = [supervise.python, "-c", _STUCK, str(family.path), *words, "--port", str(port)]
    launched = supervise.start(*options, *server)
    family.wait_ready(failure=launched.stderr)
    return launched, family


def evidence(supervise: Supervise) -> Path:
    return supervise.attempt() / "evidence"


def members(supervise: Supervise, name: str) -> dict[int, dict[str, Any]]:
    """What the JSON says of each member, by pid."""
    found = json.loads((evidence(supervise) / f"{name}.json").read_text())
    return {member["pid"]: member for member in found["members"]}


class TestTaken:
    def test_before_anything_touches_a_server_that_is_not_ready_in_time(self, supervise: Supervise, port: int) -> None:
        launched, family = start(supervise, port, ready_s=2.0)
        assert launched.wait() == Exit.NOT_READY
        found = members(supervise, "before-stop")
        assert set(found) == {member.pid for member in family.members.values()}
        for role in ("leader", "worker"):
            stacks = found[family.members[role].pid]["stacks"]
            assert f"{role}_waits_here" in (evidence(supervise) / stacks).read_text()
        # They obeyed: nobody had to be looked at a second time.
        assert not (evidence(supervise) / "before-kill.json").exists()
        assert "evidence" in launched.stderr

    def test_once_more_of_those_that_do_not_obey(self, supervise: Supervise, port: int) -> None:
        launched, family = start(supervise, port, "deaf", ready_s=2.0)
        assert launched.wait() == Exit.NOT_READY
        assert set(members(supervise, "before-kill")) == {member.pid for member in family.members.values()}

    def test_of_members_that_outlive_their_leader(self, supervise: Supervise, port: int) -> None:
        launched, family = start(supervise, port, "deaf")
        signals.send(family.members["leader"], signal.SIGKILL)
        assert launched.wait() == 128 + signal.SIGKILL
        found = members(supervise, "before-kill")
        worker = found[family.members["worker"].pid]
        assert "worker_waits_here" in (evidence(supervise) / worker["stacks"]).read_text()

    @pytest.mark.root
    def test_by_faulthandler_where_py_spy_is_not_and_that_is_no_cause(
        self, supervise_as_nobody: Supervise, port: int
    ) -> None:
        supervise = supervise_as_nobody
        supervise.extra_env["PATH"] = "/nonexistent"
        launched, _ = start(supervise, port, "deaf", ready_s=2.0)
        assert launched.wait() == Exit.NOT_READY
        assert "SIGABRT to 2 processes" in launched.stderr
        assert "leader_waits_here" in supervise.log()
        assert "worker_waits_here" in supervise.log()
        cause = supervise.outcome()["cause"]
        assert "Aborted" in supervise.log()
        assert "Aborted" not in json.dumps(cause)
        assert not list(Path(supervise.base).rglob("core*"))


class TestNotTaken:
    def test_when_it_was_asked_to_stop(self, supervise: Supervise, port: int) -> None:
        launched, _ = start(supervise, port, "deaf")
        launched.send(signal.SIGTERM)
        assert launched.wait() == -signal.SIGTERM
        assert not evidence(supervise).exists()

    def test_when_supervise_is_gone_who_would_take_it(self, supervise: Supervise, port: int) -> None:
        """The keeper ends the group at once: there is nobody to wait for."""
        launched, family = start(supervise, port, "deaf")
        launched.send(signal.SIGKILL)
        family.wait_gone()
        assert not evidence(supervise).exists()


def test_a_full_evidence_directory_is_no_reason_not_to_end(supervise: Supervise, port: int) -> None:
    launched, family = start(supervise, port, "deaf", ready_s=3.0)
    evidence(supervise).write_text("somebody made a file of it")
    assert launched.wait() == Exit.NOT_READY
    assert family.survivors == []
