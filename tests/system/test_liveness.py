"""A server that serves and then does not: hung only with two proofs, and with everything else left alone."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from supervise.host import signals
from supervise.model.exits import Exit
from tests.support.family import Family
from tests.support.launcher import Launched, Supervise
from tests.support.waiting import wait_until

VLLM = ("--profile", "vllm", "--name", "X", "--grace", "1")
# Long enough for many looks at a server that must be left alone, see `outlast`.
PATIENCE_S = 1.0

Ask = Callable[..., None]


@pytest.fixture
def ask(port: int) -> Iterator[Ask]:
    """Send a request whose answer nobody waits for."""
    kept: list[socket.socket] = []

    def ask(path: str = "/v1/completions", **body: object) -> None:
        data = json.dumps(body).encode()
        client = socket.create_connection(("127.0.0.1", port), 5)
        client.sendall(f"POST {path} HTTP/1.1\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
        kept.append(client)

    yield ask
    for client in kept:
        client.close()


def start(supervise: Supervise, port: int, *options: object, given: tuple[object, ...] = ()) -> tuple[Launched, Family]:
    family = supervise.family()
    server = supervise.standin("--load-s", 0.05, *options, port=port, pids=family.path)
    launched = supervise.start(*VLLM, "--hang-timeout", PATIENCE_S, *given, *server)
    supervise.wait_state("ready")
    return launched, family.wait_ready(failure=supervise.said)


def figure(port: int, name: str) -> float:
    """A figure of /metrics."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return float(next(line for line in text.splitlines() if line.startswith(f"vllm:{name}{{")).rpartition(" ")[2])


def outlast(supervise: Supervise, looks: int) -> None:
    """Wait until it has been looked at so often: each look is a line in the server's log."""
    seen = supervise.log().count("GET /metrics")
    wait_until(lambda: supervise.log().count("GET /metrics") >= seen + looks, failure=supervise.said)


def test_a_forward_that_never_ends_is_a_hang_with_both_proofs(supervise: Supervise, port: int, ask: Ask) -> None:
    launched, family = start(supervise, port, "--hang-at", "forward")
    ask(prompt="a b")
    assert launched.wait() == Exit.HUNG
    assert "1 request runs, no token for" in launched.stderr
    assert "vllm:generation_tokens_total stands at 1" in launched.stderr
    assert "neither its processes nor its GPUs have done anything for" in launched.stderr
    assert supervise.outcome()["exit_status"] == Exit.HUNG
    assert (supervise.attempt() / "evidence" / "before-stop.json").exists()
    assert family.survivors == []


def test_an_engine_that_is_stopped_in_a_request_is_a_hang(supervise: Supervise, port: int, ask: Ask) -> None:
    launched, family = start(supervise, port, "--request-s", 60)
    ask(prompt="a", max_tokens=600)
    wait_until(lambda: figure(port, "num_requests_running"))
    signals.send(family.members["VLLM::EngineCore"], signal.SIGSTOP)
    assert launched.wait() == Exit.HUNG
    assert "VLLM::EngineCore (pid " in launched.stderr
    assert family.survivors == []


def test_an_engine_that_is_stopped_while_nobody_asks_is_found_by_a_canary(supervise: Supervise, port: int) -> None:
    launched, family = start(supervise, port, given=("--canary", "--canary-every", 1))
    wait_until(lambda: figure(port, "request_success_total"))
    signals.send(family.members["VLLM::EngineCore"], signal.SIGSTOP)
    assert launched.wait() == Exit.HUNG
    assert "the canary got no answer in 1.0 s" in launched.stderr


def test_an_engine_that_is_stopped_while_nobody_asks_is_left_alone(supervise: Supervise, port: int) -> None:
    """One proof: told once, and nothing is done. Its last request may be years ago."""
    launched, family = start(supervise, port)
    signals.send(family.members["VLLM::EngineCore"], signal.SIGSTOP)
    launched.wait_said("That alone proves nothing")
    outlast(supervise, 12)
    assert launched.popen.poll() is None
    assert launched.stderr.count("That alone proves nothing") == 1
    signals.send(family.members["VLLM::EngineCore"], signal.SIGCONT)


def test_a_server_that_is_slow_and_goes_on_is_left_alone(supervise: Supervise, port: int, ask: Ask) -> None:
    launched, _ = start(supervise, port, "--request-s", 60)
    ask(prompt="a", max_tokens=120)
    wait_until(lambda: figure(port, "num_requests_running"))
    outlast(supervise, 12)
    assert launched.popen.poll() is None
    assert "proves nothing" not in launched.stderr


def test_an_idle_server_is_left_alone(supervise: Supervise, port: int) -> None:
    launched, _ = start(supervise, port)
    outlast(supervise, 12)
    assert launched.popen.poll() is None
    assert "proves nothing" not in launched.stderr


def test_a_server_that_sleeps_is_left_alone(supervise: Supervise, port: int, ask: Ask) -> None:
    launched, _ = start(supervise, port, "--hang-at", "forward", "--sleep-mode")
    ask("/sleep")
    wait_until(lambda: figure(port, "engine_sleep_state") == 0)
    ask(prompt="a b")
    wait_until(lambda: figure(port, "num_requests_running"))
    outlast(supervise, 12)
    assert launched.popen.poll() is None
    ask("/wake_up")
    assert launched.wait() == Exit.HUNG


def test_no_vigil_is_kept_where_none_is_wanted(supervise: Supervise, port: int, ask: Ask) -> None:
    launched, _ = start(supervise, port, "--hang-at", "forward", given=("--hang-timeout", 0))
    ask(prompt="a b")
    wait_until(lambda: figure(port, "num_requests_running"))
    # Nothing happens, and for that there is nothing to wait for: as long as a hang took to be found above.
    threading.Event().wait(2 * PATIENCE_S)
    assert launched.popen.poll() is None
    assert supervise.log().count("GET /metrics") <= 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--canary-every", 5), "--canary-every has no effect without --canary"),
        (("--canary", "--hang-timeout", 0), "--canary has no effect with --hang-timeout 0"),
    ],
)
def test_what_cannot_be_meant_is_refused(supervise: Supervise, options: tuple[object, ...], said: str) -> None:
    launched = supervise.run(*options, "true")
    assert launched.popen.returncode == Exit.USAGE
    assert said in " ".join(launched.stderr.split())


def test_a_program_of_which_nothing_is_known_is_left_alone(supervise: Supervise, port: int) -> None:
    launched = supervise.start(
        "--name", "X", "--grace", "1", "--canary", *supervise.standin("--load-s", 0.05, port=port)
    )
    launched.wait_said("nobody looks")
    assert launched.popen.poll() is None
