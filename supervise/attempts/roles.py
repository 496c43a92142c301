"""Who is at work for a run, by its live state: supervise, its keeper, that one's guard."""

from __future__ import annotations

from typing import Any

from supervise.host import procfs, signals
from supervise.model.process import ProcessId


def living(state: dict[str, Any] | None, role: str) -> ProcessId | None:
    """The process of that role in a run's live state, if it is of this boot and PID namespace and still runs.

    None is no proof that nobody is at work: of a run in another PID namespace see `elsewhere`.

    Args:
        state: what run.json says.
        role: `supervisor`, `keeper`, `guard` or `leader`.
    """
    try:
        if state is None or state["host"] != procfs.host_id()._asdict():
            return None
        found = state.get(role)
        process = ProcessId(int(found["pid"]), int(found["ticks"])) if found else None
    except (KeyError, TypeError, ValueError):
        return None
    return process if process and signals.alive(process) else None
