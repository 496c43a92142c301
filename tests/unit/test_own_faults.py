"""What stands in the way of supervise itself, piece by piece: damaged files, full disks, emptied logs, lost time."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from supervise import lifecycle as life
from supervise.attempts import damage, locking
from supervise.attempts.log import Bound, LogFile
from supervise.attempts.store import Run
from supervise.group import guard
from supervise.host import beside, files, procfs
from supervise.model.tier import Tiers
from supervise.runner.journal import Journal
from supervise.runner.timers import Timers
from tests.support.virtual import VirtualLoop
from tests.support.waiting import DEADLINE_S

if TYPE_CHECKING:
    from supervise.report.console import Console
    from supervise.runner.attempt import Opened


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = Run(str(tmp_path), "r")
    made.create()
    return made


class TestAside:
    def test_only_the_newest_is_kept(self, tmp_path: Path) -> None:
        for content in ("one", "two", "three"):
            (tmp_path / "run.json").write_text(content)
            assert damage.examined(str(tmp_path / "run.json"), damage.is_json) is not None
        (kept,) = tmp_path.iterdir()
        assert (kept.name, kept.read_text()) == ("run.json.damaged-3", "three")

    def test_whatever_was_aside_goes(self, tmp_path: Path) -> None:
        (tmp_path / "run.json.damaged-1/deep").mkdir(parents=True)
        (tmp_path / "run.json.damaged-1x").write_text("not ours")
        (tmp_path / "run.json").write_text("{")
        damage.set_aside(str(tmp_path / "run.json"))
        assert sorted(path.name for path in tmp_path.iterdir()) == ["run.json.damaged-1x", "run.json.damaged-2"]

    def test_what_is_sound_or_missing_stays(self, run: Run) -> None:
        assert run.examine() == []
        run.open_attempt()
        run.write_state({"state": "ready"})
        run.append_event({"state": "ready"})
        assert run.examine() == []
        assert run.read_state() is not None

    @pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
    def test_what_we_could_not_look_at_is_not_damaged(self, tmp_path: Path, error: int) -> None:
        (tmp_path / "run.json").write_text("{")

        def fails(_: str) -> bool:
            raise OSError(error, os.strerror(error))

        assert damage.examined(str(tmp_path / "run.json"), fails) is None
        assert (tmp_path / "run.json").exists()

    def test_a_directory_that_takes_no_name_is_told(self, tmp_path: Path) -> None:
        assert "cannot be put aside" in damage.set_aside(str(tmp_path / "not there/run.json"))


class TestLines:
    def test_an_unfinished_line_stays_one_of_its_own(self, tmp_path: Path) -> None:
        path = tmp_path / "events.jsonl"
        path.write_text('{"whole": 1}\n{"half')
        files.append_line(str(path), '{"next": 2}')
        files.append_line(str(path), '{"next": 3}')
        assert path.read_text() == '{"whole": 1}\n{"half\n{"next": 2}\n{"next": 3}\n'

    def test_nothing_or_all_of_it(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path, write = tmp_path / "events.jsonl", os.write
        files.append_line(str(path), "before")
        monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:3]))
        with pytest.raises(OSError, match="No space left"):
            files.append_line(str(path), "after")
        assert path.read_text() == "before\n"

    def test_nobody_waits_for_the_reader_of_a_pipe(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "events.jsonl")
        with pytest.raises(OSError, match="no regular file"):
            files.append_line(str(tmp_path / "events.jsonl"), "x")


class TestLock:
    def test_a_living_holder_needs_no_file(self, run: Run) -> None:
        parent = procfs.identify(os.getppid())
        assert parent is not None
        said = {"state": "ready", "host": procfs.host_id()._asdict(), "supervisor": parent._asdict()}
        assert locking.is_held(said)
        run.write_state(said)
        assert run.lock() is None

    @pytest.mark.parametrize(
        "changed",
        [
            {"state": "done"},
            {"host": {"boot_id": "another", "pid_namespace": 1}},
            {"supervisor": {"pid": os.getppid(), "ticks": 1}},
            {"supervisor": procfs.self_id()._asdict()},
            {"supervisor": None},
        ],
    )
    def test_nobody_else_does(self, run: Run, changed: dict[str, object]) -> None:
        parent = procfs.identify(os.getppid())
        assert parent is not None
        said = {"state": "ready", "host": procfs.host_id()._asdict(), "supervisor": parent._asdict()} | changed
        run.write_state(said)
        fd = run.lock()
        assert fd is not None
        os.close(fd)


class TestLog:
    def test_one_that_was_emptied_is_read_on(self, tmp_path: Path) -> None:
        path = tmp_path / "server.log"
        path.write_text("before\n")
        log = LogFile(str(path))
        assert log.read() == b"before\n"
        os.truncate(path, 0)
        assert log.read() == b""
        with path.open("a") as file:
            file.write("now\n")
        assert log.read() == b"now\n"
        log.close()

    def test_one_that_was_removed_comes_back(self, tmp_path: Path) -> None:
        path = tmp_path / "server.log"
        path.write_text("before\n")
        log = LogFile(str(path))
        path.unlink()
        list(log.rescue())
        assert path.read_text() == "before\n"
        log.close()

    def test_one_that_was_moved_does_not(self, tmp_path: Path) -> None:
        path = tmp_path / "server.log"
        path.write_text("before\n")
        log = LogFile(str(path))
        path.rename(tmp_path / "elsewhere")
        list(log.rescue())
        assert not path.exists()
        log.close()

    def test_where_it_cannot_be_bounded_it_is_tried_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "server.log"
        path.write_bytes(b"x" * 65536)
        log = LogFile(str(path), Bound(limit=32768))
        while log.read():
            pass
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", _full)
            assert not log.trim()
            assert log.fault is not None
            assert "grows" in log.fault
        assert not log.trim()
        with path.open("ab") as file:
            file.write(b"y" * 16384)
        while log.read():
            pass
        assert log.trim()
        log.close()

    def test_one_that_cannot_be_read_is_told(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "server.log"
        path.write_text("before\n")
        log = LogFile(str(path))
        with monkeypatch.context() as patch:
            patch.setattr(os, "pread", _full)
            assert log.read() == b""
        assert log.unreadable
        assert log.read() == b"before\n"
        assert not log.unreadable
        log.close()


def _full(*_: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class TestGuard:
    SOUND = {  # noqa: RUF012 - nobody changes it
        "guard": procfs.self_id()._asdict(),
        "id": "1" * 32,
        "runtime_dir": None,
        "segments": [[1, 2]],
    }

    def test_a_record_as_we_write_it(self) -> None:
        assert guard._is_sound(self.SOUND)

    @pytest.mark.parametrize(
        "changed",
        [
            {"guard": None},
            {"guard": {"pid": 1}},
            {"id": 1},
            {"runtime_dir": ["/tmp"]},
            {"runtime_dir": 3},
            {"segments": None},
            {"segments": [[1]]},
            {"segments": [["a", "b"]]},
            {"segments": [1]},
        ],
    )
    def test_one_that_is_damaged(self, tmp_path: Path, changed: dict[str, object]) -> None:
        assert not guard._is_sound(self.SOUND | changed)
        (tmp_path / "attempt.json").write_text(json.dumps(self.SOUND | changed))
        guard._remove_leftovers(str(tmp_path / "attempt.json"))


class TestTime:
    def play(self, act: Callable[[VirtualLoop, Timers, list[float]], None]) -> tuple[list[float], list[float]]:
        """When deadlines were told, and what of it was lost."""
        fired: list[float] = []
        lost: list[float] = []

        async def history() -> None:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualLoop)
            act(loop, Timers(loop, lost.append), fired)
            await asyncio.sleep(1000)

        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(history())
        return fired, lost

    def test_a_deadline_is_where_it_was_to_be(self) -> None:
        def act(loop: VirtualLoop, timers: Timers, fired: list[float]) -> None:
            for delay_s in (0.0, 0.25, 5.0, 7.5, 600.0):
                timers.later(delay_s, lambda: fired.append(loop.time()))

        fired, lost = self.play(act)
        assert fired == pytest.approx([0.0, 0.25, 5.0, 7.5, 600.0])
        assert lost == []

    def test_time_in_which_we_stood_still_does_not_count(self) -> None:
        def act(loop: VirtualLoop, timers: Timers, fired: list[float]) -> None:
            def stand_still() -> None:
                loop.jumping.now += 500.0

            timers.later(100.0, lambda: fired.append(loop.time()))
            timers.later(300.0, lambda: fired.append(loop.time()))
            loop.call_later(51.0, stand_still)

        fired, lost = self.play(act)
        # A step that was begun before counts as a whole one.
        assert fired == pytest.approx([600.0, 800.0], abs=5.0)
        assert len(lost) == 1
        assert lost[0] == pytest.approx(496.0)

    def test_what_was_paused_goes_on_where_it_was(self) -> None:
        def act(loop: VirtualLoop, timers: Timers, fired: list[float]) -> None:
            def pause() -> None:
                with timers.paused():
                    loop.jumping.now += 50.0

            timers.later(20.0, lambda: fired.append(loop.time()))
            loop.call_later(12.0, pause)

        assert self.play(act)[0] == pytest.approx([70.0])

    def test_what_was_cancelled_never_comes(self) -> None:
        def act(loop: VirtualLoop, timers: Timers, fired: list[float]) -> None:
            timers.later(20.0, lambda: fired.append(loop.time()))
            loop.call_later(12.0, timers.cancel)

        assert self.play(act)[0] == []


def test_a_thread_that_dies_before_it_begins_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside._thread, "start_new_thread", lambda *_: 0)
    call = beside.Beside(lambda: 1)
    assert not call.wait(0.01)
    assert not call.runs


class TestWhileItRuns:
    def test_a_link_in_the_place_of_the_history_is_not_followed(self, run: Run, tmp_path: Path) -> None:
        outside = tmp_path / "outside"
        outside.write_text("theirs\n")
        (Path(run.path) / "events.jsonl").symlink_to(outside)
        with pytest.raises(OSError, match="symbolic links"):
            run.append_event({"state": "ready"})
        assert outside.read_text() == "theirs\n"

    @pytest.mark.parametrize("name", ["sequence", "latest"])
    def test_a_directory_in_their_place_does_not_keep_the_next_one_from_beginning(self, run: Run, name: str) -> None:
        run.open_attempt()
        (Path(run.path) / name).unlink()
        (Path(run.path) / name).mkdir()
        assert run.open_attempt().number == 2
        assert (Path(run.path) / f"{name}.damaged-1").is_dir()

    @pytest.mark.parametrize("damaged", ["", "{", '{"supervisor": "x"}'])
    def test_a_live_state_that_is_damaged_is_written_again(self, run: Run, damaged: str) -> None:
        said: list[str] = []
        us = procfs.self_id()
        journal = Journal(run, cast("Console", SimpleNamespace(error=said.append)), us, us, Tiers((), None, {}))
        attempt = run.open_attempt()
        attempt.write("attempt", {})
        journal.opened = cast("Opened", SimpleNamespace(attempt=attempt, leader=None))
        journal.publish(life.Ready(), None)
        (Path(run.path) / "run.json").write_text(damaged)
        journal.look()
        journal.look()
        state = run.read_state()
        assert state is not None
        assert state["state"] == "ready"
        assert len(said) == 1
        assert "not trusted" in said[0]


_FAILS = """
from unittest.mock import Mock
from supervise.runner.service import Service

service = Service.__new__(Service)
service._spared, service._breakages = set(), 0
service._acting, service._console, service._audience = Mock(), Mock(), Mock()
for _ in range({times}):
    service._raised(MemoryError())
"""


@pytest.mark.parametrize(("times", "status"), [(50, 0), (51, 125)])
def test_what_fails_in_every_turn_of_the_loop_does_not_fail_for_ever(times: int, status: int) -> None:
    ended = subprocess.run([sys.executable, "-c", _FAILS.format(times=times)], timeout=DEADLINE_S, check=False)
    assert ended.returncode == status
