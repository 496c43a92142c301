"""A server that the kernel kills for memory prints nothing; the kernel's own word is the cause."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervise.host import kmsg
from tests.support.launcher import Supervise

LIMIT_BYTES = 60_000_000

# Enters the small cgroup by itself, as a container's init would have been put into it.
_SERVER = """
import os, sys
open(sys.argv[1] + "/cgroup.procs", "w").write("0")
print("Starting to load model", flush=True)
weights = b"x" * int(sys.argv[2])
print("loaded", flush=True)
"""


def controller() -> Path | None:
    """Where the memory controller is: the v1 hierarchy or the v2 one, whichever has it (cgroups(7))."""
    v1 = Path("/sys/fs/cgroup/memory")
    if v1.is_dir():
        return v1
    v2 = Path("/sys/fs/cgroup")
    return v2 if "memory" in (v2 / "cgroup.subtree_control").read_text().split() else None


@pytest.fixture
def small() -> Iterator[Path]:
    """A cgroup of 60 MB."""
    top = controller()
    if top is None or not os.access(top, os.W_OK):
        pytest.skip("no memory cgroup can be made here")
    group = top / f"oom-{os.getpid()}"
    group.mkdir()
    limit = "memory.limit_in_bytes" if (group / "memory.limit_in_bytes").exists() else "memory.max"
    (group / limit).write_text(str(LIMIT_BYTES))
    yield group
    group.rmdir()


@pytest.mark.root
def test_the_oom_killer_is_named_from_the_kernel_s_log(supervise: Supervise, small: Path) -> None:
    if not os.access("/dev/kmsg", os.R_OK):
        pytest.skip("the kernel's log cannot be read here")
    supervise.run("--name", "X", sys.executable, "-c", _SERVER, small, 5 * LIMIT_BYTES)
    cause = supervise.outcome()["cause"]
    assert cause["text"] is None
    assert "out of memory: Killed process" in cause["meaning"]
    assert cause["class"] == "deterministic"


@pytest.mark.root
def test_a_sigkill_from_elsewhere_is_not_blamed_on_the_kernel(supervise: Supervise, small: Path) -> None:
    """The twin: the same death from another hand."""
    supervise.run("--name", "X", sys.executable, "-c", "import os; os.kill(os.getpid(), 9)")
    cause = supervise.outcome()["cause"]
    assert "out of memory" not in cause["meaning"]
    assert "no sender" in cause["meaning"]
    assert cause["class"] == "unknown"


@pytest.mark.root
def test_of_the_kernel_s_log_only_our_own_dead_count(supervise: Supervise, small: Path) -> None:
    if not os.access("/dev/kmsg", os.R_OK):
        pytest.skip("the kernel's log cannot be read here")
    began = kmsg.now()
    supervise.run("--name", "X", sys.executable, "-c", _SERVER, small, 5 * LIMIT_BYTES)
    said = kmsg.since(began)
    assert any("Killed process" in line for line in said)
    assert not any("Killed process" in line for line in kmsg.since(began, frozenset({1})))
    assert kmsg.since(kmsg.now() + 60) == ()
