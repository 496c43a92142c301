"""The server that is measured with; installed under the name `vllm`, so that every manager runs the same command line.

$BENCH_DO says what it does, $BENCH_TOLD is where it tells about it, one JSON object per line, on the monotonic clock,
which all processes of a machine share.
"""

from __future__ import annotations

import time

_STARTED = time.monotonic()

import json  # noqa: E402 - the time is taken before anything else
import os  # noqa: E402
import signal  # noqa: E402
import sys  # noqa: E402


def main() -> None:
    tell(event="started", pid=os.getpid(), at=_STARTED)
    what, _, amount = os.environ["BENCH_DO"].partition(":")
    {"wait": wait, "serve": serve, "flood": flood, "beat": beat}[what](*map(int, amount.split(",") if amount else ()))


def tell(**what: object) -> None:
    with open(os.environ["BENCH_TOLD"], "a", encoding="utf-8") as file:
        file.write(json.dumps(what) + "\n")


def wait() -> None:
    while True:
        signal.pause()


def serve() -> None:
    """Become ready and idle, as the stand-in for a real engine does."""
    sys.path.insert(0, os.environ["BENCH_ROOT"])
    from supervise.demo.server import main as standin

    standin()


def flood(total: int, piece: int) -> None:
    """Write `total` bytes in writes of `piece`; tell how long it took."""
    data = (b"x" * 79 + b"\n") * (piece // 80 + 1)
    data = data[: piece - 1] + b"\n"
    begun = time.monotonic()
    for _ in range(total // piece):
        write_all(data)
    tell(event="flooded", seconds=time.monotonic() - begun)
    wait()


def beat(seconds: int) -> None:
    """Write 4 KiB a thousand times a second; tell every pause longer than 50 ms."""
    data = (b"x" * 79 + b"\n") * 51
    tell(event="beating")
    last = begun = time.monotonic()
    while last - begun < seconds:
        write_all(data)
        now = time.monotonic()
        if now - last > 0.05:
            tell(event="pause", begun=last, seconds=now - last)
        time.sleep(0.001)
        last = time.monotonic()
    wait()


def write_all(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


if __name__ == "__main__":
    main()
