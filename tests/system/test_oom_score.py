"""When memory runs out the kernel is to take the server before those who contain it and report on it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervise.group.spawning import spawn
from supervise.host import procfs
from supervise.model.process import ProcessId
from tests.support.family import Family
from tests.support.launcher import Supervise

RAISE, MOST = 100, 1000

# Reads its own score first of all: nothing but Python's own start comes before it.
_SERVER = """
score = open("/proc/self/oom_score_adj").read().strip()
import os, signal, sys
child = os.fork()
if child == 0:
    while True:
        signal.pause()
with open(sys.argv[1], "a") as tell:
    tell.write(f"child {child}\\nleader {os.getpid()}\\nready\\n")
print(f"born with {score}", flush=True)
while True:
    signal.pause()
"""


def score(pid: int) -> int:
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


@pytest.fixture(params=[0, 300, 950])
def ours(request: pytest.FixtureRequest) -> Iterator[int]:
    """Our own score for the length of a test, which all that we start inherits."""
    before = score(os.getpid())
    wanted = max(before, request.param)
    Path("/proc/self/oom_score_adj").write_text(str(wanted))
    yield wanted
    Path("/proc/self/oom_score_adj").write_text(str(before))


@pytest.mark.root  # without privilege a score cannot be lowered below what it once was
def test_the_server_goes_first(supervise: Supervise, ours: int) -> None:
    family = supervise.family()
    launched = supervise.start("--name", "X", "--grace", 1, sys.executable, "-c", _SERVER, family.path)
    family.wait_ready(failure=supervise.said)
    launched.wait_said("ready    in")
    raised = min(ours + RAISE, MOST)
    assert f"born with {raised}\n" in supervise.log()
    assert [score(family.members[role].pid) for role in ("leader", "child")] == [raised, raised]
    keeper = supervise.identity("keeper")
    assert {who: score(pid) for who, pid in _containers(launched.id, keeper).items()} == {
        "supervise": ours,
        "guard": ours,
        "keeper": ours,
    }
    launched.send(signal.SIGTERM)
    assert launched.wait() == -signal.SIGTERM


@pytest.mark.root
def test_an_ordinary_user_can_do_it_too(supervise_as_nobody: Supervise) -> None:
    """Raising it and going back to where one was takes no privilege (proc(5))."""
    supervise = supervise_as_nobody
    family = supervise.family()
    launched = supervise.start("--name", "X", "--grace", 1, supervise.python, "-c", _SERVER, family.path)
    family.wait_ready(failure=supervise.said)
    ours = score(os.getpid())
    assert score(family.members["leader"].pid) == min(ours + RAISE, MOST)
    containers = _containers(launched.id, supervise.identity("keeper"))
    assert {score(pid) for pid in containers.values()} == {ours}


def test_a_process_that_is_not_spawned_so_is_no_earlier_choice(family: Family, short_dir: Path) -> None:
    """Negative control: it has the score of whoever starts it; and starting it the other way leaves no trace on us."""
    ours = score(os.getpid())
    command = [sys.executable, "-c", _SERVER, str(family.path)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as plain:
        family.wait_ready()
        assert [score(family.members[role].pid) for role in ("leader", "child")] == [ours, ours]
        plain.kill()
    log = short_dir / "log"
    spawned = Family(short_dir / "spawned")
    spawn(sys.executable, [*command[:-1], str(spawned.path)], dict(os.environ), str(log))
    spawned.wait_ready()
    assert score(spawned.members["leader"].pid) == min(ours + RAISE, MOST)
    assert score(os.getpid()) == ours
    spawned.kill()


def _containers(supervisor: ProcessId, keeper: ProcessId) -> dict[str, int]:
    """The pids of those who contain the server; the guard is the keeper's parent."""
    found = procfs.read(keeper.pid)
    assert found is not None
    guard = procfs.read(found.ppid)
    assert guard is not None
    assert guard.comm == "supervise-guard"
    assert guard.ppid == supervisor.pid
    return {"supervise": supervisor.pid, "guard": guard.pid, "keeper": keeper.pid}
