"""The main job on a real vLLM: whatever happens, the cause is the right line and nothing is left.

That it serves and is stopped, tests/real/test_vllm_debug_loop.py shows.
"""

from __future__ import annotations

import signal
import socket

import pytest

from supervise.host import signals
from supervise.model.exits import Exit
from tests.real.models import MISSING_WEIGHT
from tests.real.server import START_S, Server
from tests.support.waiting import DEADLINE_S

# The fixture that installs vLLM is not timed, it has deadlines of its own.
pytestmark = [pytest.mark.real, pytest.mark.timeout(300, func_only=True)]

ENGINE_UP = "Initializing a V1 LLM engine"
LOADING = "Starting to load model"
# A vLLM that loads takes the second of the repeated SIGTERMs and then some 10 s; the profile's grace is 30 s.
STOP_S = 60.0


def test_one_sigterm_stops_it_while_it_loads(server: Server) -> None:
    server.start().wait_logged(ENGINE_UP)
    server.launched.send(signal.SIGTERM)
    assert server.launched.wait(STOP_S) == -signal.SIGTERM
    server.assert_nothing_left()
    outcome = server.supervise.outcome()
    assert (outcome["outcome"], outcome["cause"], outcome["survivors"]) == ("asked", None, [])


def test_a_dead_engine_is_a_failure_although_vllm_exits_with_0(server: Server) -> None:
    server.start().wait_ready()
    signals.send(server.engine_core(), signal.SIGKILL)
    assert server.launched.wait(STOP_S) == Exit.ENDED_BY_ITSELF
    server.assert_nothing_left()
    outcome = server.supervise.outcome()
    assert (outcome["leader_status"], outcome["survivors"]) == (0, [])
    # A killed process prints nothing: no line may pass for the cause, the ones about its death are the evidence.
    assert outcome["cause"]["text"] is None
    assert "engine core exited unexpectedly" in outcome["cause"]["evidence"][0]["text"]


def test_names_a_wrong_flag(server: Server) -> None:
    server.start("--no-such-flag")
    assert server.launched.wait(START_S) == Exit.DETERMINISTIC
    server.assert_nothing_left()
    cause = server.supervise.outcome()["cause"]
    assert "unrecognized arguments: --no-such-flag" in cause["text"]
    assert cause["class"] == "deterministic"


def test_names_a_missing_weight(server: Server) -> None:
    server.start(model="missing-norm")
    assert server.launched.wait(START_S) == Exit.DETERMINISTIC
    server.assert_nothing_left()
    cause = server.supervise.outcome()["cause"]
    assert MISSING_WEIGHT in cause["text"]
    assert cause["process"].startswith("Worker")
    assert MISSING_WEIGHT in server.launched.stderr


def test_does_not_launch_on_a_port_that_is_taken(server: Server) -> None:
    with socket.create_server(("127.0.0.1", server.port)):
        server.start()
        assert server.launched.wait(DEADLINE_S) == Exit.SLATE
    assert str(server.port) in server.launched.stderr
    assert not list(server.supervise.run_directory().glob("attempts/[0-9]*"))


def test_names_the_port_when_it_is_taken_after_the_slate(server: Server) -> None:
    """Imports take vLLM more than ten seconds: time enough for somebody else to take the port."""
    server.start()
    server.supervise.wait_state("starting")
    with socket.create_server(("127.0.0.1", server.port)):
        assert server.launched.wait(START_S) == 1
    server.assert_nothing_left()
    cause = server.supervise.outcome()["cause"]
    assert "Address already in use" in cause["text"]
    assert cause["class"] == "transient"
