"""A probe as it is called every few seconds: what it costs, and that it knows no status but 0 and 1."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_imports import THIRD_PARTY, imported
from tests.support.launcher import Supervise

_HEAVY = {"asyncio", "subprocess", "http.client", "logging", "supervise.runner", "supervise.cli.parser"}


@pytest.mark.parametrize("words", [[], ["--live"], ["--ready", "X"], ["X", "--startup"]], ids=" ".join)
def test_it_needs_no_parser(supervise: Supervise, words: list[str]) -> None:
    modules = imported(supervise, "healthcheck", *words)
    assert "supervise.verbs.healthcheck" in modules
    assert modules & (THIRD_PARTY | _HEAVY) == set()


def test_a_mistake_does(supervise: Supervise) -> None:
    """The control."""
    assert {"typer", "supervise.cli.parser"} <= imported(supervise, "healthcheck", "--alive")


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ([], 1),
        (["--live"], 1),
        (["--live", "--live"], 1),
        (["nobody"], 1),
        (["--live", "--ready"], 2),
        (["--alive"], 2),
        (["one", "two"], 2),
        (["--help"], 0),
    ],
    ids=str,
)
def test_statuses(supervise: Supervise, words: list[str], status: int) -> None:
    done = supervise.run("healthcheck", *words)
    assert done.popen.returncode == status
    if status == 1:
        assert done.stdout.count("\n") == 1
        assert done.stdout.startswith("not ok: there is no run")
        assert done.stderr == ""


def test_nobody_reads_it(supervise: Supervise) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "supervise", "healthcheck"],
            env=supervise.env,
            cwd=supervise.base,
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
            timeout=20,
        )
    assert (done.returncode, done.stderr) == (1, b"")


def test_a_state_that_is_never_read_to_its_end(supervise: Supervise) -> None:
    """A pipe in the place of a file is not waited for."""
    run = Path(supervise.state, "supervise/X")
    (run / "attempts").mkdir(parents=True)
    os.mkfifo(run / "run.json")
    done = supervise.run("healthcheck", "--live", deadline_s=10.0)
    (run / "run.json").unlink()
    assert done.popen.returncode == 1
    assert "damaged" in done.stdout
