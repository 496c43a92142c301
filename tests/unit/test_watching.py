"""A log is read in turns: nobody waits for it, and what was not read is counted."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from supervise.attempts.log import LogFile
from supervise.diagnosis.scanner import SparseReader
from supervise.lifecycle import Cause, Done, Reason
from supervise.model.diagnosis import Line
from supervise.runner import watching
from supervise.runner.ended import Ended
from supervise.runner.report import Account, _outcome
from supervise.runner.watching import LogWatch

LINE = b"as plain as can be" * 50 + b"\n"
MANY = 3000


class Following:
    """A log that is followed, by one who takes some time for each line."""

    def __init__(self, path: Path, seconds: float = 0.0) -> None:
        self.lines: list[Line] = []
        self.log = LogFile(str(path))
        self._seconds = seconds
        self.watch = LogWatch(self.log, SparseReader(lambda: None), self._take)

    def _take(self, line: Line) -> None:
        self.lines.append(line)
        until = time.perf_counter() + self._seconds
        while time.perf_counter() < until:
            pass


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "server.log"
    path.write_bytes(LINE * MANY)
    return path


def live(act: Callable[[], Coroutine[None, None, None]]) -> None:
    asyncio.run(act())


def test_others_get_their_turn_while_much_is_read(path: Path) -> None:
    async def act() -> None:
        following = Following(path, seconds=1e-4)
        turns = 0
        while len(following.lines) < MANY:
            await asyncio.sleep(0)
            turns += 1
        assert turns >= 5
        await following.watch.finish()

    live(act)


def test_it_is_read_to_its_end(path: Path) -> None:
    async def act() -> None:
        path.write_bytes(LINE * MANY + b"unfinished")
        following = Following(path)
        assert await following.watch.finish() == 0
        assert [following.lines[-1].number, following.lines[-1].text] == [MANY + 1, "unfinished"]

    live(act)


def test_what_comes_after_the_end_that_was_set_is_not_taken(path: Path) -> None:
    async def act() -> None:
        following = Following(path)
        following.watch.end_here()
        with path.open("ab") as file:
            file.write(b"too late\n")
        following.watch.end_here()
        assert await following.watch.finish() == 0
        assert (len(following.lines), following.lines[-1].text) == (MANY, LINE.decode().strip())

    live(act)


def test_what_was_dropped_is_not_taken_and_not_missed(path: Path) -> None:
    async def act() -> None:
        following = Following(path, seconds=1e-3)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        taken = len(following.lines)
        following.watch.drop()
        assert await following.watch.finish() == 0
        assert 0 < taken == len(following.lines) < 1000

    live(act)


def test_what_there_is_no_time_for_is_counted(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_REST_S", 0.0)
    monkeypatch.setattr(watching, "_LAST_BYTES", 100 * len(LINE))

    async def act() -> None:
        path.write_bytes(LINE * 2 * MANY)
        following = Following(path, seconds=1e-4)
        unread = await following.watch.finish()
        lines, size = following.lines, os.path.getsize(path)
        assert 0 < unread < size
        assert lines[-1].number == 2 * MANY, "what is read after a gap has its number in the whole log"
        assert len(lines) < 2 * MANY - unread // len(LINE) + 2

    live(act)


def test_what_was_not_read_is_told() -> None:
    told = Account(Reason(Cause.DIED, status=1), Ended(log_unread=5), None, None, {})
    assert _outcome(told, Done(1))["log_unread_bytes"] == 5
    told = Account(Reason(Cause.DIED, status=1), Ended(), None, None, {})
    assert "log_unread_bytes" not in _outcome(told, Done(1))
