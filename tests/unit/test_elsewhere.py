"""Runs whose live state is of another PID namespace, of another boot, or not ours to read."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from supervise.attempts import access, locking
from supervise.attempts.elsewhere import elsewhere, is_occupied
from supervise.attempts.store import Run, Store, StoreError
from supervise.group.ending import Deadlines
from supervise.host import peers, procfs
from supervise.model.process import ProcessId
from supervise.runner.asking import SOCKET
from supervise.runner.holder import take_lock
from supervise.verbs import select, status, stop
from supervise.verbs.healthcheck import Asked, Health, judge
from supervise.verbs.healthcheck import _run as probed
from tests.support.waiting import wait_until

HERE = procfs.host_id()
ELSEWHERE = HERE._replace(pid_namespace=HERE.pid_namespace + 1)
ANOTHER_BOOT = ELSEWHERE._replace(boot_id="0b7e31c4-0000-0000-0000-000000000000")
# Long ago; with our pid, as it may have in its own namespace.
BEGUN = ProcessId(os.getpid(), 1)
SHORT = Deadlines(grace_s=0.0, kill_s=0.0)


class _Console:
    """What was said."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def line(self, _what: str, text: str) -> None:
        self.said.append(text)

    def note(self, text: str) -> None:
        self.said.append(text)

    def waiting(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture
def run(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("XDG_STATE_HOME", str(short_dir))
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    made = Run(str(short_dir / "supervise"), "X")
    made.create()
    made.write_state(state_of(ELSEWHERE))
    return made


def state_of(host: Any, state: str = "ready", **more: Any) -> dict[str, Any]:
    return {"state": state, "host": host._asdict(), "supervisor": BEGUN._asdict(), "attempt": None, **more}


@pytest.fixture
def held(run: Run) -> Iterator[int]:
    fd = os.open(os.path.join(run.path, "lock"), os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    yield fd
    os.close(fd)


class _Answering:
    """A supervise's control socket."""

    def __init__(self, run: Run, answer: dict[str, Any], then: Callable[[], None] | None = None) -> None:
        self.asked: list[dict[str, Any]] = []
        self._listener = peers.listen(run.path, SOCKET)
        self._listener.settimeout(10)
        self._answer, self._then = answer, then
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with client:
                client.settimeout(5)
                line = client.recv(4096)
                if not line:
                    continue
                self.asked.append(json.loads(line))
                client.sendall(json.dumps(self._answer).encode() + b"\n")
            if self.asked[-1]["request"] == "stop" and self._then is not None:
                self._listener.close()
                self._then()
                return

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


class TestIsThere:
    def test_while_its_lock_is_held(self, run: Run, held: int) -> None:
        assert elsewhere(run)
        assert select.is_live(run)
        fcntl.flock(held, fcntl.LOCK_UN)
        assert not elsewhere(run)
        assert not select.is_live(run)

    @pytest.mark.parametrize("state", [state_of(ANOTHER_BOOT), state_of(ELSEWHERE, "done"), state_of(HERE), {}])
    def test_never_by_another_state(self, run: Run, held: int, state: dict[str, Any]) -> None:
        run.write_state(state)
        assert not elsewhere(run)

    def test_also_where_its_lock_was_removed(self, run: Run) -> None:
        listening = _Answering(run, {"ok": True})
        assert not os.path.exists(os.path.join(run.path, "lock"))
        assert elsewhere(run)
        listening.close()
        assert not elsewhere(run)

    def test_where_it_cannot_be_known(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        def refused(_path: str) -> bool:
            raise PermissionError

        monkeypatch.setattr(locking, "is_locked", refused)
        assert is_occupied(run)


def test_a_look_hinders_no_start(run: Run) -> None:
    """Somebody who looks has the lock, shared, at the very moment in which it is taken; the control holds on to it."""
    path = os.path.join(run.path, "lock")
    looking = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(looking, fcntl.LOCK_SH)
    assert locking.take(path, lambda: None) is None
    letting_go = threading.Timer(0.003, fcntl.flock, (looking, fcntl.LOCK_UN))
    letting_go.start()
    lock = locking.take(path, lambda: None)
    letting_go.join()
    os.close(looking)
    assert lock is not None
    assert locking.is_locked(path)
    os.close(lock)
    assert not locking.is_locked(path)


class TestStart:
    def test_is_refused_at_once(self, run: Run, held: int) -> None:
        listening = _Answering(run, {"ok": True})
        console = _Console()
        began = time.monotonic()
        assert take_lock(run, Deadlines(), console) is None  # type: ignore[arg-type]
        listening.close()
        assert time.monotonic() - began < SHORT.total_s + 5
        assert any("run X is live in another PID namespace" in line for line in console.said)
        assert not any("keeper" in line or "--replace" in line for line in console.said)

    def test_waits_for_a_keeper_whose_supervise_is_dead(self, run: Run, held: int) -> None:
        console = _Console()
        letting_go = threading.Timer(0.5, fcntl.flock, (held, fcntl.LOCK_UN))
        letting_go.start()
        lock = take_lock(run, Deadlines(), console)  # type: ignore[arg-type]
        letting_go.join()
        assert lock is not None
        os.close(lock)
        assert any("by the keeper of one that was killed" in line for line in console.said)


class TestStatus:
    def test_is_what_it_says(self, run: Run, held: int) -> None:
        said = {"ok": True, "state": "starting", "phase": "load", "percent": 40.0, "cause": "boom", "attempt": 3}
        listening = _Answering(run, said)
        told = status._describe(run)
        listening.close()
        assert (told["live"], told["elsewhere"], told["state"]) == (True, True, "starting")
        assert (told["percent"], told["cause"], told["members"]) == (40.0, "boom", None)
        assert "in another PID namespace" in status._line(told)
        assert "processes" not in status._line(told)

    def test_of_one_that_does_not_answer_is_what_it_wrote(self, run: Run, held: int) -> None:
        told = status._describe(run)
        assert (told["live"], told["elsewhere"], told["state"]) == (True, True, "ready")
        assert "in another PID namespace, its control socket does not answer" in status._line(told)

    def test_of_one_here_is_as_ever(self, run: Run) -> None:
        assert status._describe(run)["elsewhere"] is False


class TestStop:
    def stopped(self, run: Run, held: int, *, now: bool = False) -> tuple[int, list[dict[str, Any]]]:
        listening = _Answering(run, {"ok": True}, then=lambda: fcntl.flock(held, fcntl.LOCK_UN))
        status = stop.stop("X", now=now, timeout_s=5.0)
        listening.close()
        return status, [asked for asked in listening.asked if asked["request"] == "stop"]

    @pytest.mark.parametrize("now", [False, True])
    def test_asks_and_waits_for_the_lock(
        self, run: Run, held: int, now: bool, capfd: pytest.CaptureFixture[str]
    ) -> None:
        run.close_attempt(run.open_attempt(), {"failed": False, "exit_status": 143})
        exit_status, asked = self.stopped(run, held, now=now)
        assert (exit_status, [each["now"] for each in asked]) == (0, [now])
        assert "stopped, verified" in capfd.readouterr().err

    def test_without_a_record_of_its_end_is_no_success(
        self, run: Run, held: int, capfd: pytest.CaptureFixture[str]
    ) -> None:
        assert self.stopped(run, held)[0] == 125
        assert "no record of how it ended" in capfd.readouterr().err

    def test_of_one_that_goes_on_is_none_either(self, run: Run, held: int, capfd: pytest.CaptureFixture[str]) -> None:
        listening = _Answering(run, {"ok": True})
        assert stop.stop("X", now=True, timeout_s=0.3) == 125
        listening.close()
        assert "--now" not in capfd.readouterr().err

    def test_where_nobody_answers_is_none(self, run: Run, held: int, capfd: pytest.CaptureFixture[str]) -> None:
        assert stop.stop(None, now=False, timeout_s=5.0) == 125
        (line,) = capfd.readouterr().err.splitlines()
        assert "another PID namespace, and its control socket does not answer" in line


class TestHealth:
    def all(self, run: Run) -> dict[str, bool]:
        return {asked.value: judge(run, asked).well for asked in Asked}

    @pytest.mark.parametrize(
        ("said", "startup", "ready", "live"),
        [
            ({"state": "starting"}, False, False, True),
            ({"state": "ready"}, True, True, True),
            ({"state": "ready", "cause": "EngineDeadError"}, True, False, True),
            ({"state": "waiting"}, False, False, True),
            ({"state": "ready", "over": True}, True, True, False),
        ],
    )
    def test_is_what_it_says(
        self, run: Run, held: int, said: dict[str, Any], startup: bool, ready: bool, live: bool
    ) -> None:
        run.write_state(state_of(ELSEWHERE, "stopping"))
        listening = _Answering(run, {"ok": True, **said})
        assert self.all(run) == {"startup": startup, "ready": ready, "live": live}
        listening.close()

    def test_of_one_that_does_not_answer_is_bad(self, run: Run, held: int) -> None:
        assert self.all(run) == {"startup": False, "ready": False, "live": False}
        assert judge(run, Asked.LIVE).why == "X is live in another PID namespace, but supervise does not answer"

    def test_of_several_the_one_elsewhere_is_meant(self, run: Run, held: int, short_dir: Path) -> None:
        Run(str(short_dir / "supervise"), "Y").create()
        found = probed(None)
        assert isinstance(found, Run)
        assert found.name == "X"


@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        ({"failed": True, "exit_status": 7, "outcome": "died"}, "X is over, exit status 7: died"),
        (None, "X is over, no record of how it ended"),
    ],
)
def test_a_probe_says_how_it_ended(run: Run, outcome: dict[str, Any] | None, told: str) -> None:
    attempt = run.open_attempt()
    if outcome is not None:
        run.close_attempt(attempt, outcome)
    run.write_state(state_of(HERE, "done", attempt=1))
    assert judge(run, Asked.LIVE) == Health(False, told)


class TestSuspended:
    @pytest.fixture
    def other(self, run: Run) -> Iterator[ProcessId]:
        """A supervise that nobody can ask and that needs to be continued."""
        with subprocess.Popen(["sleep", "60"]) as process:
            identity = procfs.identify(process.pid)
            assert identity is not None
            run.write_state(state_of(HERE) | {"supervisor": identity._asdict()})
            process.send_signal(signal.SIGSTOP)
            wait_until(lambda: stop.suspended(identity))
            yield identity
            process.kill()

    @pytest.mark.parametrize("now", [False, True])
    def test_it_is_continued_and_told(
        self, run: Run, other: ProcessId, now: bool, capfd: pytest.CaptureFixture[str]
    ) -> None:
        assert stop.stop("X", now=now, timeout_s=10.0) == 0
        assert "was suspended: it is continued" in capfd.readouterr().err

    def test_one_that_stays_suspended_is_named(
        self, run: Run, other: ProcessId, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(stop, "_ask", lambda *_, **__: True)
        assert stop.stop("X", now=True, timeout_s=0.1) == 125
        said = capfd.readouterr().err
        assert f"kill -CONT {other.pid}" in said
        assert "--now" not in said


class TestLeftAlone:
    @pytest.fixture
    def marked(self, run: Run) -> Iterator[Callable[[str], ProcessId]]:
        started = []

        def start(marker_id: str) -> ProcessId:
            env = {"SUPERVISE_RUN": run.name, "SUPERVISE_ATTEMPT": "1", "SUPERVISE_ID": marker_id}
            script = "import time; print(flush=True); time.sleep(60)"
            started.append(subprocess.Popen([sys.executable, "-S", "-c", script], env=env, stdout=subprocess.PIPE))
            assert started[-1].stdout.read(1)
            identity = procfs.identify(started[-1].pid)
            assert identity is not None
            return identity

        run.write_state(state_of(HERE))
        run.open_attempt().write("attempt", {"id": "1f", "host": HERE._asdict()})
        yield start
        for process in started:
            process.kill()
            process.communicate()

    def test_is_what_bears_the_mark_of_an_attempt_of_ours(self, run: Run, marked: Callable[[str], ProcessId]) -> None:
        ours = marked("1f")
        assert [process.id for process in select.left_alone(run)] == [ours]
        assert status._describe(run)["state"] == "orphaned"

    def test_is_nobody_of_a_run_of_that_name_in_another_store(
        self, run: Run, marked: Callable[[str], ProcessId]
    ) -> None:
        marked("2f")
        assert select.left_alone(run) == []
        assert status._describe(run)["state"] == "ended"

    def test_a_member_is_not_taken_for_one_by_a_pid_of_another_namespace(
        self, run: Run, marked: Callable[[str], ProcessId]
    ) -> None:
        other = marked("2f")
        for host, found in ((HERE, [other]), (ELSEWHERE, [])):
            run.attempt(1).write("attempt", {"id": "1f", "host": host._asdict(), "members": [list(other)]})
            assert [process.id for process in select.left_alone(run)] == found


class TestDenied:
    """As root nothing is; tests/cli/test_status.py asks as an ordinary user."""

    @pytest.fixture(autouse=True)
    def _closed(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(access.os, "access", lambda path, _mode: not path.startswith(run.path))

    def test_is_never_taken_for_one_that_is_over(self, run: Run) -> None:
        for name in ("X", None):
            with pytest.raises(StoreError, match=f"run X: {run.path}: Permission denied"):
                select.choose(name, live_only=True)
            with pytest.raises(StoreError, match="Permission denied"):
                status.status(name, as_json=False)
        with pytest.raises(StoreError, match="Permission denied"):
            probed("X")

    def test_hides_none_of_ours(
        self, run: Run, short_dir: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        Run(str(short_dir / "supervise"), "Y").create()
        assert status.status(None, as_json=True) == 0
        said = capfd.readouterr()
        assert [each["run"] for each in json.loads(said.out)["runs"]] == ["Y"]
        assert f"run X: {run.path}: Permission denied" in said.err
        assert [each.name for each in access.denied(Store(str(short_dir / "supervise")))] == ["X"]
