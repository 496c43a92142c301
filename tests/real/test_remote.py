"""`supervise -H` against a real sshd: exit statuses, terminals, and every way in which a connection can end."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervise.host import procfs, signals
from tests.support import sshd as sshds
from tests.support.family import Family
from tests.support.launcher import Launched, Supervise
from tests.support.session import Session
from tests.support.sshd import HOST, SHARED, Sshd
from tests.support.waiting import wait_gone, wait_until

pytestmark = pytest.mark.skipif(sshds.PROGRAM is None, reason="no sshd is installed (openssh-server)")

NAMED = ("--name", "X", "--grace", 1)
LONG = {"SUPERVISE_LEASH": "600"}


@pytest.fixture(scope="module")
def sshd() -> Iterator[Sshd]:
    base = Path(tempfile.mkdtemp(prefix="sshd-"))
    running = Sshd(base)
    yield running
    running.close()
    shutil.rmtree(base)


@pytest.fixture
def there(sshd: Sshd, supervise: Supervise) -> Iterator[Supervise]:
    """The command line over here; what it finds over there has the same directories."""
    sshd.serve(supervise)
    yield supervise
    sshd.part()


class Group:
    """A server with a child that gets away, over there."""

    def __init__(self, supervise: Supervise, port: int) -> None:
        self._supervise = supervise
        self.family: Family = supervise.family()
        self.command = supervise.standin(
            "--load-s", 0.05, "--escape", "setsid,double-fork", port=port, pids=self.family.path
        )

    def ready(self) -> Group:
        self._supervise.wait_state("ready")
        self.family.refresh()
        assert len(self.family.living) > 1
        return self

    def wait_gone(self) -> None:
        """All of it, and whoever has kept it."""
        state = self._supervise.status()
        self.family.wait_gone()
        wait_gone([self._supervise.identity(who) for who in ("supervisor", "keeper") if state.get(who)])


@pytest.fixture
def group(there: Supervise, port: int) -> Group:
    return Group(there, port)


def started(there: Supervise, group: Group, *options: object, host: str = HOST, **env: str) -> Launched:
    launched = there.start("-H", host, *NAMED, *options, *group.command, env=LONG | env, start_new_session=True)
    group.ready()
    return launched


def test_status_and_words_arrive(there: Supervise) -> None:
    odd = "a b'c\"d\\e$HOME`f`!g\nh%s\t*;"
    ended = there.run("-H", HOST, "--name", "X", "sh", "-c", "exit 7", odd)
    assert ended.popen.returncode == 7
    assert there.record()["argv"] == ["sh", "-c", "exit 7", odd]
    assert "exit     7" in ended.stderr


def test_answers_come_back_as_they_are(there: Supervise) -> None:
    asked = there.run(f"--host={HOST}", "status", "--json")
    assert asked.popen.returncode == 0
    assert asked.stdout.strip().startswith("{")
    assert asked.stderr == ""


def test_a_death_over_there_is_told(there: Supervise, group: Group) -> None:
    launched = started(there, group)
    assert signals.send(there.identity("supervisor"), signal.SIGKILL) is signals.Sent.DELIVERED
    assert launched.wait() == 128 + signal.SIGKILL
    group.wait_gone()


@pytest.mark.parametrize(("host", "asked"), [(HOST, signal.SIGINT), (SHARED, signal.SIGTERM)])
def test_a_signal_without_a_terminal_is_an_orderly_stop(
    there: Supervise, group: Group, host: str, asked: signal.Signals, sshd: Sshd
) -> None:
    """As from a terminal, or from timeout(1), all of the group over here gets it, ssh among them."""
    launched = started(there, group, host=host)
    os.killpg(launched.popen.pid, asked)
    assert launched.wait() == 128 + asked
    assert f"stop     {asked.name}" in launched.stderr
    assert "verified 0 processes left" in launched.stderr
    assert there.outcome()["clean"]
    group.wait_gone()
    if host == SHARED:
        # What others share as well hears all signals.
        status = Path(f"/proc/{sshd.master()}/status").read_text()
        assert "SigBlk:\t0000000000000000" in status


def test_a_cut_connection_ends_the_group(there: Supervise, group: Group, sshd: Sshd) -> None:
    launched = started(there, group)
    sshds.cut(sshd.session(there.identity("supervisor")))
    assert launched.wait() == 125
    assert f"the connection to {HOST} is lost (ssh ended with 255)" in launched.stderr
    assert f"supervise -H {HOST} status" in launched.stderr
    group.wait_gone()
    assert there.outcome()["clean"]


def test_the_end_of_whoever_has_asked_ends_the_group(there: Supervise, group: Group) -> None:
    launched = started(there, group)
    launched.send(signal.SIGKILL)
    group.wait_gone()
    assert there.outcome()["clean"]


def test_silence_ends_the_group(there: Supervise, group: Group, sshd: Sshd) -> None:
    """A connection that is neither cut nor alive, as after a cable is drawn."""
    launched = started(there, group, SUPERVISE_LEASH="2")
    session = sshd.session(there.identity("supervisor"))
    signals.send(session, signal.SIGSTOP)
    try:
        group.wait_gone()
        assert there.outcome()["clean"]
    finally:
        signals.send(session, signal.SIGCONT)
    assert launched.wait() == 128 + signal.SIGHUP


def test_what_is_detached_stays(there: Supervise, group: Group) -> None:
    launched = there.run("-H", HOST, "-d", *NAMED, *group.command)
    assert launched.popen.returncode == 0
    assert f"supervise -H {HOST} attach X" in launched.stderr
    group.ready()
    stopped = there.run("-H", HOST, "stop", "X")
    assert stopped.popen.returncode == 0
    assert "stopped, verified" in stopped.stderr
    group.wait_gone()


def on_a_terminal(screen: Session, group: Group) -> Session:
    screen.start("-H", HOST, *NAMED, *group.command, shell='exec "$@" 2>&1')
    group.ready()
    return screen


def test_a_terminal_passes_keys_on(there: Supervise, group: Group, screen: Session) -> None:
    on_a_terminal(screen, group).type("\x03")
    assert screen.wait() == 128 + signal.SIGINT
    screen.wait_seen("verified 0 processes left")
    assert screen.current_modes() == screen.modes
    group.wait_gone()


def test_a_signal_for_a_job_of_a_terminal(there: Supervise, group: Group, screen: Session) -> None:
    """Its output is elsewhere, but ssh may ask there for a password: it stays in the group that gets the signal."""
    screen.start("-H", HOST, *NAMED, *group.command, shell='exec "$@" >said 2>&1')
    group.ready()
    os.killpg(screen.id.pid, signal.SIGTERM)
    assert screen.wait() == 128 + signal.SIGTERM
    assert "verified 0 processes left" in (there.base / "said").read_text()
    group.wait_gone()


def test_a_killed_one_below_a_shell_ends_the_group(there: Supervise, group: Group, screen: Session) -> None:
    """The terminal goes on: nothing but our end tells ssh."""
    screen.start("-H", HOST, *NAMED, *group.command, shell='"$@" 2>&1; echo over; read _')
    group.ready()
    (ours,) = (each for each in procfs.scan().values() if each.ppid == screen.id.pid)
    assert signals.send(ours.id, signal.SIGKILL) is signals.Sent.DELIVERED
    screen.wait_seen("over")
    group.wait_gone()
    assert there.outcome()["clean"]
    assert screen.current_modes() == screen.modes


def test_a_terminal_that_is_cut_off_ends_the_group(there: Supervise, group: Group, screen: Session, sshd: Sshd) -> None:
    on_a_terminal(screen, group)
    sshds.cut(sshd.session(there.identity("supervisor")))
    assert screen.wait() == 125
    screen.wait_seen("none any more")
    group.wait_gone()
    assert there.outcome()["clean"]
    assert there.outcome()["exit_status"] == 128 + signal.SIGHUP


def test_no_supervise_there(there: Supervise, sshd: Sshd) -> None:
    sshd.program.unlink()
    refused = there.run("-H", HOST, "status")
    assert refused.popen.returncode == 127
    assert f"supervise: {HOST} has no supervise" in refused.stderr
    assert f"{sshd.ssh} {HOST} " in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    # Installed for the user, it is found without being on the PATH of a command over ssh.
    for_user = sshd.base / "home/.local/bin"
    for_user.mkdir(parents=True)
    sshd.serve(there)
    sshd.program.rename(for_user / "supervise")
    assert there.run("-H", HOST, "--version").stdout.startswith("supervise ")
    named = there.run("-H", HOST, "status", env={"SUPERVISE_REMOTE": "/nowhere/supervise"})
    assert (named.popen.returncode, "SUPERVISE_REMOTE" in named.stderr) == (127, True)


def test_nobody_answers(there: Supervise, port: int) -> None:
    wrong = there.run("-H", f"ssh://127.0.0.1:{port}", "sleep", 60)
    assert wrong.popen.returncode == 125
    assert "no connection to ssh://127.0.0.1" in wrong.stderr
    assert wrong.stderr.splitlines()[-1].endswith("came about (ssh ended with 255)")
    nothing = there.run("-H", HOST, "status", env={"SUPERVISE_SSH": "/nowhere/ssh"})
    assert nothing.popen.returncode == 125
    assert nothing.stderr == (
        "supervise: /nowhere/ssh: No such file or directory; SUPERVISE_SSH names the ssh to use\n"
    )


def test_a_stop_before_there_is_a_connection(there: Supervise, tmp_path: Path) -> None:
    dead_end = tmp_path / "ssh"
    dead_end.write_text(f"#!/bin/sh\n[ $1 = -G ] && exit\n: >{tmp_path}/begun\nexec sleep 60\n")
    dead_end.chmod(0o755)
    launched = there.start("-H", HOST, "sleep", 60, env={"SUPERVISE_SSH": str(dead_end)}, start_new_session=True)
    wait_until((tmp_path / "begun").exists)
    os.killpg(launched.popen.pid, signal.SIGINT)
    assert launched.wait() == 128 + signal.SIGINT
    assert "came about" in launched.stderr
