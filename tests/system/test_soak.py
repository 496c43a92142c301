"""Hundreds of crashes in a row, two runs at once beside a third that serves: nothing piles up, nobody meets anybody."""

from __future__ import annotations

import json
import os
import re
import signal
import statistics
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from supervise.host import procfs, signals
from supervise.model.process import ProcessId
from tests.support.launcher import Supervise, free_port

_CYCLES, _BESIDE = 150, 50
_KEPT = 20
# A crash and the next launch take about a second on two cores.
_DEADLINE_S = 900.0
_ESCAPES = "setsid,double-fork,env-cleared"
# Each attempt tells its pids in a file of its own and fails of another cause than the one before it.
_CRASHES = """
text='OddError: 2'; at=load
[ $((SUPERVISE_ATTEMPT % 2)) = 1 ] && text='OSError: [Errno 98] Address already in use' at=ready
exec "$@" --pids-file "$TELL.$SUPERVISE_ATTEMPT" --crash-at $at --crash-text "$text"
"""


@dataclass
class Sampled:
    """What one process took, attempt by attempt."""

    resident: list[int] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)

    def take(self, pid: int) -> None:
        try:
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            count = len(os.listdir(f"/proc/{pid}/fd"))
        except (OSError, IndexError):
            return
        self.resident.append(pages * os.sysconf("SC_PAGE_SIZE"))
        self.descriptors.append(count)

    def flat(self) -> bool:
        """Whether the last tenth takes no more than the second one, but for what allocators do."""
        tenth = len(self.resident) // 10
        early, late = slice(tenth, 2 * tenth), slice(-tenth, None)
        grown = statistics.median(self.resident[late]) / statistics.median(self.resident[early])
        more = statistics.median(self.descriptors[late]) - statistics.median(self.descriptors[early])
        return grown < 1.15 and more < 2


class Crashing:
    """A run whose server crashes time and again, and what is seen of it."""

    def __init__(self, supervise: Supervise, name: str, cycles: int, *options: object) -> None:
        self.name, self.cycles, self.tell = name, cycles, supervise.tmp / f"pids.{name}"
        self.path = supervise.state / "supervise" / name
        server = supervise.standin("--load-s", 0, "--shm", 65536, "--ipc", 2, "--escape", _ESCAPES, port=free_port())
        restarts = ("--restart", "always", "--max-restarts", f"{cycles}/1d", "--backoff", 0, "--keep", _KEPT)
        command = ["sh", "-c", _CRASHES, "sh", *server]
        self.launched = supervise.start(
            *("--name", name, "--profile", "vllm", "--grace", 2, *restarts, *options),
            *command,
            env={"TELL": str(self.tell)},
        )
        self.supervise, self.keeper = Sampled(), Sampled()
        self._looked_at = 0
        self.members: set[ProcessId] = set()

    @property
    def ended(self) -> bool:
        return self.launched.popen.poll() is not None

    def look(self) -> None:
        """Take samples once per attempt, and remember everybody who is told of."""
        try:
            state = json.loads((self.path / "run.json").read_text())
        except (OSError, ValueError):
            return
        number = state.get("attempt") or 0
        told = Path(f"{self.tell}.{number}")
        if state["state"] not in ("starting", "ready", "killing") or not told.exists():
            return
        for line in told.read_text().splitlines():
            pid = line.split()[-1]
            if pid.isdigit() and (who := procfs.identify(int(pid))):
                self.members.add(who)
        if number != self._looked_at:
            self._looked_at = number
            self.supervise.take(self.launched.id.pid)
            self.keeper.take(state["keeper"]["pid"])

    def events(self) -> list[dict]:
        lines = [
            line
            for name in ("events.jsonl.1", "events.jsonl")
            if (self.path / name).exists()
            for line in (self.path / name).read_text().splitlines()
        ]
        return [json.loads(line) for line in lines]

    def outcomes(self) -> list[dict]:
        return [json.loads(path.read_text()) for path in sorted(self.path.glob("attempts/*/outcome.json"))]


def disk(path: Path) -> int:
    """What lies below it, in bytes."""
    return sum(file.lstat().st_size for file in path.rglob("*") if not file.is_symlink())


def segments() -> set[str]:
    return {name for name in os.listdir("/dev/shm") if name.startswith("psm_")}


def answers(port: int) -> bool:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
        return bool(answer.status == 200)


@pytest.mark.timeout(_DEADLINE_S + 60)
def test_hundreds_of_crashes_leave_nothing_and_touch_nobody(supervise: Supervise, port: int) -> None:
    before = segments()
    steady = supervise.family("pids.steady")
    serving = supervise.start("--name", "steady", "--profile", "vllm", *supervise.standin(port=port, pids=steady.path))
    steady.wait_ready(failure=supervise.said)
    its_own = segments()
    metrics = supervise.base / "x.prom"
    long = Crashing(supervise, "long", _CYCLES, "--metrics-file", metrics)
    short = Crashing(supervise, "short", _BESIDE)
    both = (long, short)
    until = time.monotonic() + _DEADLINE_S
    while not all(run.ended for run in both) and time.monotonic() < until:
        for run in both:
            run.look()
        time.sleep(0.02)
    for run in both:
        assert run.launched.wait(1.0) == 96, run.launched.stderr[-2000:]
        check(run)
    assert long.supervise.flat(), long.supervise
    assert long.keeper.flat(), long.keeper
    counted(metrics.read_text(), "long", _CYCLES)
    # Whoever served beside them has not noticed.
    assert steady.living == set(steady.members)
    assert answers(port)
    assert "NOT CLEAN" not in serving.stderr
    serving.send(signal.SIGTERM)
    assert serving.wait() == -signal.SIGTERM
    assert segments() <= before | its_own
    assert steady.survivors == []


def check(run: Crashing) -> None:
    """Every attempt failed of what it was told to, was verified, and nobody of it is left."""
    survivors = [who for who in run.members if signals.alive(who)]
    assert survivors == []
    assert len(run.members) > 4 * run.cycles, "nobody was seen, so nothing is proven"
    begun = [event["attempt"] for event in run.events() if event["state"] == "starting"]
    assert sorted(set(begun)) == list(range(1, run.cycles + 2))
    outcomes = run.outcomes()
    assert len(outcomes) == _KEPT
    assert all(outcome["verified"] and outcome["clean"] and not outcome["left"] for outcome in outcomes)
    names = {outcome["cause"]["signature"] or outcome["cause"]["text"] for outcome in outcomes}
    assert names == {"address-in-use", "OddError: 2"}
    assert disk(run.path) < 8 * 2**20


def counted(text: str, run: str, cycles: int) -> None:
    """The textfile that is left tells of as many attempts as there were."""

    def value(name: str) -> float:
        found = re.findall(rf'^{name}{{[^}}]*run="{run}"[^}}]*}} (\S+)$', text, re.MULTILINE)
        assert found, text
        return sum(map(float, found))

    assert value("supervise_attempts_total") == cycles + 1
    assert value("supervise_restarts_total") == cycles
    assert value("supervise_survivors") == 0
    assert value("supervise_up") == 0
