"""What a probe is told, from what a run has written down about itself."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervise.attempts.store import Run
from supervise.host import procfs
from supervise.model.process import ProcessId
from supervise.runner import asking
from supervise.verbs.healthcheck import SOCKET, Asked, Health, healthcheck, judge
from tests.support.waiting import wait_until


@pytest.fixture
def run(short_dir: Path) -> Run:
    made = Run(str(short_dir / "supervise"), "X")
    made.create()
    return made


@pytest.fixture
def other() -> Iterator[ProcessId]:
    """A process that can be stopped and ended."""
    with subprocess.Popen(["sleep", "60"]) as process:
        identity = procfs.identify(process.pid)
        assert identity is not None
        yield identity
        process.kill()


def _say(run: Run, state: str, supervisor: ProcessId | None = None, **more: Any) -> None:
    who = supervisor or procfs.self_id()
    run.write_state(
        {"state": state, "attempt": 1, "host": procfs.host_id()._asdict(), "supervisor": who._asdict(), **more}
    )


def _all(run: Run) -> dict[str, bool]:
    return {asked.value: judge(run, asked).well for asked in Asked}


@pytest.mark.parametrize(
    ("state", "startup", "ready", "live"),
    [
        ("sweeping", False, False, True),
        ("starting", False, False, True),
        ("ready", True, True, True),
        ("stopping", False, False, True),
        ("waiting", False, False, True),
        ("done", False, False, False),
    ],
)
def test_by_state(run: Run, state: str, startup: bool, ready: bool, live: bool) -> None:
    run.append_event({"state": "starting", "attempt": 1})
    _say(run, state)
    assert _all(run) == {"startup": startup, "ready": ready, "live": live}


def test_it_has_been_ready_while_it_drains(run: Run) -> None:
    for attempt in (1, 2):
        run.append_event({"state": "ready", "attempt": attempt})
    _say(run, "stopping", attempt=2)
    assert _all(run) == {"startup": True, "ready": False, "live": True}
    _say(run, "stopping", attempt=3)
    assert judge(run, Asked.STARTUP).well is False


def test_nobody_supervises_it(run: Run, other: ProcessId) -> None:
    _say(run, "ready", other)
    assert _all(run) == {"startup": True, "ready": True, "live": True}
    os.kill(other.pid, signal.SIGKILL)
    wait_until(lambda: not judge(run, Asked.LIVE).well)
    assert _all(run) == {"startup": False, "ready": False, "live": False}


def test_another_process_with_its_pid_is_not_it(run: Run, other: ProcessId) -> None:
    _say(run, "ready", ProcessId(other.pid, other.ticks + 1))
    assert judge(run, Asked.LIVE).well is False


def test_one_that_is_stopped(run: Run, other: ProcessId) -> None:
    _say(run, "ready", other)
    os.kill(other.pid, signal.SIGSTOP)
    wait_until(lambda: not judge(run, Asked.LIVE).well)
    assert "is stopped" in judge(run, Asked.LIVE).why
    os.kill(other.pid, signal.SIGCONT)
    wait_until(lambda: judge(run, Asked.LIVE).well)


class TestLoop:
    @pytest.fixture
    def listener(self, run: Run) -> Iterator[socket.socket]:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(os.path.join(run.path, SOCKET))
            made.listen()
            yield made

    def test_that_does_not_answer_is_not_live(self, run: Run, listener: socket.socket) -> None:
        """The kernel takes connections also for a loop that is stuck; but it answers none."""
        _say(run, "starting")
        assert judge(run, Asked.LIVE) == Health(False, "X is starting (attempt 1), but supervise does not answer")
        assert judge(run, Asked.STARTUP).well is False

    def test_that_answers_is(self, run: Run, listener: socket.socket) -> None:
        _say(run, "starting")
        script = "import socket, sys; c = socket.socket(fileno=int(sys.argv[1])).accept()[0]; c.recv(9); c.send(b'{}')"
        words = [sys.executable, "-c", script, str(listener.fileno())]
        with subprocess.Popen(words, pass_fds=[listener.fileno()]):
            assert judge(run, Asked.LIVE).well is True

    def test_is_asked_at_the_socket_that_there_is(self) -> None:
        assert SOCKET == asking.SOCKET


class TestReady:
    @pytest.fixture(params=["tcp", "unix"])
    def listener(self, request: pytest.FixtureRequest, run: Run, short_dir: Path) -> Iterator[socket.socket]:
        """A server's socket, and that the run knows of it."""
        tcp = request.param == "tcp"
        with socket.socket(socket.AF_INET if tcp else socket.AF_UNIX) as made:
            made.bind(("127.0.0.1", 0) if tcp else str(short_dir / "s"))
            made.listen()
            url = f"http://0.0.0.0:{made.getsockname()[1]}" if tcp else f"unix:{short_dir}/s"
            run.open_attempt().write("attempt", {"url": url})
            yield made

    def test_whose_port_takes_connections(self, run: Run, listener: socket.socket) -> None:
        _say(run, "ready")
        assert judge(run, Asked.READY).well is True

    def test_whose_port_does_not(self, run: Run, listener: socket.socket) -> None:
        _say(run, "ready")
        listener.close()
        health = judge(run, Asked.READY)
        assert not health.well
        assert "takes no connection" in health.why
        assert judge(run, Asked.LIVE).well is True

    def test_whose_log_says_that_it_cannot_go_on(self, run: Run, listener: socket.socket) -> None:
        _say(run, "ready", cause={"text": "EngineDeadError"})
        health = judge(run, Asked.READY)
        assert not health.well
        assert "EngineDeadError" in health.why


class TestVerb:
    @pytest.fixture(autouse=True)
    def _here(self, run: Run, short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        monkeypatch.setenv("XDG_STATE_HOME", str(short_dir))
        monkeypatch.delenv("STATE_DIRECTORY", raising=False)
        before = signal.getsignal(signal.SIGALRM)
        yield
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    def test_damaged_files_are_one_line(self, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
        Path(run.path, "run.json").write_text('{"state": ')
        assert healthcheck(None, Asked.LIVE) == 1
        assert capsys.readouterr().out.count("\n") == 1

    @pytest.mark.parametrize(
        "url", ["http://", "http://[::1", "http://a:b", "unix:", "http://127.0.0.1:1", None, 7, ""]
    )
    def test_whatever_is_recorded_it_is_one_line(
        self, run: Run, url: object, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Where nobody knows where it listens, that it is ready is all there is."""
        Path(run.open_attempt().path, "attempt.json").write_text(json.dumps({"version": 1, "url": url}))
        _say(run, "ready")
        assert healthcheck("X", Asked.READY) == (1 if isinstance(url, str) and url else 0)
        assert capsys.readouterr().out.count("\n") == 1

    @pytest.mark.parametrize("name", ["Y", "../X", ""])
    def test_no_such_run(self, name: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert healthcheck(name, Asked.LIVE) == 1
        assert "there is no run" in capsys.readouterr().out

    def test_of_several_the_one_that_lives_is_meant(
        self, run: Run, short_dir: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        second = Run(str(short_dir / "supervise"), "Y")
        second.create()
        _say(second, "ready", ProcessId(procfs.self_id().pid, 1))
        _say(run, "ready")
        assert healthcheck(None, Asked.LIVE) == 0
        _say(second, "ready")
        assert healthcheck(None, Asked.LIVE) == 1
        assert "which run? X, Y" in capsys.readouterr().out
