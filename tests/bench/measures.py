"""What is measured; each function takes one sample."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from supervise.host import procfs, signals
from supervise.model.process import ProcessId
from tests.bench.managers import Manager, Running, environment

IMPORTS = "import typer, psutil, pynvml, watchfiles"
_SETTLE_S = 4.0
_STOPPED_S = 2.0


def launch_s(manager: Manager) -> float:
    """Seconds from the exec of the manager to the first statement of the server."""
    with Running(manager, "wait") as running:
        return float(running.wait_told("started")["at"]) - running.begun


def imports_s() -> float:
    """Seconds that a Python takes which only imports what a supervisor might."""
    begun = time.monotonic()
    subprocess.run([sys.executable, "-c", IMPORTS], check=True, timeout=30.0, env=environment())
    return time.monotonic() - begun


def scan_s() -> float:
    """Seconds for one reading of all of /proc."""
    begun = time.monotonic()
    procfs.scan()
    return time.monotonic() - begun


@dataclass(frozen=True)
class Idle:
    """What a manager costs while its server idles: share of one CPU, wake-ups per second, memory in MiB."""

    cpu: float
    wakeups: float
    pss: float


def idle(manager: Manager, window_s: float) -> Idle:
    """Watch a manager and all its helpers for a while, once its server serves."""
    with Running(manager, "serve") as running:
        running.wait_served()
        time.sleep(_SETTLE_S)
        members = running.managers()
        before, begun = [_costs(member) for member in members], time.monotonic()
        time.sleep(window_s)
        after, seconds = [_costs(member) for member in members], time.monotonic() - begun
        return Idle(
            cpu=sum(b[0] - a[0] for a, b in zip(before, after, strict=True)) / seconds,
            wakeups=sum(b[1] - a[1] for a, b in zip(before, after, strict=True)) / seconds,
            pss=sum(map(_pss, members)),
        )


def _costs(target: ProcessId) -> tuple[float, int]:
    """Seconds on a CPU (/proc/PID/schedstat, which counts nanoseconds) and times woken up, over all threads."""
    seconds, wakeups = 0.0, 0
    for thread in Path(f"/proc/{target.pid}/task").iterdir():
        seconds += int((thread / "schedstat").read_text().split()[0]) / 1e9
        status = (thread / "status").read_text()
        wakeups += int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])
    return seconds, wakeups


def _pss(target: ProcessId) -> float:
    rollup = Path(f"/proc/{target.pid}/smaps_rollup").read_text()
    return int(rollup.partition("\nPss:")[2].split()[0]) / 1024


def log_rate(manager: Manager, total: int, piece: int) -> float:
    """Megabytes per second that a server can log in writes of `piece` bytes."""
    total = int(total * manager.log_share)
    with Running(manager, f"flood:{total},{piece}") as running:
        return total / 1e6 / float(running.wait_told("flooded", 120.0)["seconds"])


def blocked_s(manager: Manager, which: slice) -> float:
    """The longest pause of a server that logs all the time while processes of its manager are stopped for 2 s."""
    with Running(manager, f"beat:{int(_SETTLE_S + 3 * _STOPPED_S)}") as running:
        running.wait_told("beating")
        time.sleep(_SETTLE_S / 2)
        stopped = running.managers()[which]
        begun = time.monotonic()
        try:
            for member in stopped:
                signals.send(member, signal.SIGSTOP)
            time.sleep(_STOPPED_S)
        finally:
            for member in stopped:
                signals.send(member, signal.SIGCONT)
        time.sleep(0.5)
        pauses = [pause["seconds"] for pause in running.told("pause") if pause["begun"] + pause["seconds"] >= begun]
        return max(pauses, default=0.0)


def cores() -> int:
    """CPUs that may be used."""
    return len(os.sched_getaffinity(0))
