"""A server whose log is full of errors: its death is named in time, and a stop waits for nobody to read them."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.support.launcher import Launched, Supervise, free_port
from tests.support.waiting import wait_until

# Writes as fast as it can what it has to, then 20 MB/s until it is told to go: the number of the line that it dies of
# is in a file before.
_SERVER = r"""
import os, sys, time
directory, kind, burst = os.environ["FLOOD"], os.environ["FLOOD_KIND"], int(os.environ["FLOOD_BURST"])
said = "(APIServer pid=1) ERROR 11-30 05:00:00 [serving.py:99] "
request = (
    "Error in preprocessing prompt inputs",
    "Traceback (most recent call last):",
    '  File "serving.py", line 91, in create',
    "    request_prompts = await self._preprocess(",
    '  File "engine.py", line 400, in validate',
    "    raise ValueError(",
    "ValueError: This model's maximum context length is 4096 tokens. However, you requested 5000 tokens",
)
single = ("ValueError: CUDA out of memory. Tried to allocate 2.00 GiB",)
unit = {"requests": request, "lines": single, "quiet": ()}[kind]
dies = "(EngineCore pid=3) ERROR 11-30 05:00:00 [core.py:99] "
death = (
    "EngineCore encountered a fatal error.",
    "Traceback (most recent call last):",
    '  File "core.py", line 3, in run_engine_core',
    "    engine_core.run_busy_loop()",
    "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
)
block = b"".join(f"{said}{line}\n".encode() for line in unit) * 3000
lines = 0
def write(data):
    global lines
    lines += data.count(b"\n")
    while data:
        data = data[os.write(1, data):]
write(b"(APIServer pid=1) INFO:     Application startup complete.\n")
for _ in range(burst // len(block) if block else 0):
    write(block)
if sys.argv[1] == "serve" and sys.argv[2] == "dies":
    for line in death:
        write(f"{said}{unit[-1]}\n{dies}{line}\n".encode())
    open(f"{directory}/line", "w").write(str(lines))
    for _ in range(burst // len(block)):
        write(block)
open(f"{directory}/written", "w").close()
while not os.path.exists(f"{directory}/go"):
    write(block)
    time.sleep(max(0.01, len(block) / 20e6))
sys.exit(1)
"""
TEXT = "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"
BURST = 60_000_000
# On a machine that is busy with other tests.
MARGIN_S = 3.0


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    (tmp_path / "server.py").write_text(_SERVER)
    program = tmp_path / "vllm"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {tmp_path}/server.py "$@"\n')
    program.chmod(0o755)
    return program


def start(supervise: Supervise, engine: Path, kind: str, what: str) -> Launched:
    for name in ("line", "written", "go"):
        (engine.parent / name).unlink(missing_ok=True)
    supervise.extra_env |= {"FLOOD": str(engine.parent), "FLOOD_KIND": kind, "FLOOD_BURST": str(BURST)}
    return supervise.start("--no-preflight", "all", "--name", "X", engine, "serve", what, "--port", free_port())


@pytest.mark.parametrize("kind", ["requests", "lines"])
def test_a_death_in_a_flood_is_told_while_the_server_lives(supervise: Supervise, engine: Path, kind: str) -> None:
    launched = start(supervise, engine, kind, "dies")
    launched.wait_said("fatal    ")
    assert launched.popen.poll() is None
    assert "exited" not in launched.stderr
    (engine.parent / "go").touch()
    assert launched.wait() == 1
    outcome = json.loads((supervise.run_directory() / "attempts/0001/outcome.json").read_text())
    cause = outcome["cause"]
    assert (cause["text"], cause["signature"]) == (TEXT, "cuda-illegal-address")
    assert cause["line"] == int((engine.parent / "line").read_text())
    assert "log_unread_bytes" not in outcome


def stop_s(supervise: Supervise, engine: Path, kind: str) -> tuple[float, float]:
    """Seconds from SIGTERM until it is told, and until all is over."""
    launched = start(supervise, engine, kind, "runs")
    wait_until((engine.parent / "written").exists, failure=lambda: launched.stderr)
    begun = time.monotonic()
    launched.send(signal.SIGTERM)
    launched.wait_said("SIGTERM")
    told = time.monotonic() - begun
    assert launched.wait() == -signal.SIGTERM
    return told, time.monotonic() - begun


def test_a_stop_does_not_wait_for_a_flood_to_be_read(supervise: Supervise, engine: Path) -> None:
    quiet, flooded = (stop_s(supervise, engine, kind) for kind in ("quiet", "lines"))
    assert flooded[0] < quiet[0] + MARGIN_S
    assert flooded[1] < quiet[1] + 2 * MARGIN_S
