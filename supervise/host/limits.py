"""The door to resource limits of a process (getrlimit(2), prlimit(2))."""

from __future__ import annotations

import resource
from typing import NamedTuple

UNLIMITED = resource.RLIM_INFINITY
# Programs that walk all possible descriptors take minutes over the 2**30 that some container runtimes allow.
_MOST_FILES = 2**20
_RAISED = (
    ("open files", "NOFILE", resource.RLIMIT_NOFILE, _MOST_FILES),
    ("locked memory", "MEMLOCK", resource.RLIMIT_MEMLOCK, UNLIMITED),
    ("processes", "NPROC", resource.RLIMIT_NPROC, UNLIMITED),
)


class Limit(NamedTuple):
    """A soft and a hard limit; UNLIMITED is one of the values."""

    soft: int
    hard: int


class Limits(NamedTuple):
    """Limits that launches have failed of: a number, bytes, a number, bytes."""

    files: Limit
    locked: Limit
    processes: Limit
    core: Limit


def own() -> Limits:
    """Our own limits, which whatever we start inherits."""
    kinds = (resource.RLIMIT_NOFILE, resource.RLIMIT_MEMLOCK, resource.RLIMIT_NPROC, resource.RLIMIT_CORE)
    return Limits(*(Limit(*resource.getrlimit(kind)) for kind in kinds))


def told() -> dict[str, Limit]:
    """Our own limits by the names of `limits.conf(5)`: those that another attempt may fail of."""
    kinds = {
        "nofile": resource.RLIMIT_NOFILE,
        "nproc": resource.RLIMIT_NPROC,
        "memlock": resource.RLIMIT_MEMLOCK,
        "as": resource.RLIMIT_AS,
    }
    return {name: Limit(*resource.getrlimit(kind)) for name, kind in kinds.items()}


def raise_soft(pid: int) -> tuple[str, ...]:
    """Raise the soft limits of a process to its hard ones, which needs no privilege; core files are left as they are.

    Open files are raised to 1048576 at most.

    Args:
        pid: a process of ours; 0 for ourselves.

    Returns:
        What was raised, one sentence each; a limit that could not be raised, or of a process that has ended, is left
        out: it was as good as it gets.
    """
    sentences = []
    for noun, name, kind, most in _RAISED:
        try:
            soft, hard = resource.prlimit(pid, kind)
            wanted = hard if below(hard, most) else most
            if not below(soft, wanted):
                continue
            resource.prlimit(pid, kind, (wanted, hard))
        except (OSError, ValueError):
            continue
        sentences.append(f"{noun} (RLIMIT_{name}): {shown(soft)} raised to {shown(wanted)}")
    return tuple(sentences)


def below(one: int, other: int) -> bool:
    """Whether a limit is lower than another."""
    return one != UNLIMITED and (other == UNLIMITED or one < other)


def shown(value: int) -> str:
    """A limit as people read it."""
    return "unlimited" if value == UNLIMITED else str(value)
