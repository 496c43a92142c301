"""Whose place is not taken, and what is said to whoever wanted to."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from supervise.attempts.store import Run, Store
from supervise.host import procfs, signals
from supervise.model.process import ProcessId
from supervise.report.console import Console
from supervise.runner import replacing
from supervise.runner.asking import RefusedError
from supervise.verbs import restart as verb


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = Store(str(tmp_path)).run("r")
    made.create()
    return made


def held_by(run: Run, who: ProcessId) -> None:
    run.write_state({"host": procfs.host_id()._asdict(), "supervisor": who._asdict(), "state": "ready"})


def init() -> ProcessId:
    found = procfs.identify(1)
    assert found is not None
    return found


# --- --replace --------------------------------------------------------------------------------------------------------


def test_one_of_the_same_second_is_not_ended_and_that_is_why(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replacing, "take_over", lambda *_: pytest.fail("it is ended"))
    monkeypatch.setattr(Run, "lock", lambda _: None)
    held_by(run, procfs.self_id())
    out = io.StringIO()
    planned: Any = None
    assert replacing.take(planned, Store(str(run.path)), run, Console(out)) is None
    assert "began within the same second as this one" in out.getvalue()
    assert "take its place" not in out.getvalue()


def test_one_that_has_not_said_yet_who_it_is_gets_a_moment(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Run, "lock", lambda _: None)
    monkeypatch.setattr(replacing, "take_lock", lambda *_: pytest.fail("it is refused in other words"))
    monkeypatch.setattr(replacing.time, "sleep", lambda _: held_by(run, procfs.self_id()))
    out = io.StringIO()
    planned: Any = None
    assert replacing.take(planned, Store(str(run.path)), run, Console(out)) is None
    assert "the same second" in out.getvalue()


@pytest.mark.parametrize("can", [True, False])
def test_it_is_ended_only_if_the_launch_can_be(run: Run, monkeypatch: pytest.MonkeyPatch, *, can: bool) -> None:
    from supervise.runner import foresight

    class Planned:
        deadlines = None

    ended: list[ProcessId] = []
    planned: Any = Planned()
    monkeypatch.setattr(Run, "lock", lambda _: None)
    monkeypatch.setattr(replacing, "_begun_since", lambda _: False)
    monkeypatch.setattr(foresight, "foresee", lambda *_: can)
    monkeypatch.setattr(replacing, "take_over", lambda _, who, *__: ended.append(who) or 7)
    held_by(run, init())
    assert replacing.take(planned, Store(str(run.path)), run, Console(io.StringIO())) == (7 if can else None)
    assert ended == ([init()] if can else [])


# --- restart ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def asking(run: Run, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(verb, "choose", lambda *_, **__: run)
    held_by(run, init())
    return monkeypatch


def test_one_that_ends_meanwhile_has_ended(
    run: Run, asking: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def ask(*_: object) -> None:
        run.close_attempt(run.open_attempt(), {"outcome": "died", "failed": True, "exit_status": 7, "cause": None})
        run.write_state({"state": "done"})

    asking.setattr(verb, "ask", ask)
    asking.setattr(signals, "alive", lambda _: not run.latest())
    assert verb.restart("r", wait=False, timeout_s=None) == 3
    said = capfd.readouterr().err
    assert "has ended with status 7: died" in said
    assert "cannot be asked" not in said


@pytest.mark.parametrize(("told", "status"), [(3, 3), (94, 94), (None, 125)])
def test_a_refusal_says_what_it_means(
    asking: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], told: int | None, status: int
) -> None:
    def refuse(*_: object) -> None:
        raise RefusedError("no", told)

    asking.setattr(verb, "ask", refuse)
    assert verb.restart("r", wait=False, timeout_s=None) == status
    assert "run r does not restart: no" in capfd.readouterr().err


def test_one_that_is_not_running_is_not_said_to_be_started_by_report(
    run: Run, asking: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run.write_state({"state": "done"})
    assert verb.restart("r", wait=False, timeout_s=None) == 3
    assert "nothing to restart; launch it anew" in capfd.readouterr().err
