"""Real servers that stand still while they start, and their twins that only look like it."""

from __future__ import annotations

import pytest

from supervise.model.exits import Exit
from tests.support.launcher import Launched, Supervise, free_port

# Loads for so long without a word, in this way, before it becomes a stand-in.
QUIET = """
import os, sys, time
how, path, seconds, *rest = sys.argv[1:]
until = time.monotonic() + float(seconds)
while time.monotonic() < until:
    if how == "reads":
        with open(path, "rb") as file:
            file.read(2**20)
        time.sleep(0.02)
    elif how == "sleeps":
        time.sleep(0.02)
os.execv(sys.executable, [sys.executable, *rest])
"""
# Longer than the patience, shorter than what activity alone may last.
QUIET_S, PATIENCE_S = 4.5, 3.0


def quiet(supervise: Supervise, how: str) -> list[str]:
    """A server that begins like that."""
    program, blob = supervise.base / "quiet.py", supervise.base / "weights"
    program.write_text(QUIET)
    blob.write_bytes(bytes(2**20))
    words = supervise.standin("--load-s", "0.2", port=free_port())
    return [words[0], str(program), how, str(blob), str(QUIET_S), *words[1:]]


def start(supervise: Supervise, command: list[str]) -> Launched:
    return supervise.start("--profile", "vllm", "--stall-timeout", PATIENCE_S, *command)


def test_a_server_that_hangs_in_load_is_told_and_ended(supervise: Supervise) -> None:
    launched = start(supervise, supervise.standin("--hang-at", "load", "--load-s", "0.5", port=free_port()))
    launched.wait_said("stalled  no progress for ")
    assert "stop   " not in launched.stderr, "it is said well before anything is done"
    assert launched.wait() == Exit.NOT_READY
    assert "in weights; disk reads 0, " in launched.stderr
    outcome = supervise.outcome()
    assert outcome["outcome"] == "not-ready"
    assert "no progress for 3 s in weights" in outcome["cause"]["meaning"]


def test_a_load_as_slow_with_a_line_of_progress_now_and_then_becomes_ready(supervise: Supervise) -> None:
    launched = start(supervise, supervise.standin("--load-s", "5", port=free_port()))
    launched.wait_said("ready    in")


@pytest.mark.parametrize("how", ["reads", "spins"])
def test_one_that_is_silent_but_works_becomes_ready(supervise: Supervise, how: str) -> None:
    launched = start(supervise, quiet(supervise, how))
    launched.wait_said("ready    in")


def test_one_that_is_silent_and_idle_for_as_long_does_not(supervise: Supervise) -> None:
    launched = start(supervise, quiet(supervise, "sleeps"))
    assert launched.wait() == Exit.NOT_READY
