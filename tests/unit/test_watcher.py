"""Notices that fail, and what people are told of a change: the watcher alone, with files of its own."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from supervise import lifecycle as life
from supervise.host import notices, watched
from supervise.model.news import Changed, Entered, Launched, News
from supervise.model.watch import OnChange
from supervise.report.console import Console
from supervise.runner.plan import Options, make
from supervise.runner.watcher import Watcher
from supervise.runner.watchlist import Watchlist

DEADLINE_S = 20.0


class Scene:
    """A watcher of one directory, and what it says and wants."""

    def __init__(self, path: Path, on_change: OnChange = OnChange.NOW) -> None:
        self.now, self.refusal = time.monotonic, list[str]()
        self.path, self.out = path, io.StringIO()
        self.posted: list[life.Event] = []
        self.told: list[News] = []
        self.watchlist = Watchlist([str(path)])
        planned = make(["sleep", "1"], {"PATH": "/usr/bin"}, Options(on_change=on_change))
        console, more = Console(self.out), (self.foreseen, self.clock)
        self.watcher = Watcher(planned, self.watchlist, self.told.append, console, "X", *more)
        self.watcher.begin(self.posted.append)

    def clock(self) -> float:
        return self.now()

    def foreseen(self) -> str | None:
        return self.refusal[0] if self.refusal else None

    def launched(self, attempt: int = 1) -> None:
        self.watchlist.begin()
        self.watcher.hear(Launched(attempt, "", 1))
        self.enter("starting")

    def enter(self, state: str) -> None:
        self.watcher.hear(Entered(state, 1, None, None, 0.0))

    async def wait(self, text: str) -> None:
        await wait_for(lambda: text in self.out.getvalue())

    async def leave(self) -> None:
        self.watcher.close()
        await self.watcher.finished()


async def wait_for(so: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not so():
            await asyncio.sleep(0.02)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (made := tmp_path / "work").mkdir()
    (made / "a.py").write_text("x = 1\n")
    return made


def test_one_relaunch_is_asked_for_until_there_is_one(work: Path) -> None:
    async def history() -> None:
        scene = Scene(work)
        scene.launched()
        (work / "a.py").write_text("x = 2\n")
        (work / "b.py").write_text("")
        await scene.wait("work/a.py, work/b.py changed: relaunch")
        (work / "c.py").write_text("(")
        await scene.wait("work/c.py, line 1: SyntaxError")
        (work / "c.py").write_text("")
        scene.enter("stopping")
        scene.enter("sweeping")
        scene.launched(2)
        await scene.wait("work/c.py changed: new in attempt 2")
        (work / "c.py").write_text("x = 3\n")
        await scene.wait("work/c.py changed: relaunch")
        await scene.leave()
        assert scene.posted == [
            life.RestartAsked("a change: work/a.py +1 more"),
            life.RestartAsked("a change: work/c.py"),
        ]
        assert Changed(("work/a.py", "work/b.py"), "relaunch") in scene.told

    asyncio.run(history())


def test_a_change_that_is_taken_back_is_none(work: Path) -> None:
    async def history() -> None:
        scene = Scene(work, OnChange.AFTER_READY)
        scene.launched()
        (work / "a.py").write_text("x = 2\n")
        await scene.wait("work/a.py changed: relaunch after it is ready")
        (work / "a.py").write_text("x = 1\n")
        await scene.wait("work/a.py changed: it is as at the launch again")
        scene.enter("ready")
        (work / "b.py").write_text("")
        await scene.wait("work/b.py changed: relaunch\n")
        await scene.leave()
        assert scene.posted == [life.RestartAsked("a change: work/b.py")]

    asyncio.run(history())


def test_without_notices_changes_are_found_by_looking(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "no space left")

    monkeypatch.setattr(notices, "RustNotify", refuse)

    async def history() -> None:
        scene = Scene(work)
        scene.launched()
        await scene.wait("no notices of changes (no space left); files are looked at now and then")
        (work / "a.py").write_text("x = 2\n")
        await scene.wait("work/a.py changed: relaunch")
        await scene.leave()

    asyncio.run(history())


def test_a_relaunch_that_is_sure_to_be_refused_ends_nothing(work: Path) -> None:
    async def history() -> None:
        scene = Scene(work)
        scene.refusal.append("the disk is full")
        scene.launched()
        scene.enter("ready")
        (work / "a.py").write_text("x = 2\n")
        await scene.wait("work/a.py changed: no relaunch, it would be refused: the disk is full\n")
        scene.enter("ready")  # it is looked again: what is known is said once
        (work / "b.txt").write_text("")
        (work / "b.py").write_text("")
        await scene.wait("work/a.py, work/b.py changed: no relaunch, it would be refused: the disk is full\n")
        (work / "a.py").write_text("x = 3\n")
        await wait_for(lambda: scene.out.getvalue().count("a.py, work/b.py changed: no relaunch") == 2)
        assert scene.posted == []
        scene.refusal.clear()
        real = time.monotonic
        scene.now = lambda: real() + 100.0  # a minute later
        await scene.wait("work/a.py, work/b.py changed: relaunch\n")
        await scene.leave()
        assert scene.posted == [life.RestartAsked("a change: work/a.py +1 more")]
        assert scene.out.getvalue().count("refused") == 3

    asyncio.run(history())


@pytest.mark.parametrize("on_change", [OnChange.ASK, OnChange.AFTER_READY])
def test_nothing_is_foreseen_where_nothing_is_launched(work: Path, on_change: OnChange) -> None:
    async def history() -> None:
        scene = Scene(work, on_change)
        scene.refusal.append("the disk is full")
        scene.launched()
        (work / "a.py").write_text("x = 2\n")
        await scene.wait("work/a.py changed: ")
        await scene.leave()
        assert "refused" not in scene.out.getvalue()

    asyncio.run(history())


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (PermissionError(13, "Permission denied"), "Permission denied"),
        (notices.WatchfilesRustInternalError("Too many open files"), "Too many open files"),
    ],
)
def test_a_directory_that_may_not_be_read_and_a_limit_have_files_looked_at(
    work: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, why: str
) -> None:
    """The kernel's notices would end at that directory, without a word."""

    class Refusing:
        def __init__(self, *arguments: object) -> None:
            ignored = bool(arguments[-1]) and isinstance(error, PermissionError)
            if not ignored:
                raise error

        def watch(self, *_: object) -> str:
            return "timeout"

        def close(self) -> None:
            pass

    monkeypatch.setattr(notices, "RustNotify", Refusing)

    async def history() -> None:
        scene = Scene(work)
        scene.launched()
        await scene.wait(f"no notices of changes ({why}); files are looked at now and then")
        (work / "a.py").write_text("x = 2\n")
        await scene.wait("work/a.py changed: relaunch")
        await scene.leave()

    asyncio.run(history())


def test_more_files_than_are_looked_at_are_told_of_when_they_come(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def history() -> None:
        scene = Scene(work)
        monkeypatch.setattr(watched.look, "__defaults__", (None, 6))
        scene.launched()
        for number in range(8):
            (work / f"n{number}.py").touch()
        await scene.wait("--watch: too many files by now")
        await scene.wait("changed: relaunch")
        await scene.leave()
        assert scene.out.getvalue().count("too many") == 1

    asyncio.run(history())
