"""How fast a log is read: `explain` on a large one beside grep and wc, and a live one beside a bare inotify tail.

As a script it is one of the processes of the latter: `write PATH SECONDS`, `tail PATH SECONDS`, `watch PATH SECONDS`.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import select
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from supervise.attempts.log import LogFile
from supervise.diagnosis.scanner import Scanner, SparseReader
from supervise.diagnosis.verdict import Diagnoser
from supervise.host import kernel
from supervise.model.diagnosis import Line, SignatureSet
from supervise.profiles.load import load
from supervise.profiles.signatures import load_signatures
from supervise.runner.watching import LogWatch
from tests.bench.managers import SUPERVISE, environment

RATE = 50_000_000
"""Bytes per second of the live log."""

_BATCH = 64 * 1024
_MARKED_EACH = 30
_SETTLE_S = 0.5
# A busy machine takes its time to start the writer.
_LINGER_S = 4.0
_STAMP = re.compile(rb"stamp=(\d+)")
_STARTS = (
    b"(APIServer pid=1) INFO 11-30 05:00:00 [utils.py:1] non-default args: {'model': 'm', 'max_model_len': 4096}\n"
    b"(EngineCore pid=3) INFO 11-30 05:00:01 [gpu_model_runner.py:1] Starting to load model m...\n"
    b"(APIServer pid=1) INFO:     Application startup complete.\n"
)
_FATAL = b"(EngineCore pid=3) ERROR 11-30 05:00:00 [core.py:99] "
_FAILS = _FATAL + _FATAL.join(
    [
        b"EngineCore encountered a fatal error.\n",
        b"Traceback (most recent call last):\n",
        b'  File "core.py", line 3, in run_engine_core\n',
        b"    engine_core.run_busy_loop()\n",
        b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has no room\n",
    ]
)
_SIGNATURES = ("python", "host", "cuda", "nccl", "hub", "vllm")


def write_log(path: Path, size: int) -> None:
    """Write a log of a server that starts, serves for long, and fails with its last lines.

    Args:
        path: where to.
        size: bytes, more or less.
    """
    block = b"".join(_served(number) for number in range(30_000))
    with path.open("wb") as file:
        file.write(_STARTS)
        for _ in range(max(1, size // len(block))):
            file.write(block)
        file.write(_FAILS)


def _served(number: int) -> bytes:
    """What a server prints that serves: requests, mostly, and now and then what it did."""
    second = f"{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}"
    if number % 10:
        peer = f"10.0.0.{number % 256}:{5000 + number}"
        return f'(APIServer pid=1) INFO:     {peer} - "POST /v1/chat HTTP/1.1" 200 OK\n'.encode()
    return (
        f"(APIServer pid=1) INFO 11-30 {second} [loggers.py:123] Engine 000: Avg prompt throughput: {number}.0"
        f" tokens/s, Running: {number % 99} reqs, Waiting: 0 reqs, GPU KV cache usage: {number % 100}.3%\n"
    ).encode()


@dataclass(frozen=True)
class Took:
    """What one reading of a log took: seconds by the clock, and on a CPU."""

    wall_s: float
    cpu_s: float


def readers(path: Path) -> dict[str, Callable[[], Took]]:
    """What reads a log, each as a function that does so once.

    Args:
        path: a log that `write_log` wrote.
    """
    known = load_signatures(_SIGNATURES)
    literals = sorted({literal for each in known.signatures for literal in each.literals})
    pattern = "|".join(re.sub(r"([][().*+?{}|^$\\])", r"\\\1", literal) for literal in literals)
    *script, _ = SUPERVISE.command([""], path.parent)
    return {
        "supervise explain": lambda: _took([*script, "explain", str(path)]),
        "grep -E": lambda: _took(["grep", "-cE", pattern, str(path)]),
        "wc -l": lambda: _took(["wc", "-l", str(path)]),
    }


def _took(command: list[str]) -> Took:
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env=environment() | {"LC_ALL": "C"})
    wall_s, after = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Took(wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


@dataclass(frozen=True)
class Seen:
    """How many fatal lines were written, and the seconds from the writing of each that was seen to its detection."""

    written: int
    delays: list[float]


def latencies(observer: str, directory: Path, seconds: float) -> Seen:
    """Have a process write a log at `RATE` with fatal lines in it, and another one look for them.

    Args:
        observer: `tail` or `watch`.
        directory: where the log lies meanwhile.
        seconds: how long.

    Raises:
        RuntimeError: the observer does not start.
    """
    log = directory / "live.log"
    log.write_bytes(_STARTS)
    script = [sys.executable, str(Path(__file__))]
    looks = subprocess.Popen(
        [*script, observer, str(log), str(seconds + _LINGER_S)], stdout=subprocess.PIPE, env=environment()
    )
    try:
        if looks.stdout is None or looks.stdout.readline() != b"ready\n":
            raise RuntimeError(f"{observer} does not look")
        time.sleep(_SETTLE_S)
        written = subprocess.check_output([*script, "write", str(log), str(seconds)], env=environment())
        output, _ = looks.communicate(timeout=30.0)
    finally:
        looks.kill()
        log.unlink()
    return Seen(int(written), [float(each) for each in json.loads(output)])


def _write(path: str, seconds: float) -> int:
    """Write what is due in pieces of `_BATCH`, with a stamp of CLOCK_MONOTONIC in each marked line.

    Returns:
        How many lines were marked.
    """
    plain = b"".join(_served(number) for number in range(_BATCH // 80))[:_BATCH].rpartition(b"\n")[0] + b"\n"
    mark = _FATAL + b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB stamp=%d\n"
    pieces = int(seconds * RATE / len(plain))
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    begun = time.monotonic()
    for count in range(pieces):
        time.sleep(max(0.0, begun + count * len(plain) / RATE - time.monotonic()))
        os.write(fd, plain)
        if not count % _MARKED_EACH:
            os.write(fd, mark % time.monotonic_ns())
    return len(range(0, pieces, _MARKED_EACH))


def _tail(path: str, seconds: float) -> list[float]:
    """The least that a reader can do: sleep until the kernel tells, read, look for the mark."""
    until = time.monotonic() + seconds
    notifier = kernel.watch_modifications(path)
    print("ready", flush=True)
    poll = select.poll()
    poll.register(notifier, select.POLLIN)
    found: list[float] = []
    with open(path, "rb", buffering=0) as file:
        while (left := until - time.monotonic()) > 0:
            if poll.poll(left * 1e3):
                os.read(notifier, 4096)
            while data := file.read(1024 * 1024):
                now = time.monotonic_ns()
                found += [(now - int(stamp[1])) / 1e9 for stamp in _STAMP.finditer(data)]
    return found


async def _watch(path: str, seconds: float) -> list[float]:
    """What supervise does with the log of a server that runs."""
    known = load_signatures(_SIGNATURES)
    sink = _Sink(known)
    reader = SparseReader(lambda: Scanner.of(known, [load("vllm")]), sink.busy, plain=0)
    watch = LogWatch(LogFile(path), reader, sink)
    print("ready", flush=True)
    await asyncio.sleep(seconds)
    await watch.finish()
    return sink.found


class _Sink:
    """Notes when the diagnosis of a line says that the server cannot go on; then it begins anew.

    Args:
        known: the signatures.
    """

    def __init__(self, known: SignatureSet) -> None:
        self.found: list[float] = []
        self._known = known
        self._diagnoser = Diagnoser(known)

    def busy(self) -> bool:
        """Whether a report is open."""
        return self._diagnoser.open

    def __call__(self, line: Line) -> None:
        """One line, in order."""
        if self._diagnoser.feed(line) is not None:
            stamp = int(line.text.rpartition("stamp=")[2])
            self.found.append((time.monotonic_ns() - stamp) / 1e9)
            self._diagnoser = Diagnoser(self._known)


def _main() -> None:
    what, path, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    if what == "write":
        print(_write(path, seconds))
        return
    print(json.dumps(asyncio.run(_watch(path, seconds)) if what == "watch" else _tail(path, seconds)))


if __name__ == "__main__":
    _main()
