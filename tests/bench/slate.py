"""What a clean slate costs on a host with two thousand processes, beside `pgrep -f` and beside the shell recipe.

Run as a program it is the first process of a place of its own: pkill(1) looks at the whole host. It takes all samples,
interleaved, and prints them as one JSON object.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # a script finds its own directory only

from supervise.model.slate import SlateResult
from supervise.runner import clearing, plan
from supervise.slate import sweep
from tests.bench import managers
from tests.support import zoo_alone
from tests.support.family import Family
from tests.support.launcher import free_port

ROOT = Path(__file__).resolve().parents[2]
PROCESSES = 2000
PGREP, RECIPE = "pgrep -f", "pkill; sleep 2; ps | grep; rm"
SWEEP, CLEAN = "the slate itself", "supervise clean"
_PATTERN = "VLLM::"
_ORPHANAGE = ROOT / "tests/support/orphanage.py"
_DEADLINE_S = 300.0
_SHM = Path("/dev/shm")

Samples = dict[str, list[float]]


def measure(directory: Path, rounds: int) -> dict[str, Samples]:
    """Take all samples in a place of its own; blocking for a few minutes.

    Args:
        directory: an empty one of its own, with a short path.
        rounds: samples of each.

    Returns:
        Seconds: `clean` is a host with nothing left on it, `full` one with an orphan that holds the port, a segment and
        a socket.

    Raises:
        RuntimeError: something was not cleaned, or not measured.
    """
    program = [sys.executable, str(Path(__file__).resolve()), str(directory), str(rounds)]
    taken: dict[str, Samples] = zoo_alone.told(program, directory, managers.environment(), _DEADLINE_S)
    return taken


def main() -> None:
    directory, rounds = Path(sys.argv[1]), int(sys.argv[2])
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for _ in range(PROCESSES):
        os.posix_spawn("/bin/sleep", ["sleep", "100000"], {})
    stage = _Stage(directory)
    ways: dict[str, Callable[[], object]] = {SWEEP: stage.sweep, CLEAN: stage.clean}
    beside = {"clean": ways | {PGREP: stage.pgrep}, "full": ways | {RECIPE: stage.recipe}}
    samples: dict[str, Samples] = {part: {name: [] for name in found} for part, found in beside.items()}
    for number in range(rounds + 1):
        for part, found in beside.items():
            for name, way in found.items():
                seconds = stage.timed(way, dirty=part == "full")
                if number:  # the first round warms what is compiled and cached
                    samples[part][name].append(seconds)
    print(json.dumps(samples))


class _Stage:
    """The port, the leftovers and the ways to be rid of them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port = free_port()
        self._command = ["vllm", "serve", "model", "--port", str(self._port)]
        self._number = 0
        supervise = managers.SUPERVISE.command([], directory)
        self._clean = [*supervise, "clean", *self._command]
        self._script = directory / "recipe.sh"
        self._script.write_text(
            f"pkill -f {_PATTERN}; sleep 2; ps aux | grep '[V]LLM::'\n"
            f"rm -f {_SHM}/vllm_* {shlex.quote(str(directory))}/????????-????-4???-????-????????????\n"
        )

    def timed(self, way: Callable[[], object], *, dirty: bool) -> float:
        """Seconds that this takes; with three leftovers there before, none of them is there afterwards."""
        left = self._make() if dirty else None
        begun = time.monotonic()
        way()
        seconds = time.monotonic() - begun
        if left is not None:
            self._verify(way, *left)
        return seconds

    def sweep(self) -> None:
        result: SlateResult = sweep(clearing.for_launch(plan.make(self._command, os.environ, plan.Options()), ()))
        assert result.clean, result

    def clean(self) -> None:
        subprocess.run(self._clean, check=True, capture_output=True)

    def pgrep(self) -> None:
        assert subprocess.run(["pgrep", "-f", _PATTERN], check=False, capture_output=True).returncode == 1

    def recipe(self) -> None:
        subprocess.run(["sh", str(self._script)], check=False, capture_output=True)

    def _make(self) -> tuple[Family, Path, Path]:
        """An orphan that listens on the port, a segment and a socket of vLLM's."""
        self._number += 1
        told = Family(self._directory / f"told{self._number}")
        spec = {"role": "engine", "title": "VLLM::EngineCore", "listen": [self._port]}
        subprocess.Popen(
            [sys.executable, "-I", "-S", str(_ORPHANAGE), "--tell", str(told.path), json.dumps(spec)],
            stdout=subprocess.DEVNULL,
        )
        segment, path = _SHM / f"vllm_mm_{uuid.uuid4().hex[:22]}", self._directory / str(uuid.uuid4())
        segment.write_bytes(b"x" * 65536)
        segment.chmod(0o600)
        with socket.socket(socket.AF_UNIX) as endpoint:
            endpoint.bind(str(path))
        for each in (segment, path):
            then = time.time() - 3600
            os.utime(each, (then, then))
        return told.wait_ready(60.0), segment, path

    @staticmethod
    def _verify(way: Callable[[], object], family: Family, segment: Path, path: Path) -> None:
        left = [str(each) for each in (segment, path) if each.exists()] + sorted(family.living - {"init"})
        for each in (segment, path):
            each.unlink(missing_ok=True)
        family.kill()  # its reaper
        if left:
            raise RuntimeError(f"{way} has left {left}")


if __name__ == "__main__":
    main()
