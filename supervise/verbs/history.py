"""`supervise history`: the attempts of a run, what each changed, and how far it got."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator

from supervise.attempts.store import Run
from supervise.model.exits import Exit
from supervise.report.history import VERSION, Row, table
from supervise.report.sides import before, compared, side
from supervise.verbs import records
from supervise.verbs.output import answering
from supervise.verbs.postmortem import lasted, until_over
from supervise.verbs.select import choose, is_live, newest, say


def history(name: str | None, *, last: int | None, as_json: bool) -> int:
    """Print the attempts of a run that are kept, the oldest first.

    Args:
        name: the run; None for the one that was launched last.
        last: how many of them; None for all.
        as_json: one JSON object on standard output instead of a table.

    Returns:
        0, or 2 if there is no such run.
    """
    run = choose(name, live_only=False) if name is not None else newest()
    if run is None:
        return Exit.USAGE
    notes: list[str] = []
    rows = list(_rows(run, last, notes))
    with answering():
        if as_json:
            said = {"version": VERSION, "run": run.name, "attempts": [row.as_data() for row in rows], "notes": notes}
            sys.stdout.write(json.dumps(said, indent=1) + "\n")
        elif rows:
            sys.stdout.write(table(rows, _width()))
        else:
            sys.stdout.write("no attempt yet\n")
    for note in () if as_json else (*notes, *(note for row in rows for note in row.side.notes)):
        say(f"supervise: note: {note}")
    return Exit.OK


def _rows(run: Run, last: int | None, notes: list[str]) -> Iterator[Row]:
    numbers = run.numbers()[-last:] if last else run.numbers()
    running = run.latest() if is_live(run) else None
    state = run.read_state() or {}
    phase = state.get("phase") if state.get("state") == "starting" else state.get("state")
    moments = records.all_moments(run, notes)
    first = before(run, numbers[0]) if numbers else None
    previous = None if first is None else side(run.attempt(first))
    for number in numbers:
        attempt = run.attempt(number)
        live = running is not None and running.number == number and attempt.read("outcome") is None
        this = side(attempt, live=live)
        began = records.seconds((this.record or {}).get("began"))
        yield Row(
            side=this,
            began=began,
            seconds=lasted(began, list(until_over(moments.get(number, ()))), live=live),
            phase=phase if live and isinstance(phase, str) else None,
            found=None if previous is None else compared(run, previous, this),
        )
        previous = this


def _width() -> int | None:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
