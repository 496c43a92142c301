"""A server that lingers after its fatal line: the cause is told while it is still there."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.support.launcher import Supervise, free_port, standin
from tests.support.waiting import wait_until

TEXT = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB"


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    """A `vllm` that is the stand-in: only of an engine is a line known to be its end."""
    python, server, *_ = standin(port=0)
    program = tmp_path / "vllm"
    program.write_text(f'#!/bin/sh\nexec {python} {server} "$@"\n')
    program.chmod(0o755)
    return program


def test_the_cause_is_in_state_events_and_status_at_once(supervise: Supervise, engine: Path) -> None:
    failing = ("--crash-at", "load", "--linger", "--crash-text", TEXT)
    launched = supervise.start("--name", "X", engine, "serve", "m", "--port", free_port(), *failing)
    launched.wait_said("it has 60 s to end by itself")
    wait_until(lambda: "cause" in supervise.status(), failure=supervise.said)
    state = supervise.status()
    assert (state["state"], state["cause"]["signature"]) == ("starting", "cuda-out-of-memory")
    assert state["cause"]["text"] == TEXT
    # The state is written first.
    events = supervise.run_directory() / "events.jsonl"
    wait_until(lambda: '"cause"' in events.read_text(), failure=events.read_text)
    assert json.loads(events.read_text().splitlines()[-1])["cause"] == state["cause"]
    shown = supervise.run("status", "X")
    assert f"dying: {TEXT}" in shown.stdout
    launched.send(signal.SIGTERM)
    assert launched.wait() == -signal.SIGTERM
    outcome = supervise.outcome()
    assert (outcome["outcome"], outcome["exit_status"], outcome["cause"]["text"]) == ("asked", 143, TEXT)
    assert f"asked, exit 143: {TEXT}" in supervise.run("status", "X").stdout
    assert f"cause    {TEXT}" in supervise.run("report", "X").stdout


def test_a_server_that_is_well_has_no_cause(supervise: Supervise, engine: Path) -> None:
    said = f"(APIServer pid=1) INFO 11-30 05:00:00 [logger.py:39] Received request: prompt: '{TEXT}'"
    launched = supervise.start("--name", "X", engine, "serve", "m", "--port", free_port(), "--say", said)
    launched.wait_said("ready    in")
    assert "cause" not in supervise.status()
    assert "dying" not in supervise.run("status", "X").stdout
    launched.send(signal.SIGTERM)
    launched.wait()
    assert supervise.outcome()["cause"] is None
