"""The `limits` and `core` checks: resource limits that launches have failed of, and core files that fill disks."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator

from supervise.host import limits, memory
from supervise.host.limits import Limit, Limits
from supervise.host.memory import Ceiling
from supervise.model.preflight import Check, Level
from supervise.preflight.launch import Launch

NAME = "limits"
CORE_NAME = "core"
_PATTERN = "/proc/sys/kernel/core_pattern"
_INFINIBAND = "/sys/class/infiniband"
# One descriptor for each connection, and some thousands for sockets, libraries and shards (FIELD.md B2 row 86).
_FEW_FILES = 8192
# Threads count: each worker has as many as the host has cores (FIELD.md B2 row 87).
_FEW_TASKS = 1024
_LITTLE_LOCKED = 64 * 2**20


def check(launch: Launch) -> Iterator[Check]:
    """Look at the hard limits, which soft ones are raised to, and at the cgroup's limit of tasks."""
    several = (launch.need.tensor_parallel or 1) > 1
    yield from judge(limits.own(), memory.process_ceiling(), fabric=several and bool(_fabric()), root=os.geteuid() == 0)


def judge(found: Limits, tasks: Ceiling | None, *, fabric: bool, root: bool) -> Iterator[Check]:
    """Judge the limits.

    Args:
        found: our own.
        tasks: the cgroup's limit of tasks.
        fabric: whether GPUs talk over InfiniBand, which locks memory.
        root: whether we are root, whom RLIMIT_NPROC does not concern (setrlimit(2)).
    """
    if limits.below(found.files.hard, _FEW_FILES):
        yield _low("open files (RLIMIT_NOFILE)", found.files, "ulimit -Hn, LimitNOFILE= or --ulimit nofile")
    if limits.below(found.processes.hard, _FEW_TASKS) and not root:
        yield _low("processes (RLIMIT_NPROC)", found.processes, "ulimit -Hu, LimitNPROC= or --ulimit nproc")
    if fabric and limits.below(found.locked.hard, _LITTLE_LOCKED):
        yield _low("locked memory (RLIMIT_MEMLOCK)", found.locked, "ulimit -Hl, LimitMEMLOCK= or --ulimit memlock")
    if tasks is not None and tasks.left < _FEW_TASKS:
        text = f"the cgroup has room for {tasks.left} more threads ({tasks.path})"
        yield Check(NAME, Level.WARNING, text, "raise it: TasksMax=, --pids-limit")


def check_core(launch: Launch) -> Iterator[Check]:
    """Look at what a crash would write."""
    del launch
    try:
        with open(_PATTERN, encoding="utf-8", errors="replace") as file:
            pattern = file.read().strip()
    except OSError:
        return
    yield from judge_core(pattern, Limit(*resource.getrlimit(resource.RLIMIT_CORE)))


def judge_core(pattern: str, core: Limit) -> Iterator[Check]:
    """Judge core files: one of an engine is as large as its memory, 55 GB in FIELD.md A3 row 58.

    Args:
        pattern: the kernel's; one that begins with | goes to a program, which looks after its own disk (core(5)).
        core: the limit of a core file's size, in bytes.
    """
    if pattern and not pattern.startswith("|") and core.soft != 0:
        text = f"a crash writes the whole memory of a process to {pattern!r} (RLIMIT_CORE {limits.shown(core.soft)})"
        yield Check(CORE_NAME, Level.WARNING, text, "ulimit -c 0, LimitCORE=0 or --ulimit core=0")


def _fabric() -> list[str]:
    try:
        return os.listdir(_INFINIBAND)
    except OSError:
        return []


def _low(noun: str, limit: Limit, where: str) -> Check:
    return Check(NAME, Level.WARNING, f"{noun}: at most {limits.shown(limit.hard)}", f"raise the hard limit: {where}")
