"""Supervise on a terminal of the test's own: the terminal that goes away, and the server's terminal (`--tty`)."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from supervise.host import procfs
from supervise.model.process import ProcessId
from tests.support.family import Family
from tests.support.launcher import Supervise
from tests.support.session import Session
from tests.support.waiting import describe, wait_gone, wait_until

ROLES = ("plain", "setsid", "double-fork", "env-cleared", "stopped")

# Stops in a debugger, then says who it is; ended by signals alone.
_DEBUGGED = """
import os, signal, sys
breakpoint()
print("went on")
with open(sys.argv[1], "a") as file:
    file.write(f"leader {os.getpid()}\\nready\\n")
while True:
    signal.pause()
"""


def tree(supervise: Supervise) -> tuple[Family, list[object]]:
    """The file in which a small hydra tells its pids, and how supervise is to start it."""
    family = supervise.family()
    return family, ["--name", "X", "--grace", 0.5, *supervise.hydra(*ROLES, pids=family.path)]


def wait_state(target: ProcessId, letters: str) -> None:
    def there() -> bool:
        process = procfs.read(target.pid, cmdline=False, environ=False)
        return process is not None and process.id == target and process.state in letters

    wait_until(there, failure=lambda: describe(target))


class TestHangUp:
    @pytest.mark.parametrize("tty", [(), ("--tty",)], ids=["", "tty"])
    @pytest.mark.parametrize("shell", ['exec "$@"', '"$@"; exit'], ids=["leader of the session", "job of a shell"])
    def test_is_a_verified_stop(self, supervise: Supervise, screen: Session, shell: str, tty: tuple[str, ...]) -> None:
        family, arguments = tree(supervise)
        screen.start(*tty, *arguments, shell=shell)
        family.wait_ready(failure=supervise.said)
        wait_until(lambda: supervise.status().get("leader"))
        contained = [supervise.identity(who) for who in ("supervisor", "keeper")] + list(family.members.values())
        screen.hang_up()
        assert screen.wait() == -signal.SIGHUP
        wait_gone(contained)
        assert supervise.outcome()["signal"] == signal.SIGHUP
        assert supervise.outcome()["verified"] is True

    def test_behind_nohup_it_goes_on(self, supervise: Supervise, screen: Session) -> None:
        family, arguments = tree(supervise)
        screen.start(*arguments, shell='trap "" HUP; exec "$@"')
        family.wait_ready(failure=supervise.said)
        screen.hang_up()
        # The next signal is acted upon after this one.
        os.kill(screen.id.pid, signal.SIGTSTP)
        wait_state(screen.id, "T")
        os.kill(screen.id.pid, signal.SIGCONT)
        assert family.living == {"leader", *ROLES}
        os.kill(screen.id.pid, signal.SIGTERM)
        assert screen.wait() == -signal.SIGTERM
        assert supervise.outcome()["signal"] == signal.SIGTERM
        assert family.survivors == []


class TestTty:
    def test_a_breakpoint_can_be_talked_to(self, supervise: Supervise, screen: Session) -> None:
        family = supervise.family()
        screen.start("--tty", "--name", "X", sys.executable, "-c", _DEBUGGED, family.path)
        screen.wait_seen("(Pdb) ")
        screen.type("p 6*7\r")
        screen.wait_seen("42\r\n(Pdb) ")
        screen.type("c\r")
        screen.wait_seen("went on\r\n")
        family.wait_ready()
        screen.type("\x03")
        assert screen.wait() == -signal.SIGINT
        assert family.survivors == []
        assert screen.current_modes() == screen.modes
        assert screen.seen.replace(b"\r\n", b"\n").decode() == supervise.log()

    def test_ctrl_c_is_a_verified_stop(self, supervise: Supervise, screen: Session) -> None:
        family, arguments = tree(supervise)
        screen.start("--tty", *arguments)
        family.wait_ready()
        screen.type("\x03")
        assert screen.wait() == -signal.SIGINT
        assert family.survivors == []
        assert supervise.outcome()["verified"] is True

    def test_ctrl_z_stops_all_until_sigcont(self, supervise: Supervise, screen: Session) -> None:
        family, arguments = tree(supervise)
        screen.start("--tty", *arguments)
        family.wait_ready()
        running = [member for role, member in family.members.items() if role != "stopped"]
        screen.type("\x1a")
        for target in (screen.id, *running):
            wait_state(target, "T")
        assert screen.current_modes() == screen.modes
        os.kill(screen.id.pid, signal.SIGCONT)
        for target in (screen.id, *running):
            wait_state(target, "SR")
        screen.type("\x03")
        assert screen.wait() == -signal.SIGINT
        assert family.survivors == []

    def test_sigkill_leaves_nothing(self, supervise: Supervise, screen: Session) -> None:
        family, arguments = tree(supervise)
        screen.start("--tty", *arguments)
        family.wait_ready()
        contained = [supervise.identity("keeper"), *family.members.values()]
        os.kill(screen.id.pid, signal.SIGKILL)
        assert screen.wait() == -signal.SIGKILL
        wait_gone(contained)

    def test_without_a_terminal_of_ours(self, supervise: Supervise) -> None:
        code = "import sys; print([file.isatty() for file in (sys.stdin, sys.stdout, sys.stderr)], repr(input()))"
        launched = supervise.run("--tty", "--name", "X", sys.executable, "-c", code)
        assert launched.popen.returncode == 1
        assert "EOFError" in launched.stdout
        assert launched.stdout == supervise.log()
