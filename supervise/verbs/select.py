"""Which run a verb means when none is named, and whether it still has the attempt that is meant."""

from __future__ import annotations

import os
import sys
from collections.abc import Container

from supervise.attempts.place import default_root
from supervise.attempts.roles import living
from supervise.attempts.store import Attempt, Run, Store
from supervise.host import procfs
from supervise.model.process import Process
from supervise.report.console import write_unless_stuck


def store() -> Store:
    """The store of this user.

    Raises:
        ForeignProcError: /proc is not ours: nothing that is written there about processes could be compared.
    """
    procfs.self_id()
    return Store(default_root(dict(os.environ)))


def say(text: str) -> None:
    """A line for people; that nobody can read it changes nothing."""
    write_unless_stuck(sys.stderr, text + "\n")


def is_live(run: Run) -> bool:
    """Whether a supervise, or the keeper or guard of one that was killed, is at work for this run."""
    state = run.read_state()
    return any(living(state, role) is not None for role in ("supervisor", "keeper", "guard"))


def left_alone(run: Run) -> list[Process]:
    """Processes of a run that nobody contains any more: supervise, keeper and guard were all killed."""
    if is_live(run):
        return []
    attempt = run.latest()
    noted = {tuple(member) for member in ((attempt.read("attempt") if attempt else None) or {}).get("members", ())}
    return [process for process in procfs.scan().values() if not process.gone and _is_of(process, run, noted)]


def _is_of(process: Process, run: Run, noted: Container[tuple[int, ...]]) -> bool:
    """Whether a process bears the mark of a run, or was noted as a member of its last attempt."""
    return process.id in noted or (process.marker is not None and process.marker.run == run.name)


def choose(name: str | None, *, live_only: bool) -> Run | None:
    """The run of that name, or the only one there is; None, with a line that says why, if that is not clear."""
    if name is not None:
        run = store().run(name)
        if any(known.name == name for known in store().runs()):
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


def kept(run: Run, attempt: Attempt | None, number: int | None) -> Attempt | None:
    """An attempt if it is still kept; None, with a line that says which are, if it is not.

    Args:
        run: its run.
        attempt: the attempt, None if there is none.
        number: the one that was asked for by its number, if one was.
    """
    numbers = run.numbers()
    if attempt is not None and attempt.number in numbers:
        return attempt
    say(
        f"supervise: run {run.name} has no attempt {number or ''}; kept: {numbers[0]} to {numbers[-1]}"
        if numbers
        else f"supervise: run {run.name} has no attempt yet"
    )
    return None
