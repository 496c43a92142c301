"""Nobody reads, nobody listens, nobody is there: none of that may hold or end a server."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.launcher import Supervise
from tests.support.waiting import DEADLINE_S

SUPERVISE = (sys.executable, "-m", "supervise")


@pytest.fixture
def full_pipe() -> Iterator[int]:
    """The writing end of a pipe that is full and that nobody reads."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(writer, False)
    assert os.write(writer, b"x" * 4096) == 4096
    with pytest.raises(BlockingIOError):
        os.write(writer, b"x")
    os.set_blocking(writer, True)
    yield writer
    os.close(reader)
    os.close(writer)


def test_a_full_pipe_does_block_a_plain_writer(full_pipe: int) -> None:
    """Negative control."""
    program = "import os; os.write(2, b'x')"
    with subprocess.Popen([sys.executable, "-c", program], stderr=full_pipe) as writer:
        with pytest.raises(subprocess.TimeoutExpired):
            writer.wait(1.0)
        writer.kill()


def test_a_full_pipe_does_not_hold_a_refusal(full_pipe: int) -> None:
    ended = subprocess.run(
        [*SUPERVISE, "/nowhere/x"], stdout=full_pipe, stderr=full_pipe, timeout=DEADLINE_S, check=False
    )
    assert ended.returncode == 127


def test_a_full_pipe_does_not_hold_a_server_or_its_stop(supervise: Supervise, port: int, full_pipe: int) -> None:
    command = [*SUPERVISE, "--name", "stuck", "--profile", "vllm", *supervise.standin("--load-s", "0.2", port=port)]
    launched = subprocess.Popen(command, stdout=full_pipe, stderr=full_pipe, env=supervise.env)
    supervise.wait_state("ready")
    launched.send_signal(signal.SIGTERM)
    assert launched.wait(DEADLINE_S) == -signal.SIGTERM


@pytest.mark.parametrize("closed", ["2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_streams(supervise: Supervise, closed: str) -> None:
    shell = f'exec "$@" {closed}'
    command = ["sh", "-c", shell, "sh", *SUPERVISE, "--name", "closed", sys.executable, "-c", "raise SystemExit(7)"]
    assert subprocess.run(command, env=supervise.env, timeout=DEADLINE_S, check=False).returncode == 7
    assert (
        subprocess.run(["sh", "-c", shell, "sh", *SUPERVISE, "profiles"], env=supervise.env, check=False).returncode
        == 0
    )


@pytest.mark.parametrize("verb", [["status"], ["status", "--json"], ["--help"]])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_answer_that_finds_no_room_is_missed_by_name(supervise: Supervise, verb: list[str], unbuffered: str) -> None:
    env = supervise.env | {"PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "wb") as full:
        said = subprocess.run(
            [*SUPERVISE, *verb], stdout=full, stderr=subprocess.PIPE, env=env, timeout=DEADLINE_S, check=False
        )
    assert (said.returncode, said.stderr) == (125, b"supervise: standard output: No space left on device\n")
