"""Somebody's server in the way: at a terminal a person is asked, elsewhere the launch is refused."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from supervise.host import procfs, signals
from supervise.model.exits import Exit
from supervise.model.process import ProcessId
from tests.support.launcher import Supervise
from tests.support.session import Session
from tests.support.waiting import wait_gone

_HOLDER = """
import signal, socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listens", flush=True)
signal.pause()
"""
# The question goes to the terminal.
SHELL = 'exec "$@" 2>&1'


@pytest.fixture
def holder(port: int) -> Iterator[ProcessId]:
    with subprocess.Popen([sys.executable, "-c", _HOLDER, str(port)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"listens\n"
        yield procfs.identify(process.pid) or ProcessId(process.pid, 0)
        process.kill()


def command(supervise: Supervise, port: int) -> list[str]:
    return ["--profile", "vllm", *supervise.standin(port=port)]


def test_yes_ends_it_and_launches(supervise: Supervise, screen: Session, holder: ProcessId, port: int) -> None:
    screen.start(*command(supervise, port), shell=SHELL)
    screen.wait_seen(f"BLOCKED port {port}")
    screen.wait_seen(f"end 1 process ({holder.pid}) with all below? [y/N]")
    screen.type("y\n")
    supervise.wait_state("ready")
    wait_gone([holder])
    signals.send(screen.id, signal.SIGTERM)
    assert screen.wait() == -signal.SIGTERM


@pytest.mark.parametrize("answer", ["n\n", "\n", "yesterday\n", "\x04"])
def test_anything_else_leaves_it_alone(
    supervise: Supervise, screen: Session, holder: ProcessId, port: int, answer: str
) -> None:
    screen.start(*command(supervise, port), shell=SHELL)
    screen.wait_seen("[y/N]")
    screen.type(answer)
    assert screen.wait() == Exit.SLATE
    assert signals.alive(holder)


def test_ctrl_c_at_the_question(supervise: Supervise, screen: Session, holder: ProcessId, port: int) -> None:
    screen.start(*command(supervise, port), shell=SHELL)
    screen.wait_seen("[y/N]")
    screen.type("\x03")
    assert screen.wait() in (-signal.SIGINT, Exit.SLATE)
    assert signals.alive(holder)


def test_nobody_is_asked_without_a_terminal(supervise: Supervise, holder: ProcessId, port: int) -> None:
    launched = supervise.run(*command(supervise, port))
    assert launched.popen.returncode == Exit.SLATE
    assert "[y/N]" not in launched.stderr
    assert "--evict all ends it" in launched.stderr
    told = json.loads((supervise.run_directory() / "slate.json").read_text())
    assert [(obstacle["subject"], obstacle["evict"]) for obstacle in told["obstacles"]] == [(f"port {port}", "all")]
    assert told["clean"] is False
    assert signals.alive(holder)


def test_the_option_is_an_answer(supervise: Supervise, holder: ProcessId, port: int) -> None:
    launched = supervise.start("--evict", "all", *command(supervise, port))
    supervise.wait_state("ready")
    wait_gone([holder])
    launched.send(signal.SIGTERM)
    assert launched.wait() == -signal.SIGTERM
