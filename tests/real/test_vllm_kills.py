"""Whoever is killed, whenever: nothing of a real vLLM outlives it, neither a process nor a name in /dev/shm.

Each case strikes some random time after the moment that it names; `VLLM_KILL_SEED` repeats one, and
`VLLM_KILL_ROUNDS` (default 1) repeats all of them with other times.
"""

from __future__ import annotations

import os
import random
import signal
import time
from dataclasses import dataclass

import pytest

from supervise.host import procfs, signals
from tests.real.server import Server
from tests.support.waiting import wait_gone

pytestmark = [pytest.mark.real, pytest.mark.timeout(420, func_only=True)]

SEED = int(os.environ.get("VLLM_KILL_SEED") or time.time_ns() % 2**32)
ROUNDS = int(os.environ.get("VLLM_KILL_ROUNDS", "1"))
STOP_S = 90.0


@dataclass(frozen=True)
class Setup:
    """A way to start vLLM: its flags, its environment, and the processes that it must at least consist of."""

    flags: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    titles: tuple[str, ...] = ("VLLM::EngineCore", "VLLM::Worker")
    model: str = "tiny"


_TWO_CORES = (("VLLM_CPU_OMP_THREADS_BIND", "0|1"),)
PLAIN = Setup()
TWO_OF_EACH = Setup(
    ("-tp", "2", "--api-server-count", "2"),
    _TWO_CORES,
    ("VLLM::EngineCore", "VLLM::APIServer_0", "VLLM::APIServer_1", "VLLM::Worker_TP0", "VLLM::Worker_TP1"),
)
# Its servers leave the process group, and go on answering after a killpg of it. It takes a mixture of experts.
EXTERNAL_BALANCER = Setup(
    ("--data-parallel-size", "2", "--data-parallel-size-local", "2", "--data-parallel-multi-port-external-lb"),
    _TWO_CORES,
    ("VLLM::EngineCore_DP0", "VLLM::EngineCore_DP1"),
    "tiny-moe",
)

# The moment after which it is struck: a line of the log, None for the very beginning; and how long after it at most.
IMPORTS = (None, 12.0)
ENGINE = ("Initializing a V1 LLM engine", 8.0)
LOAD = ("Starting to load model", 4.0)
SERVING = ("ready", 2.0)


@pytest.mark.parametrize("number", range(ROUNDS))
@pytest.mark.parametrize(
    ("setup", "moment", "killed"),
    [
        pytest.param(PLAIN, IMPORTS, ("supervisor", "keeper"), id="plain-imports-two-of-us"),
        pytest.param(PLAIN, ENGINE, ("keeper",), id="plain-engine-keeper"),
        pytest.param(PLAIN, LOAD, ("supervisor", "guard", "keeper"), id="plain-load-all-of-us"),
        pytest.param(TWO_OF_EACH, SERVING, ("supervisor", "guard", "keeper"), id="tp2-api2-serving-all-of-us"),
        pytest.param(EXTERNAL_BALANCER, SERVING, ("leader",), id="external-lb-serving-leader"),
    ],
)
def test_nothing_is_left(
    server: Server, setup: Setup, moment: tuple[str | None, float], killed: tuple[str, ...], number: int
) -> None:
    line, at_most = moment
    delay = random.Random(f"{SEED} {setup} {moment} {killed} {number}").uniform(0.0, at_most)
    print(f"VLLM_KILL_SEED={SEED}: {killed} {delay:.2f} s after {line or 'the launch'}")
    reach(server, setup, line)
    time.sleep(delay)
    server.group()
    kill_together(server, *killed)
    server.launched.wait(STOP_S)
    if {"supervisor", "guard", "keeper"} <= set(killed):
        assert server.survivors()
        assert server.supervise.run("clean", deadline_s=STOP_S).popen.returncode == 0
    wait_gone([server.supervise.identity(role) for role in ("guard", "keeper")], STOP_S)
    if "supervisor" in killed:
        # Names in the file system are left to whoever comes next.
        assert server.supervise.run("clean", deadline_s=STOP_S).popen.returncode == 0
    server.assert_nothing_left()


def test_an_engine_that_is_stopped_does_not_hold_up_the_end(server: Server) -> None:
    """/health goes on answering 200 over it, and SIGTERM cannot reach it."""
    server.start().wait_ready()
    signals.send(server.engine_core(), signal.SIGSTOP)
    server.launched.send(signal.SIGTERM)
    assert server.launched.wait(STOP_S) == -signal.SIGTERM
    server.assert_nothing_left()
    assert server.supervise.outcome()["clean"]


def reach(server: Server, setup: Setup, line: str | None) -> None:
    """Start it, and wait for that line of its log."""
    server.vllm.environment.update(setup.environment)
    server.start(*setup.flags, model=setup.model)
    if line == "ready":
        server.wait_ready()
        titles = {(member.argv or ("",))[0].split("\0")[0] for member in server.group()}
        assert set(setup.titles) <= titles, titles
    elif line is not None:
        server.wait_logged(line)
    else:
        server.supervise.wait_state("starting")


def kill_together(server: Server, *roles: str) -> None:
    """Without a moment in which one can see the other die."""
    targets = [server.supervise.identity(role) for role in roles]
    for signum in (signal.SIGSTOP, signal.SIGKILL):
        for target in targets:
            signals.send(target, signum)
    wait_gone(targets)
    assert all(procfs.identify(target.pid) != target or not signals.alive(target) for target in targets)
