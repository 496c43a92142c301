"""Nobody waits for an import that is not needed: the launch path and `--help` load what they use, and no more."""

from __future__ import annotations

import subprocess
import sys

import pytest

from supervise.host import nvml
from tests.support.launcher import Supervise

# With a driver there, the clean slate reads the GPUs before every launch.
_GPUS = set() if nvml._present() else {"pynvml"}
THIRD_PARTY = {"typer", "click", "rich", "psutil", "watchfiles", "yaml", "pygments"} | _GPUS


def imported(supervise: Supervise, *words: str) -> set[str]:
    """All modules that supervise imports for these words; its standard error is a pipe, not a terminal."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "supervise", *words],
        env=supervise.env,
        cwd=supervise.base,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    timed = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in timed}


def test_a_launch_without_options_needs_no_third_party(supervise: Supervise) -> None:
    modules = imported(supervise, "true")
    assert {"supervise.runner", "supervise.group.handle"} <= modules
    assert modules & THIRD_PARTY == set()
    assert modules & {"argparse", "http.client", "urllib.request", "supervise.demo", "supervise.cli.parser"} == set()


def test_a_launch_with_options_needs_only_the_parser(supervise: Supervise) -> None:
    modules = imported(supervise, "--name", "x", "true")
    assert {"typer", "supervise.runner"} <= modules
    assert modules & {"psutil", "watchfiles", "yaml", *_GPUS} == set()


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["run", "--help"], ["clean", "--help"]], ids=" ".join)
def test_help_needs_only_the_parser(supervise: Supervise, words: list[str]) -> None:
    modules = imported(supervise, *words)
    assert "typer" in modules
    assert modules & {"psutil", "pynvml", "watchfiles", "yaml"} == set()
    ours = {module for module in modules if module.startswith("supervise.")}
    assert {module.split(".")[1] for module in ours} <= {"cli", "group", "model"}


def test_it_would_be_seen(supervise: Supervise) -> None:
    """The control: what is imported where it is needed is found by the same means."""
    assert "psutil" in imported(supervise, "status")
    config = supervise.base / "engine.yaml"
    config.write_text("port: 1\n")
    assert "yaml" in imported(supervise, "clean", "--dry-run", "vllm", "serve", "m", "--config", str(config))
