"""Whose packages a run's are: those that it was launched with, also where nobody names them again."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from supervise.attempts.store import Run, Store
from supervise.runner.plan import Clearing, Options
from supervise.verbs import replay
from supervise.verbs.engines import Engine, of_run
from supervise.verbs.recorded_command import Recorded


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Store(str(tmp_path)).run("X")
    run.create()
    return run


def engine(run: Run, *own: str, options: Options | None = None, env: dict[str, str] | None = None) -> Engine:
    record = {"argv": [sys.executable, "-c", ""], "options": list(own), "cwd": "/", "environment": env or {}}
    run.open_attempt().write("attempt", record)
    found = of_run(run, options or Options())
    assert isinstance(found, Engine)
    return found


def test_packages_that_were_named_are_not_forgotten(run: Run) -> None:
    own = ("--package", "a", "--package=b", "--watch", "package:c", "--watch=package:d", "--watch", "/x")
    assert engine(run, *own).packages == ("a", "b", "c", "d")
    more = Options(clearing=Clearing(packages=("z", "a")))
    assert engine(run, *own, options=more).packages == ("z", "a", "b", "c", "d")
    assert engine(run).packages == ()


def test_what_was_hidden_is_not_taken_for_a_value(run: Run) -> None:
    env = {"HF_TOKEN": "***", "HF_ENDPOINT": "https://ann:***@host", "HF_HOME": "/h"}
    found = engine(run, env=env).env
    assert (found.get("HF_TOKEN"), found.get("HF_ENDPOINT"), found["HF_HOME"]) == (None, None, "/h")


def test_a_watched_package_stays_one_for_a_replay(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    options = replay._options(run, Recorded(own=("--watch", "package:c", "--watch", "x")))
    assert options.watch == ("package:c", "/x")
