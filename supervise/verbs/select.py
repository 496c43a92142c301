"""Which run a verb means when none is named, and whether it still has the attempt that is meant."""

from __future__ import annotations

import os
import sys
from collections.abc import Container

from supervise.attempts.access import denied, expect_ours
from supervise.attempts.elsewhere import elsewhere
from supervise.attempts.place import default_root
from supervise.attempts.roles import living
from supervise.attempts.store import Attempt, Run, Store
from supervise.host import procfs
from supervise.model.process import Process, ProcessId
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
    """Whether a supervise, or the keeper or guard of one that was killed, is at work for this run, wherever it is."""
    state = run.read_state()
    return any(living(state, role) is not None for role in ("supervisor", "keeper", "guard")) or elsewhere(run)


def left_alone(run: Run) -> list[Process]:
    """Processes of a run that nobody contains any more: supervise, keeper and guard were all killed."""
    if is_live(run):
        return []
    records = run.records()
    noted = {member for record in records if record.host == procfs.host_id() for member in record.members}
    marks = {(record.run, record.marker_id) for record in records}
    return [process for process in procfs.scan().values() if not process.gone and _is_of(process, noted, marks)]


def _is_of(process: Process, noted: Container[ProcessId], marks: Container[tuple[str, str]]) -> bool:
    """Whether a process was noted as a member, or bears the mark of an attempt; a name alone can be anybody's."""
    marker = process.marker
    return process.id in noted or (marker is not None and (marker.run, marker.id) in marks)


def choose(name: str | None, *, live_only: bool) -> Run | None:
    """The run of that name, or the only one there is; None, with a line that says why, if that is not clear.

    Raises:
        StoreError: it is not ours to see.
    """
    known = store()
    if name is not None:
        expect_ours(run for run in denied(known) if run.name == name)
        if any(run.name == name for run in known.runs()):
            return known.run(name)
        say(f"supervise: no run {name!r}; known: {', '.join(run.name for run in known.runs()) or 'none'}")
        return None
    runs = [run for run in known.runs() if is_live(run)] or ([] if live_only else known.runs())
    if len(runs) == 1:
        return runs[0]
    if not runs:
        expect_ours(denied(known))
    say(
        f"supervise: which run? {', '.join(run.name for run in runs)}"
        if runs
        else "supervise: nothing runs"
        if live_only
        else "supervise: no run yet"
    )
    return None


def newest() -> Run | None:
    """The run that was launched last; None, with a line that says so, if there is none."""
    runs = [run for run in store().runs() if run.numbers()]
    if not runs:
        say("supervise: no run yet")
        return None
    return max(runs, key=_began)


def _began(run: Run) -> float:
    latest = run.latest()
    began = ((latest.read("attempt") if latest else None) or {}).get("began")
    return float(began) if isinstance(began, int | float) else 0.0


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
