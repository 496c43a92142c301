"""Which run a verb means when none is named."""

from __future__ import annotations

import os
import sys

from supervise.attempts.store import Run, Store, default_root
from supervise.host import procfs
from supervise.model.process import Process
from supervise.runner.holder import living


def store() -> Store:
    """The store of this user."""
    return Store(default_root(dict(os.environ)))


def say(text: str) -> None:
    """A line for people."""
    sys.stderr.write(text + "\n")


def is_live(run: Run) -> bool:
    """Whether a supervise, or the keeper of one that was killed, is at work for this run."""
    state = run.read_state()
    return living(state, "supervisor") is not None or living(state, "keeper") is not None


def left_alone(run: Run) -> list[Process]:
    """Processes of a run that nobody contains any more: supervise and its keeper were both killed."""
    if is_live(run):
        return []
    marked = procfs.scan().values()
    return [process for process in marked if process.marker and process.marker.run == run.name and not process.gone]


def choose(name: str | None, *, live_only: bool) -> Run | None:
    """The run of that name, or the only one there is; None, with a line that says why, if that is not clear."""
    if name is not None:
        run = store().run(name)
        if run.numbers() or run.read_state():
            return run
        say(f"supervise: no run {name!r}; known: {', '.join(run.name for run in store().runs()) or 'none'}")
        return None
    runs = [run for run in store().runs() if is_live(run)] or ([] if live_only else store().runs())
    if len(runs) == 1:
        return runs[0]
    known = ", ".join(run.name for run in runs)
    say(
        f"supervise: which run? {known}"
        if runs
        else "supervise: nothing runs"
        if live_only
        else "supervise: no run yet"
    )
    return None
