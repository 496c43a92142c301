"""`-d` with real processes: what goes on without the terminal, what comes back to it, and `attach`."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
from collections.abc import Iterator

import pytest

from supervise.host import procfs, signals, tty
from supervise.model.process import ProcessId
from tests.support.faults import enter
from tests.support.launcher import Supervise
from tests.support.session import Session
from tests.support.waiting import wait_gone, wait_until

GRACE = ("--name", "X", "--grace", 1)


@pytest.fixture
def detached(supervise: Supervise) -> Iterator[Supervise]:
    """Whatever goes on is ended."""
    yield supervise
    if supervise.runs():
        supervise.run("stop", "X", "--now")
        there = [supervise.status().get(who) for who in ("supervisor", "keeper")]
        wait_gone([ProcessId(each["pid"], each["ticks"]) for each in there if each])


def server(supervise: Supervise, port: int, *options: object) -> list[str]:
    return supervise.standin("--load-s", 0.05, *options, port=port, pids=supervise.tmp / "pids")


def test_it_comes_back_once_the_server_is_launched(detached: Supervise, port: int) -> None:
    launched = detached.run("-d", *GRACE, *server(detached, port, "--load-s", 1))
    assert launched.popen.returncode == 0
    assert detached.status()["state"] == "starting"
    supervisor = detached.identity("supervisor")
    assert supervisor != launched.id
    assert "slate    X: clean" in launched.stderr
    assert f"detached run X goes on without this terminal: supervise {supervisor}" in launched.stderr
    for told in ("server.log", "supervise attach X", "supervise wait X --ready", "supervise stop X"):
        assert told in launched.stderr
    there = procfs.read(supervisor.pid)
    assert there is not None
    assert there.sid not in (os.getsid(0), supervisor.pid)
    assert {os.readlink(f"/proc/{supervisor.pid}/fd/{fd}") for fd in (1, 2)} == {
        str(detached.run_directory() / "console.log")
    }
    assert detached.run("wait", "X", "--ready", "--timeout", 30).popen.returncode == 0
    assert detached.run("stop", "X").popen.returncode == 0


@pytest.mark.parametrize("how", ["closed", "SIGHUP to the session"])
def test_it_outlives_the_terminal(detached: Supervise, screen: Session, port: int, how: str) -> None:
    screen.start("-d", *GRACE, *server(detached, port), shell='"$@"; echo came back; sleep 600')
    screen.wait_seen("came back")
    supervisor, leader = detached.identity("supervisor"), detached.identity("leader")
    if how == "closed":
        screen.hang_up()
    for process in procfs.scan().values():
        if process.sid == screen.id.pid:
            signals.send(process.id, signal.SIGHUP)
    assert screen.popen is not None
    screen.popen.wait(30)
    assert detached.run("wait", "X", "--ready", "--timeout", 30).popen.returncode == 0
    assert signals.alive(supervisor)
    assert signals.alive(leader)
    with socket.create_connection(("127.0.0.1", port), 5):
        pass


def test_attach_shows_what_it_said_and_says_until_it_ends(detached: Supervise, port: int) -> None:
    assert detached.run("-d", *GRACE, *server(detached, port)).popen.returncode == 0
    left, stays = [detached.start("attach") for _ in range(2)], detached.start("attach", "X")
    wait_until(lambda: all("ready    in" in each.stdout for each in (*left, stays)), failure=detached.said)
    for each, key in zip(left, (signal.SIGINT, signal.SIGQUIT), strict=True):
        each.send(key)
        assert each.wait() == 0
        assert "run X goes on" in each.stderr
    assert stays.popen.poll() is None
    assert detached.run("stop", "X").popen.returncode == 0
    assert stays.wait() == 143
    assert "verified 0 processes left" in stays.stdout
    over = detached.run("attach", "X")
    assert over.popen.returncode == 3
    assert "verified 0 processes left" in over.stdout


def test_one_that_was_not_detached_has_no_console(supervise: Supervise, port: int) -> None:
    launched = supervise.start(*GRACE, *server(supervise, port))
    supervise.wait_state("ready")
    (supervise.run_directory() / "console.log").write_text("of an earlier one\n")
    refused = supervise.run("attach", "X")
    assert refused.popen.returncode == 2
    assert "was not detached" in refused.stderr
    launched.send(signal.SIGTERM)
    launched.wait()


def test_what_never_came_to_a_launch_comes_back(detached: Supervise, port: int) -> None:
    assert detached.run("-d", *GRACE, "no-such-program").popen.returncode == 127
    assert detached.run("-d", "--tty", *GRACE, "true").popen.returncode == 2
    assert detached.run("-d", "--profile", "no-such", *GRACE, "true").popen.returncode == 2
    assert detached.runs() == []
    with socket.socket() as foreign:
        foreign.bind(("127.0.0.1", port))
        foreign.listen()
        refused = detached.run("-d", "--slate-timeout", 0, *GRACE, *server(detached, port))
    assert refused.popen.returncode == 94
    assert "BLOCKED" in refused.stderr
    assert "detached" not in refused.stderr


def test_one_that_is_live_is_left_its_console(detached: Supervise, port: int) -> None:
    assert detached.run("-d", *GRACE, *server(detached, port)).popen.returncode == 0
    refused = detached.run("-d", *GRACE, *server(detached, port))
    assert refused.popen.returncode == 94
    assert "run X is live" in refused.stderr
    assert "attempt  1" in (detached.run_directory() / "console.log").read_text()


def test_a_refused_replacement_leaves_it_its_console(detached: Supervise, port: int) -> None:
    assert detached.run("-d", *GRACE, *server(detached, port)).popen.returncode == 0
    first = detached.identity("supervisor")
    wait_until(lambda: procfs.age_s(first.ticks) > 1.2)
    with socket.socket() as foreign:
        foreign.bind(("127.0.0.1", 0))
        foreign.listen()
        refused = detached.run("-d", "--replace", *GRACE, *server(detached, foreign.getsockname()[1]))
    assert refused.popen.returncode == 94
    assert "nothing was touched: run X goes on" in refused.stderr
    assert detached.identity("supervisor") == first
    assert not (detached.run_directory() / "console.log.1").exists()


@pytest.mark.root
def test_on_a_full_disk_it_is_heard_all_the_same(supervise: Supervise, port: int) -> None:
    def fill() -> None:
        enter(supervise.state, "1m", None)
        ballast = supervise.state / "supervise" / "ballast"
        ballast.parent.mkdir(mode=0o700)
        (supervise.state / "supervise" / "X" / "attempts").mkdir(mode=0o700, parents=True)
        fd = os.open(ballast, os.O_WRONLY | os.O_CREAT)
        with contextlib.suppress(OSError):
            while os.write(fd, b"x" * 4096):
                pass

    refused = supervise.start("-d", *GRACE, *server(supervise, port), preexec_fn=fill)
    assert refused.wait() == 94
    assert "REFUSED disk: state directory" in refused.stderr
    assert "nothing was launched" in refused.stderr


def test_replace_goes_with_it(detached: Supervise, port: int) -> None:
    assert detached.run("-d", *GRACE, *server(detached, port)).popen.returncode == 0
    first = detached.identity("supervisor")
    wait_until(lambda: procfs.age_s(first.ticks) > 1.2)
    assert detached.run("-d", "--replace", *GRACE, *server(detached, port)).popen.returncode == 0
    wait_gone([first])
    assert detached.identity("supervisor") != first
    assert "verified 0 processes left" in (detached.run_directory() / "console.log.1").read_text()


def test_ctrl_c_before_the_launch_takes_it_back(detached: Supervise, port: int) -> None:
    with socket.socket() as foreign:
        foreign.bind(("127.0.0.1", port))
        foreign.listen()
        launched = detached.start("-d", "--slate-timeout", 60, *GRACE, *server(detached, port))
        detached.wait_state("sweeping")
        other = detached.identity("supervisor")
        # It may not have come to listen to signals yet; then the first one ends it all the same.
        launched.send(signal.SIGINT)
        assert launched.wait() in (94, 130)
    wait_gone([other])


def test_a_caller_that_reads_what_it_writes_is_let_go(detached: Supervise, port: int) -> None:
    """`$(supervise -d …)` and ssh wait until nobody holds the other end of their pipe."""
    reading, kept = os.pipe()
    launched = detached.start("-d", *GRACE, *server(detached, port), pass_fds=(kept,))
    os.close(kept)
    assert launched.wait() == 0
    assert tty.ready(reading, select.POLLHUP), "somebody still holds the other end"
    os.close(reading)
    assert detached.run("status", "X").popen.returncode == 0
