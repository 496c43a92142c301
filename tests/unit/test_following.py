"""A run followed by its files alone, and what is said of it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from supervise.attempts.store import Run
from supervise.host import procfs
from supervise.model.process import ProcessId
from supervise.verbs import following as module
from supervise.verbs.following import Following, ended, line, look

ENDED = {"outcome": "died", "exit_status": 7, "failed": True, "verified": True, "cause": {"text": "boom"}}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = Run(str(tmp_path), "r")
    made.create()
    return made


def live(run: Run, **said: Any) -> None:
    """As if this very process were its supervise."""
    run.write_state({"host": procfs.host_id()._asdict(), "supervisor": procfs.self_id()._asdict(), **said})


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({}, "r  begins"),
        ({"state": "sweeping"}, "r  sweeping"),
        ({"state": "starting", "attempt": 3}, "r  starting  attempt 3"),
        (
            {"state": "starting", "attempt": 3, "phase": "weights", "percent": 40.4, "eta_s": 30.0},
            "r  starting  attempt 3  weights 40 %, ready in about 30 s",
        ),
        (
            {"state": "starting", "phase": "weights", "stalled": "no progress"},
            "r  starting  weights; STALLED: no progress",
        ),
        ({"state": "ready", "attempt": 3, "ready_s": 41.0, "phase": "weights"}, "r  ready  attempt 3  after 41 s"),
        ({"state": "ready", "ready_s": "soon", "percent": "x"}, "r  ready"),
        ({"state": "starting", "cause": "boom\x1b[31m"}, "r  starting  boom\\x1b[31m"),
        ({"state": "ready", "over": True, "exit_status": 143, "attempt": 3}, "r  ended  attempt 3  exit 143"),
        ({"over": True}, "r  ended  no record of how it ended"),
    ],
)
def test_in_words(said: dict[str, Any], expected: str) -> None:
    assert line({"run": "r", **said}) == expected


def test_the_wait_for_a_relaunch() -> None:
    assert "relaunch in 7 days" in line({"run": "r", "state": "waiting", "relaunch_at": time.time() + 7 * 86400})


def test_each_change_is_told_once(run: Run) -> None:
    live(run, state="starting", phase="weights")
    following = Following(run)
    first = following.next(0)
    assert first is not None
    assert (first["state"], first["phase"], first["over"]) == ("starting", "weights", False)
    assert following.next(0.05) is None
    live(run, state="ready")
    assert (following.next(0.05) or {})["state"] == "ready"
    run.close_attempt(run.open_attempt(), ENDED)
    run.write_state({"state": "done"})
    last = following.next(0.05)
    assert last is not None
    assert (last["over"], last["exit_status"], last["cause"]) == (True, 7, "boom")


def test_how_a_run_ended_comes_before_how_its_last_attempt_did(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    run.close_attempt(run.open_attempt(), ENDED)
    run.write_state({"state": "done", "ended": {"exit_status": 94, "why": "refused"}})
    assert ended(run, look(run)) == 94
    run.write_state({"state": "done"})
    assert ended(run, look(run)) == 7
    assert "ended with status 7: boom" in capfd.readouterr().err


def test_an_end_that_nobody_wrote_down(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    run.open_attempt()
    run.write_state({"state": "ready"})
    assert ended(run, look(run)) == 125
    assert "no record of how" in capfd.readouterr().err


def test_what_a_killed_supervise_wrote_last_is_true_no_more(run: Run) -> None:
    # Its keeper lives, and is ending the group.
    run.write_state({"host": procfs.host_id()._asdict(), "keeper": procfs.self_id()._asdict(), "state": "ready"})
    said = look(run)
    assert (said["state"], said["over"]) == ("orphaned", False)


OLD = ProcessId(4711, 1)


def replaced(run: Run, *, event: dict[str, Any] | None = None) -> None:
    """As if this very process had taken the place of another one, which has left two attempts."""
    for outcome in (ENDED, {**ENDED, "exit_status": 143, "outcome": "asked", "cause": None, "failed": False}):
        attempt = run.open_attempt()
        attempt.write("attempt", {"id": "x", "supervisor": OLD._asdict()})
        run.close_attempt(attempt, outcome)
    if event is not None:
        run.append_event({"state": "done", "attempt": 2, **event})
    attempt = run.open_attempt()
    attempt.write("attempt", {"id": "y", "supervisor": procfs.self_id()._asdict()})
    live(run, state="ready", attempt=3)


def test_one_whose_run_another_has_is_over_with_a_status_of_its_own(
    run: Run, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced(run)
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("nothing is to be waited for"))
    said = Following(run, OLD).next(0)
    assert said is not None
    assert (said["over"], said["attempt"], said["exit_status"]) == (True, 2, 143)
    assert ended(run, said, OLD) == 143
    assert "with status 143\n" in capfd.readouterr().err
    # The one that has the run now is another matter.
    now = Following(run).next(0)
    assert now is not None
    assert (now["over"], now["state"], now["attempt"]) == (False, "ready", 3)


def test_what_ended_it_after_its_last_attempt_comes_first(run: Run) -> None:
    replaced(run, event={"ended": {"exit_status": 94, "why": "refused"}})
    assert look(run, OLD)["exit_status"] == 94


@pytest.mark.parametrize("event", [{}, {"ended": None}, {"ended": {"exit_status": "x"}}, {"ended": [1]}])
def test_an_event_that_says_nothing_of_it_is_passed_over(run: Run, event: dict[str, Any]) -> None:
    replaced(run, event=event)
    assert look(run, OLD)["exit_status"] == 143


def test_of_one_without_an_attempt_nobody_knows_how_it_ended(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    replaced(run)
    assert ended(run, look(run, ProcessId(4712, 1)), ProcessId(4712, 1)) == 125
    assert "no record of how" in capfd.readouterr().err


def test_the_outcome_has_the_last_word(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    """What was said before it was written was told from a log that ends in the middle."""
    lost = {**ENDED, "outcome": "keeper-lost", "exit_status": 125, "cause": None}
    run.close_attempt(run.open_attempt(), lost)
    run.write_state({"state": "done"})
    assert ended(run, {"exit_status": 125, "cause": "The server has not ended.", "over": True}) == 125
    assert "ended with status 125: keeper lost\n" in capfd.readouterr().err
    assert ended(run, {"exit_status": 96, "cause": "gave up", "over": True}) == 96


def test_one_that_is_suspended_is_said_to_be(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    live(run, state="ready")
    following = Following(run)
    assert (following.next(0) or {})["state"] == "ready"
    monkeypatch.setattr(module, "suspended", lambda _: True)
    assert (following.next(0.05) or {})["state"] == "suspended"
    monkeypatch.setattr(module, "suspended", lambda _: False)
    assert (following.next(0.05) or {})["state"] == "ready"
