"""What signals mean to supervise and to its server, sent as people, shells, terminals and managers send them."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from supervise.host import procfs, signals
from supervise.model.process import ProcessId
from tests.support.family import Family
from tests.support.launcher import Launched, Supervise
from tests.support.waiting import DEADLINE_S, describe, wait_gone, wait_until

NOT_READY = 90
# One of each way to be hard to stop, and one that somebody else has stopped before.
ROLES = ("plain", "setsid", "double-fork", "env-cleared", "ignore-term", "grandchildren", "stopped")


# A leader and a worker that say which signals reach them. SIGRTMIN comes after all others: whoever has told of that
# one has told of all that were sent before it (signal(7), real-time signals; Python runs handlers in that order).
_LISTENER = """
import os, signal, sys
tell = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
role = "leader"
def say(what):
    os.write(tell, f"{what} {os.getpid()}\\n".encode())
for name in ("SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGRTMIN"):
    signal.signal(getattr(signal, name), lambda _, __, name=name: say(f"{role}-{name}"))
reader, writer = os.pipe()
if os.fork() == 0:
    role = "worker"
    say(role)
    os.close(writer)
else:
    os.close(writer)
    os.read(reader, 1)
    say(role)
    os.write(tell, b"ready\\n")
while True:
    signal.pause()
"""


@pytest.fixture(autouse=True)
def _as_from_a_terminal() -> Iterator[None]:
    """A shell starts background jobs with SIGINT ignored; what we start must not inherit that."""
    asking = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
    before = [signal.signal(signum, signal.SIG_DFL) for signum in asking[1:]]
    interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for signum, handler in zip(asking, (interrupt, *before), strict=True):
        signal.signal(signum, handler)


def start_tree(
    supervise: Supervise, *options: object, roles: tuple[str, ...] = ROLES, **popen: Any
) -> tuple[Launched, Family]:
    """A hydra behind the command line, all its members there."""
    family = supervise.family()
    hydra = supervise.hydra(*roles, pids=family.path)
    launched = supervise.start("--name", "X", "--grace", 0.5, *options, *hydra, **popen)
    family.wait_ready(failure=supervise.said)
    return launched, family


def state(target: ProcessId) -> str:
    """The letter of proc(5); a dash for one that is gone."""
    process = procfs.read(target.pid, cmdline=False, environ=False)
    return process.state if process is not None and process.id == target else "-"


def wait_stopped(*targets: ProcessId) -> None:
    wait_until(lambda: all(state(t) == "T" for t in targets), failure=lambda: [describe(t) for t in targets])


def wait_continued(*targets: ProcessId) -> None:
    wait_until(lambda: all(state(t) in "SR" for t in targets), failure=lambda: [describe(t) for t in targets])


class TestSuspension:
    def test_all_members_and_supervise_stop_and_go_on(self, supervise: Supervise) -> None:
        launched, family = start_tree(supervise)
        others = [member for role, member in family.members.items() if role != "stopped"]
        wait_continued(*others)
        launched.send(signal.SIGTSTP)
        wait_stopped(launched.id, *family.members.values())
        launched.send(signal.SIGCONT)
        wait_continued(launched.id, *others)
        assert state(family.members["stopped"]) == "T", "it was stopped by somebody else, who may still want it so"
        launched.send(signal.SIGTERM)
        assert launched.wait() == -signal.SIGTERM
        assert family.survivors == []

    def test_can_be_repeated(self, supervise: Supervise) -> None:
        launched, family = start_tree(supervise, roles=("plain",))
        for _ in range(3):
            launched.send(signal.SIGTSTP)
            wait_stopped(launched.id, *family.members.values())
            launched.send(signal.SIGCONT)
            wait_continued(launched.id, *family.members.values())

    def test_sigkill_of_the_stopped_supervise_ends_the_group(self, supervise: Supervise) -> None:
        launched, family = start_tree(supervise)
        contained = [supervise.identity("keeper"), *family.members.values()]
        launched.send(signal.SIGTSTP)
        wait_stopped(launched.id, *family.members.values())
        launched.send(signal.SIGKILL)
        assert launched.wait() == -signal.SIGKILL
        wait_gone(contained)

    def test_sigterm_while_stopped_counts_once_it_is_continued(self, supervise: Supervise) -> None:
        launched, family = start_tree(supervise)
        launched.send(signal.SIGTSTP)
        wait_stopped(launched.id, *family.members.values())
        launched.send(signal.SIGTERM)
        launched.send(signal.SIGCONT)
        assert launched.wait() == -signal.SIGTERM
        assert family.survivors == []

    def test_time_spent_stopped_does_not_count(self, supervise: Supervise, port: int) -> None:
        """Were it to count, nothing would be left of the timeout when it goes on."""
        family = supervise.family()
        server = supervise.standin("--load-s", 600, port=port, pids=family.path)
        launched = supervise.start("--profile", "vllm", "--name", "X", "--ready-timeout", 4, *server)
        leader = family.wait_for("leader")
        wait_until(lambda: supervise.status().get("leader"))
        launched.send(signal.SIGTSTP)
        wait_stopped(launched.id, leader)
        with pytest.raises(subprocess.TimeoutExpired):
            launched.popen.wait(5.0)
        launched.send(signal.SIGCONT)
        wait_continued(launched.id)
        with pytest.raises(subprocess.TimeoutExpired):
            launched.popen.wait(0.5)
        assert "not ready in time" not in launched.stderr
        launched.wait_said("not ready in time")
        assert launched.wait() == NOT_READY


class TestPassing:
    def test_reach_the_leader_and_only_it(self, supervise: Supervise) -> None:
        family = supervise.family()
        launched = supervise.start("--name", "X", sys.executable, "-c", _LISTENER, family.path)
        family.wait_ready(failure=supervise.said)
        wait_until(lambda: supervise.status().get("leader"))
        for signum in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH):
            launched.send(signum)
            family.wait_for(f"leader-{signum.name}")
        for role in ("leader", "worker"):
            signals.send(family.members[role], signal.SIGRTMIN)
            family.wait_for(f"{role}-SIGRTMIN")
        assert {told for told in family.members if told.startswith("worker-")} == {"worker-SIGRTMIN"}
        launched.send(signal.SIGTERM)
        assert launched.wait() == -signal.SIGTERM
        assert family.survivors == []


class TestAsking:
    @pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
    def test_verified_stop_then_dies_of_that_signal(self, supervise: Supervise, signum: signal.Signals) -> None:
        launched, family = start_tree(supervise)
        launched.send(signum)
        assert launched.wait() == -signum
        assert family.survivors == []
        outcome = supervise.outcome()
        assert (outcome["outcome"], outcome["signal"], outcome["verified"]) == ("asked", signum, True)

    @pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
    def test_the_second_one_kills_at_once(self, supervise: Supervise, signum: signal.Signals) -> None:
        launched, family = start_tree(supervise, "--grace", 600, "--", roles=("ignore-term",))
        launched.send(signum)
        launched.wait_said(f"stop     {signum.name}")
        launched.send(signum)
        assert launched.wait() == -signum
        assert family.survivors == []

    def test_ignored_sighup_is_nobodys_business(self, supervise: Supervise) -> None:
        """As under nohup(1). What is asked for next is answered: the signal before it has had its effect by then."""
        launched, family = start_tree(supervise, preexec_fn=_ignore_hangup)
        launched.send(signal.SIGHUP)
        launched.send(signal.SIGTSTP)
        wait_stopped(launched.id)
        launched.send(signal.SIGCONT)
        assert family.living == {*ROLES, "leader", "grandchild"}
        launched.send(signal.SIGTERM)
        assert launched.wait() == -signal.SIGTERM
        assert supervise.outcome()["signal"] == signal.SIGTERM
        assert family.survivors == []


def _ignore_hangup() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


class TestStartedOtherwise:
    def test_as_a_background_job(self, supervise: Supervise) -> None:
        """Such a job ignores SIGINT and SIGQUIT (POSIX, Shell Command Language, 2.11), its server does not."""
        family = supervise.family()
        shell = '"$@" & echo supervise $! >> "$TOLD"; wait $!; exit $?'
        with in_shell(supervise, shell, family) as popen:
            family.wait_ready(failure=supervise.said)
            job = family.wait_for("supervise")
            signals.send(job, signal.SIGINT)
            signals.send(job, signal.SIGQUIT)
            signals.send(job, signal.SIGTSTP)
            wait_stopped(job)
            signals.send(job, signal.SIGCONT)
            assert family.living == {"supervise", "leader", "plain", "setsid"}
            assert signal.SIGINT not in ignored(family.members["leader"])
            signals.send(job, signal.SIGTERM)
            assert popen.wait(DEADLINE_S) == 128 + signal.SIGTERM
        assert family.survivors == []
        assert supervise.outcome()["verified"] is True

    @pytest.mark.parametrize("closed", ["<&-", ">&- 2>&-", "<&- >&- 2>&-"])
    @pytest.mark.parametrize("tty", [(), ("--tty",)], ids=["", "tty"])
    def test_without_standard_streams(self, supervise: Supervise, closed: str, tty: tuple[str, ...]) -> None:
        family = supervise.family()
        with in_shell(supervise, f'exec "$@" {closed}', family, *tty) as popen:
            family.wait_ready(failure=supervise.said)
            popen.send_signal(signal.SIGTERM)
            assert popen.wait(DEADLINE_S) == -signal.SIGTERM
        assert family.survivors == []
        assert supervise.outcome()["verified"] is True


@contextlib.contextmanager
def in_shell(supervise: Supervise, shell: str, family: Family, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A shell command line in which `"$@"` is supervise with a small tree."""
    hydra = supervise.hydra("plain", "setsid", pids=family.path)
    command = [supervise.python, "-m", "supervise", *options, "--name", "X", "--grace", "1", *hydra]
    env = supervise.env | {"TOLD": str(family.path)}
    with subprocess.Popen(["sh", "-c", shell, "sh", *command], env=env, cwd=supervise.base) as popen:
        try:
            yield popen
        finally:
            popen.kill()
            family.kill()


def ignored(target: ProcessId) -> set[int]:
    """SigIgn of /proc/PID/status (proc(5))."""
    with open(f"/proc/{target.pid}/status", encoding="ascii") as file:
        (mask,) = (line.split()[1] for line in file if line.startswith("SigIgn:"))
    return {number + 1 for number in range(64) if int(mask, 16) >> number & 1}
