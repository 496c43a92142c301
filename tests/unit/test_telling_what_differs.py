"""What differs from the attempt before is told once it is ready, and only what is new of it at the end."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest

from supervise.attempts import sources
from supervise.attempts.store import Run
from supervise.model.news import BecameReady, Ending, Meanwhile
from supervise.model.sources import Sources
from supervise.report.console import Console
from supervise.runner import comparing
from supervise.runner.comparing import Comparing

PATIENCE_S = 0.3


def test_what_has_been_told_of_an_attempt_is_not_told_again() -> None:
    console = Console(out := io.StringIO())
    console.attempt(2, "/log")
    console.compared(("differs from #1 by: patch a.py", "ready as #1"))
    console.compared(("differs from #1 by: patch a.py", "cause moved: ready -> KeyError"))
    console.attempt(3, "/log")
    console.compared(("cause moved: ready -> KeyError",))
    told = [line.split(maxsplit=1) for line in out.getvalue().splitlines()]
    assert [line for line in told if line[0] != "attempt"] == [
        ["compared", "differs from #1 by: patch a.py"],
        ["ready", "as #1"],
        ["compared", "cause moved: ready -> KeyError"],
        ["compared", "cause moved: ready -> KeyError"],
    ]


class Scene:
    def __init__(self, path: Path) -> None:
        self.run, self.out = Run(str(path), "r"), io.StringIO()
        self.run.create()
        for argv in (["vllm", "serve", "m"], ["vllm", "serve", "m", "--enforce-eager"]):
            attempt = self.run.open_attempt()
            attempt.write("attempt", {"argv": argv})
            attempt.write("outcome", {"outcome": "asked", "ready_s": 1.0, "phases": {}}) if len(argv) == 3 else None
            self.last = attempt
        self.comparing = Comparing(self.run, Console(self.out))

    def ready(self) -> None:
        self.comparing.hear(BecameReady(2, 1.0, {}))


async def until_over(scene: Scene) -> None:
    assert scene.comparing._task is not None
    await asyncio.wait({scene.comparing._task}, timeout=20)


@pytest.mark.parametrize("files", [(), ("/x/llama.py",)])
def test_once_its_code_is_recorded_it_is_told(tmp_path: Path, files: tuple[str, ...]) -> None:
    async def history() -> None:
        scene = Scene(tmp_path)
        scene.ready()
        await asyncio.sleep(0)
        scene.comparing.hear(Meanwhile(files))
        sources.write(scene.last, Sources(), {})
        await until_over(scene)
        assert "differs from #1 by: added --enforce-eager" in scene.out.getvalue()
        assert "ready as #1" in scene.out.getvalue()
        assert ("llama.py changed while #2 loaded" in scene.out.getvalue()) is bool(files)

    asyncio.run(history())


@pytest.mark.parametrize("ends", [True, False])
def test_what_is_over_or_not_recorded_is_told_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    monkeypatch.setattr(comparing, "_PATIENCE_S", PATIENCE_S)

    async def history() -> None:
        scene = Scene(tmp_path)
        scene.ready()
        await asyncio.sleep(0)
        scene.comparing.hear(Meanwhile(())) if not ends else None
        if ends:
            scene.comparing.hear(Ending("SIGTERM", asked=True, restarts=False, within_s=1.0))
            sources.write(scene.last, Sources(), {})
        await until_over(scene)
        assert scene.out.getvalue() == ""

    asyncio.run(history())
