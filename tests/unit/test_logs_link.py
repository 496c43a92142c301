"""The link in $LOGS_DIRECTORY: always to the newest attempt's log, never in the place of something of others."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from supervise.model.news import BecameReady, Launched
from supervise.report.console import Console
from supervise.report.logs_link import LogsLink, directory


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    made = tmp_path / "logs"
    made.mkdir()
    return made


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The directory of a run whose first attempt has begun."""
    made = tmp_path / "store/X"
    _attempt(made, 1)
    return made


def _attempt(home: Path, number: int) -> None:
    path = home / f"attempts/{number:04d}"
    path.mkdir(parents=True)
    (path / "server.log").write_text(f"of {number}")
    (home / "latest").unlink(missing_ok=True)
    (home / "latest").symlink_to(f"attempts/{number:04d}")


def _hear(logs: Path, home: Path, times: int = 1) -> str:
    said = io.StringIO()
    link = LogsLink(str(logs), "X", str(home), Console(said))
    link.hear(BecameReady(1, 1.0, {}))
    for _ in range(times):
        link.hear(Launched(1, f"{home}/attempts/0001/server.log", 4711))
    link.close()
    return said.getvalue()


def test_leads_to_each_attempt_in_turn(logs: Path, home: Path) -> None:
    assert _hear(logs, home) == ""
    assert (logs / "X.log").read_text() == "of 1"
    before = os.lstat(logs / "X.log").st_ino
    _attempt(home, 2)
    assert _hear(logs, home) == ""
    assert (logs / "X.log").read_text() == "of 2"
    assert os.lstat(logs / "X.log").st_ino == before
    assert os.listdir(logs) == ["X.log"]


def test_of_a_store_that_has_moved_is_replaced(logs: Path, home: Path) -> None:
    (logs / "X.log").symlink_to("/elsewhere/X/latest/server.log")
    assert _hear(logs, home) == ""
    assert (logs / "X.log").read_text() == "of 1"


@pytest.mark.parametrize("other", ["file", "directory", "link", "another run's"])
def test_of_others_stays(other: str, logs: Path, home: Path) -> None:
    there = logs / "X.log"
    if other == "file":
        there.write_text("precious")
    elif other == "directory":
        there.mkdir()
    else:
        there.symlink_to("/etc/passwd" if other == "link" else "/store/Y/latest/server.log")
    before = os.lstat(there)
    said = _hear(logs, home, times=3)
    assert said.count("not ours") == 1
    assert "attempts/0001/server.log" in said
    assert os.lstat(there).st_ino == before.st_ino
    assert os.listdir(logs) == ["X.log"]


def test_where_it_is_wanted() -> None:
    assert directory({}) is None
    assert directory({"LOGS_DIRECTORY": "/var/log/a:/var/log/b"}) == "/var/log/a"
