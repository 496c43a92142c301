"""What `status` says of runs that are over: how the run ended, and how its last attempt did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from supervise.attempts.store import Run
from supervise.verbs import select
from supervise.verbs import status as verb
from tests.support.launcher import Supervise

SILENT = {"text": None, "meaning": "The kernel's OOM killer ended 1 of the group (oom_kill of its cgroup)."}
ENDED = {"exit_status": 94, "why": "the relaunch was refused, the slate is not clean"}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    made = Run(str(tmp_path), "r")
    made.create()
    monkeypatch.setattr(select.procfs, "scan", dict)
    return made


def told(run: Run) -> str:
    return verb._line(verb._describe(run)).partition("  /")[0].partition("attempt ")[2]


def close(run: Run, **outcome: Any) -> None:
    died = {"outcome": "died", "exit_status": 1, "failed": True, "verified": True, "cause": {"text": "boom"}}
    run.close_attempt(run.open_attempt(), died | outcome)


def test_the_last_attempt(run: Run) -> None:
    close(run)
    run.write_state({"state": "done"})
    assert told(run) == "1    died, exit 1: boom"


def test_what_nobody_printed_is_told_by_what_is_known(run: Run) -> None:
    close(run, exit_status=93, cause=SILENT)
    assert told(run) == f"1    died, exit 93: {SILENT['meaning']}"
    assert verb._describe(run)["cause"] == SILENT["meaning"]


def test_a_run_that_ended_after_its_last_attempt(run: Run) -> None:
    close(run)
    run.write_state({"state": "done", "ended": ENDED})
    assert told(run) == f"1    {ENDED['why']}, exit 94; attempt 1: died, exit 1: boom"
    assert verb._describe(run)["ended"] == ENDED


def test_a_run_that_never_launched(run: Run) -> None:
    assert "never launched" in told(run)
    run.write_state({"state": "done", "ended": ENDED})
    assert told(run) == f"-    {ENDED['why']}, exit 94"


def test_an_end_without_a_record(run: Run) -> None:
    run.open_attempt()
    run.write_state({"state": "ready", "attempt": 1})
    assert told(run) == "1    no record of how it ended: its supervise was killed, or could not write"
    run.write_state({"state": "done", "ended": {"exit_status": 125, "why": "the relaunch failed: x"}})
    assert told(run) == "1    the relaunch failed: x, exit 125; attempt 1: no record of how it ended"


@pytest.mark.parametrize("damage", [[], "x", {"exit_status": "x"}, {"exit_status": 1, "why": 7}, {"why": "x"}, 10**400])
def test_damage_is_not_believed(run: Run, damage: Any) -> None:
    close(run)
    run.write_state({"state": "done", "ended": damage})
    assert told(run) == "1    died, exit 1: boom"


@pytest.mark.root
@pytest.mark.parametrize("closed", ["", "r"], ids=["store", "run"])
@pytest.mark.parametrize(
    ("words", "status"),
    [(["status"], 125), (["status", "r"], 125), (["stop"], 125), (["stop", "r"], 125), (["healthcheck"], 1)],
    ids=str,
)
def test_what_is_another_users_is_not_empty(
    supervise_as_nobody: Supervise, closed: str, words: list[str], status: int
) -> None:
    store = supervise_as_nobody.state / "supervise"
    made = Run(str(store), "r")
    made.create()
    store.chmod(0o755)
    store.joinpath(closed).chmod(0o700)
    done = supervise_as_nobody.run(*words)
    assert done.popen.returncode == status
    (line,) = (done.stdout + done.stderr).splitlines()
    assert f"{store.joinpath(closed)}: Permission denied" in line
