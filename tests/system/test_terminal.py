"""The server's terminal, driven by a child that has a terminal of its own, as a shell would start it.

The child tells its pids as `role pid` lines, and as JSON in the end what was lost.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervise.host import procfs
from supervise.model.process import ProcessId
from tests.support.family import Family
from tests.support.readable import ROOT
from tests.support.screen import Screen
from tests.support.waiting import DEADLINE_S, wait_until

# Stands for supervise: opens the terminal, launches the server on it, and follows the signals.
_DRIVER = """
import asyncio, fcntl, json, os, signal, sys, termios
from supervise.runner.terminal import Terminal

base, how, *server = sys.argv[1:]

def tell(role, pid):
    with open(base + "/pids", "a") as file:
        file.write(f"{role} {pid}\\n")

def become_shell():
    # A session leader that keeps the foreground for itself, until SIGUSR1 gives it to its job.
    job = os.fork()
    if job == 0:
        os.setpgid(0, 0)
        return
    signal.signal(signal.SIGUSR1, lambda *_: os.tcsetpgrp(0, job))
    tell("shell", os.getpid())
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(job, 0)[1]))

def suspend(terminal):
    terminal.suspend()
    os.kill(os.getpid(), signal.SIGSTOP)

async def main():
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    asked = asyncio.Event()
    terminal = Terminal.open(base + "/log")
    loop.add_signal_handler(signal.SIGINT, tell, "interrupted", os.getpid())
    loop.add_signal_handler(signal.SIGCHLD, ended.set)
    loop.add_signal_handler(signal.SIGWINCH, terminal.resize)
    loop.add_signal_handler(signal.SIGTSTP, suspend, terminal)
    loop.add_signal_handler(signal.SIGCONT, terminal.resume)
    loop.add_signal_handler(signal.SIGTERM, asked.set)
    terminal.start(loop)
    files = [(os.POSIX_SPAWN_OPEN, 0, terminal.slave, os.O_RDWR, 0)]
    files += [(os.POSIX_SPAWN_DUP2, 0, 1), (os.POSIX_SPAWN_DUP2, 0, 2)]
    pid = os.posix_spawn(server[0], server, os.environ, file_actions=files, setsid=True)
    terminal.launched()
    held = [os.readlink(f"/proc/self/fd/{fd}") for fd in range(30) if os.path.lexists(f"/proc/self/fd/{fd}")]
    tell("server", pid)
    tell("driver", os.getpid())
    if how == "crash":
        await asked.wait()
        os.kill(pid, signal.SIGKILL)
        raise RuntimeError("crashed")
    if how != "busy":
        await ended.wait()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    terminal.finish()
    terminal.finish()
    told = {"status": status, "held": terminal.slave in held, "lost": terminal.lost, "dropped": terminal.dropped}
    told["fds"] = len(os.listdir("/proc/self/fd"))
    with open(base + "/told", "w") as file:
        json.dump(told, file)

if how != "bare":
    os.setsid()
    fcntl.ioctl(2, termios.TIOCSCTTY, 0)
if how == "background":
    become_shell()
asyncio.run(main())
"""

_FLOOD = "for _ in range(20_000): print('x' * 79)"


class Session(Screen):
    """A user's terminal, and a driver on it.

    Attributes:
        seen: what the user has seen so far.
    """

    def __init__(self, base: Path, family: Family) -> None:
        self.base, self.family = base, family
        self.seen = b""
        self.master, self.slave = os.openpty()
        os.set_blocking(self.master, False)
        termios.tcsetwinsize(self.master, (33, 101))
        self.modes = termios.tcgetattr(self.slave)
        self.driver: subprocess.Popen[bytes] | None = None

    def start(self, code: str, *, how: str = "foreground", **streams: Any) -> Session:
        """Start a driver whose server is a Python that runs this code."""
        streams = {"stdin": self.slave, "stdout": self.slave, "stderr": self.slave} | streams
        self.driver = subprocess.Popen(
            [sys.executable, "-c", _DRIVER, str(self.base), how, sys.executable, "-c", code],
            env=os.environ | {"PYTHONPATH": str(ROOT), "TERM": "dumb", "PYTHONDONTWRITEBYTECODE": "1"},
            **streams,
        )
        self.family.wait_for("driver")
        return self

    @property
    def log(self) -> bytes:
        return (self.base / "log").read_bytes()

    def wait_seen(self, text: str) -> None:
        wait_until(lambda: text.encode() in self.look(), failure=lambda: f"{text!r} in {self.seen!r}, log {self.log!r}")

    def wait_logged(self, text: str) -> None:
        """Wait for a text in the log, looking at the screen meanwhile: a terminal always takes what is written."""
        wait_until(
            lambda: self.look() is not None and text.encode() in self.log, failure=lambda: f"{text} {self.log!r}"
        )

    def flags(self) -> int:
        """The local modes."""
        return int(termios.tcgetattr(self.slave)[3])

    def wait_raw(self) -> None:
        wait_until(lambda: not self.flags() & termios.ICANON, failure=lambda: self.look())

    def ended(self) -> dict[str, Any]:
        """Wait for the driver, and what it told in the end."""
        assert self.driver is not None
        wait_until(lambda: self.look() is not None and self.driver.poll() is not None, failure=lambda: self.seen)
        self.look()
        assert self.driver.returncode == 0, self.seen
        told = json.loads((self.base / "told").read_text())
        assert isinstance(told, dict)
        return told

    def close(self) -> None:
        self.family.kill()
        if self.driver is not None:
            self.driver.kill()
            self.driver.wait(DEADLINE_S)
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def screen(short_dir: Path, family: Family) -> Iterator[Session]:
    user = Session(short_dir, family)
    yield user
    user.close()


def state(process: ProcessId) -> str:
    found = procfs.read(process.pid)
    return found.state if found else "gone"


def test_a_breakpoint_is_a_session_on_the_users_terminal(screen: Session) -> None:
    screen.start("print('before')\nbreakpoint()\nprint('after')")
    screen.wait_seen("(Pdb)")
    screen.type("p 6*7\r")
    screen.wait_seen("42")
    screen.type("c\r")

    told = screen.ended()

    assert (told["status"], told["lost"], told["dropped"]) == (0, 0, 0)
    assert b"before\r\n" in screen.seen
    assert b"after\r\n" in screen.seen
    assert re.search(rb"before\n.*\(Pdb\) p 6\*7\n42\n\(Pdb\) c\nafter\n", screen.log, re.DOTALL), screen.log


def test_the_server_is_controlled_by_its_own_terminal(screen: Session) -> None:
    code = (
        "import os; print(os.ttyname(0), os.ttyname(1), os.ttyname(2), os.tcgetpgrp(0) == os.getpgrp() == os.getpid())"
    )
    screen.start(code).ended()

    names = screen.log.decode().split()
    assert names[0] == names[1] == names[2] != os.ttyname(screen.slave)
    assert names[3] == "True"


def test_the_last_words_of_a_server_are_not_lost(screen: Session) -> None:
    screen.start("import os\nfor i in range(20_000): os.write(1, b'%06d %s\\n' % (i, b'x' * 60))\nos._exit(3)")

    told = screen.ended()

    assert (told["status"], told["lost"]) == (3, 0)
    assert screen.log == b"".join(b"%06d %s\n" % (i, b"x" * 60) for i in range(20_000))


def test_what_is_left_in_the_terminal_when_the_server_has_ended_is_taken_too(screen: Session) -> None:
    told = screen.start("print(('x' * 79 + '\\n') * 75, end='')", how="busy").ended()

    assert (told["status"], told["lost"]) == (0, 0)
    assert screen.log == (b"x" * 79 + b"\n") * 75
    assert screen.seen == (b"x" * 79 + b"\r\n") * 75


def test_a_server_that_lets_go_of_its_terminal_costs_nothing(screen: Session) -> None:
    screen.start(
        "import os, signal; print('here', flush=True); input(); os.closerange(0, 3)\n"
        f"open({str(screen.base / 'pids')!r}, 'a').write(f'closed {{os.getpid()}}\\n'); signal.pause()"
    )
    screen.wait_raw()
    screen.type("\r")
    server = screen.family.wait_for("closed")
    driver = screen.family.wait_for("driver")

    before, until = _cpu_ticks(driver), time.monotonic() + 0.5
    wait_until(lambda: time.monotonic() > until)
    assert _cpu_ticks(driver) - before < 15  # of the 50 that a driver would use which is woken all the time

    os.kill(server.pid, signal.SIGKILL)
    told = screen.ended()
    assert told["status"] == -signal.SIGKILL
    assert not told["held"], "the last one to close it is the server, or there is no end to be seen"


def test_finish_restores_the_modes_and_closes_everything(screen: Session) -> None:
    screen.start("import sys; sys.stdin.readline()")
    screen.wait_raw()
    assert not screen.flags() & (termios.ECHO | termios.IEXTEN)
    assert screen.flags() & termios.ISIG
    screen.type("\r")

    told = screen.ended()

    assert termios.tcgetattr(screen.slave) == screen.modes
    assert told["fds"] == 7  # 0, 1, 2, the loop's selector and two sockets, the listing itself


def test_a_crash_restores_the_modes(screen: Session) -> None:
    screen.start("import time; time.sleep(100)", how="crash")
    screen.wait_raw()
    driver = screen.family.wait_for("driver")
    os.kill(driver.pid, signal.SIGTERM)

    wait_until(lambda: screen.look() is not None and screen.driver and screen.driver.poll() is not None)

    assert b"RuntimeError: crashed" in screen.look()
    assert termios.tcgetattr(screen.slave) == screen.modes


def test_the_window_is_as_large_as_the_users_and_follows_it(screen: Session) -> None:
    screen.start(
        "import os, signal\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGWINCH})\n"
        "print(tuple(os.get_terminal_size(0)), flush=True)\n"
        "signal.sigwait({signal.SIGWINCH})\n"
        "print(tuple(os.get_terminal_size(0)))"
    )
    screen.wait_seen("(101, 33)")

    termios.tcsetwinsize(screen.master, (40, 120))  # has the kernel send SIGWINCH to the driver

    screen.wait_seen("(120, 40)")
    screen.ended()


def test_without_a_terminal_the_window_is_24_by_80(screen: Session) -> None:
    with (screen.base / "out").open("wb") as out:
        code = "import os; print(tuple(os.get_terminal_size(0)))"
        screen.start(code, how="bare", stdin=subprocess.DEVNULL, stdout=out, stderr=out).ended()

    assert screen.log == b"(80, 24)\n"
    assert (screen.base / "out").read_bytes() == screen.log


def test_control_d_is_the_end_of_input(screen: Session) -> None:
    screen.start("import sys; print(repr(sys.stdin.read()))")
    screen.wait_raw()
    screen.type("text\r")
    screen.wait_logged("text\n")
    screen.type("\x04")

    assert screen.ended()["status"] == 0
    assert screen.log == b"text\n'text\\n'\n"


def test_control_c_means_supervise_and_not_the_server(screen: Session) -> None:
    screen.start("import sys; print(repr(sys.stdin.readline()))")
    screen.wait_raw()
    screen.type("\x03")
    screen.family.wait_for("interrupted")
    screen.type("on\r")

    assert screen.ended()["status"] == 0
    assert screen.log.endswith(b"'on\\n'\n")


@pytest.mark.parametrize("given", [b"", b"line\n", b"line\nunfinished", b"line\n" * 80_000])
@pytest.mark.parametrize("kind", ["file", "pipe"])
def test_what_is_piped_in_arrives_and_ends(screen: Session, given: bytes, kind: str) -> None:
    (screen.base / "in").write_bytes(given)
    feeder = subprocess.Popen(["cat", screen.base / "in"], stdout=subprocess.PIPE) if kind == "pipe" else None
    source = feeder.stdout if feeder else (screen.base / "in").open("rb")
    assert source is not None
    with source:
        screen.start("import sys; d = sys.stdin.read(); print('got', len(d), d[-10:].encode().hex())", stdin=source)
        assert screen.ended()["status"] == 0
    if feeder:
        assert feeder.wait(DEADLINE_S) == 0

    assert screen.log.endswith(f"got {len(given)} {given[-10:].hex()}\n".encode()), screen.log[-200:]


def test_no_input_is_the_end_of_input(screen: Session) -> None:
    screen.start("print(repr(input('> ')))", stdin=subprocess.DEVNULL)

    assert screen.ended()["status"] == 1
    assert screen.log.endswith(b"EOFError\n"), screen.log


@pytest.mark.parametrize("kind", ["pipe", "terminal"])
def test_output_that_nobody_reads_does_not_hold_the_server(screen: Session, kind: str) -> None:
    reader, writer = os.pipe() if kind == "pipe" else os.openpty()
    try:
        screen.start(_FLOOD, stdout=writer)
        told = screen.ended()
    finally:
        os.close(reader)
        os.close(writer)

    assert (told["status"], told["lost"]) == (0, 0)
    assert len(screen.log) == 80 * 20_000
    assert told["dropped"] > 1_000_000


def test_a_slow_reader_gets_everything_in_the_end(screen: Session) -> None:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    read = bytearray()
    try:
        screen.start("print(('x' * 79 + '\\n') * 2_000 + 'all'); input()", stdout=writer)
        screen.wait_logged("all")  # more than a pipe takes (64 KiB), less than what may wait
        wait_until(lambda: _read_into(read, reader) == screen.log)
        screen.type("\r")
        assert screen.ended()["dropped"] == 0
        assert _read_into(read, reader) == screen.log
    finally:
        os.close(reader)
        os.close(writer)


def test_a_reader_that_goes_away_does_not_hold_the_server(screen: Session) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        told = screen.start(_FLOOD, stdout=writer).ended()
    finally:
        os.close(writer)

    assert (told["status"], told["dropped"]) == (0, 80 * 20_000)
    assert len(screen.log) == 80 * 20_000


def test_a_full_disk_is_counted(screen: Session) -> None:
    (screen.base / "log").symlink_to("/dev/full")

    told = screen.start("print('x' * 79)").ended()

    assert (told["status"], told["lost"]) == (0, 80)
    assert b"x" * 79 in screen.seen


def test_a_background_job_is_not_stopped_and_takes_the_keys_once_it_is_in_front(screen: Session) -> None:
    screen.start("print('up', flush=True); import sys; print(repr(sys.stdin.readline()))", how="background")
    screen.wait_seen("up")
    driver = screen.family.wait_for("driver")
    screen.type("for the shell\r")
    # The keys are there to be read by the shell alone: echoed, in a terminal whose modes nobody has touched.
    screen.wait_seen("for the shell")
    wait_until(lambda: _unread(screen.slave) == len("for the shell\n"))
    assert termios.tcgetattr(screen.slave) == screen.modes
    assert state(driver) == "S"

    termios.tcflush(screen.slave, termios.TCIFLUSH)
    os.kill(screen.family.wait_for("shell").pid, signal.SIGUSR1)
    screen.wait_raw()
    screen.type("for the server\r")

    assert screen.ended()["status"] == 0
    assert screen.log == b"up\nfor the server\n'for the server\\n'\n"


def test_suspended_it_gives_the_terminal_back_and_takes_it_again(screen: Session) -> None:
    screen.start("import os, sys; print(repr(sys.stdin.readline()), os.get_terminal_size(0).lines)")
    screen.wait_raw()
    driver = screen.family.wait_for("driver")
    screen.type("\x1a")
    wait_until(lambda: state(driver) == "T")
    assert termios.tcgetattr(screen.slave) == screen.modes

    os.kill(driver.pid, signal.SIGCONT)
    screen.wait_raw()
    screen.type("again\r")

    assert screen.ended()["status"] == 0
    assert screen.log.endswith(b"'again\\n' 33\n")


def test_a_shell_that_changed_the_modes_of_a_stopped_job_finds_them_changed_back(screen: Session) -> None:
    screen.start("import sys; print(repr(sys.stdin.readline()))")
    screen.wait_raw()
    driver = screen.family.wait_for("driver")
    os.kill(driver.pid, signal.SIGSTOP)
    wait_until(lambda: state(driver) == "T")
    termios.tcsetattr(screen.slave, termios.TCSANOW, screen.modes)

    os.kill(driver.pid, signal.SIGCONT)
    screen.wait_raw()
    screen.type("\r")

    screen.ended()
    assert termios.tcgetattr(screen.slave) == screen.modes


def _read_into(read: bytearray, fd: int) -> bytes:
    try:
        while data := os.read(fd, 65536):
            read += data
    except BlockingIOError:
        pass
    return bytes(read)


def _cpu_ticks(process: ProcessId) -> int:
    """utime and stime, in 1/100 s (proc_pid_stat(5))."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def _unread(fd: int) -> int:
    return int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, b"\0" * 4), sys.byteorder)
