"""Notices that fail, and what people are told of a change: the watcher alone, with files of its own."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest

from supervise import lifecycle as life
from supervise.host import notices
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
        self.path, self.out = path, io.StringIO()
        self.posted: list[life.Event] = []
        self.told: list[News] = []
        self.watchlist = Watchlist([str(path)])
        planned = make(["sleep", "1"], {"PATH": "/usr/bin"}, Options(on_change=on_change))
        self.watcher = Watcher(planned, self.watchlist, self.told.append, Console(self.out), "X")
        self.watcher.begin(self.posted.append)

    def launched(self, attempt: int = 1) -> None:
        self.watchlist.begin()
        self.watcher.hear(Launched(attempt, "", 1))
        self.enter("starting")

    def enter(self, state: str) -> None:
        self.watcher.hear(Entered(state, 1, None, None, 0.0))

    async def wait(self, text: str) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while text not in self.out.getvalue():
                await asyncio.sleep(0.02)

    async def leave(self) -> None:
        self.watcher.close()
        await self.watcher.finished()


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
