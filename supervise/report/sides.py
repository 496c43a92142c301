"""Reads what two attempts have left, and puts them next to each other."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from supervise.report.comparison import Comparison, compare
from supervise.report.standing import Side

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from supervise.attempts.store import Attempt, Run
    from supervise.report.patches import Patch

    Between = Callable[[Attempt, Attempt], tuple[Patch, ...] | None]


def side(
    attempt: Attempt, *, live: bool = False, serves: bool = False, outcome: Mapping[str, Any] | None = None
) -> Side:
    """Read what an attempt has left.

    Args:
        attempt: one that is kept.
        live: whether it still runs.
        serves: whether it is ready by now.
        outcome: its outcome.json, where that is known already.
    """
    from supervise.attempts import sources

    record = attempt.read("attempt")
    ended = outcome or (None if live else attempt.read("outcome"))
    code = sources.read(attempt)
    notes = [_note(attempt, "attempt")] if record is None else []
    notes += [_note(attempt, "outcome")] if ended is None and not live else []
    notes += [_note(attempt, "sources")] if code is None and _exists(attempt, "sources") else []
    return Side(attempt.number, record, ended, attempt.read("slate"), code, live, tuple(notes), live and serves)


def compared(run: Run, before: Side, after: Side, between: Between | None = None) -> Comparison:
    """Put two attempts next to each other.

    Args:
        run: their run.
        before: the earlier one.
        after: the later one.
        between: finds the files whose content differs; those of `patches` if left out. Blocking.
    """
    known = before.sources is not None and after.sources is not None
    find = between or (lambda one, other: patches(run, one, other))
    found = find(run.attempt(before.number), run.attempt(after.number)) if known else None
    return compare(run.name, before, after, found)


def patches(run: Run, before: Attempt, after: Attempt) -> tuple[Patch, ...] | None:
    """The files whose content differs in two attempts, None if the code of one of them is not known; blocking."""
    from supervise.host.originals import Originals
    from supervise.report.patches import between

    store = os.path.dirname(run.path)
    return between(before, after, Originals(os.path.join(store, ".originals")))


def before(run: Run, number: int) -> int | None:
    """The newest attempt before that one that is still kept."""
    return next((each for each in reversed(run.numbers()) if each < number), None)


def _exists(attempt: Attempt, name: str) -> bool:
    return os.path.lexists(os.path.join(attempt.path, f"{name}.json"))


def _note(attempt: Attempt, name: str) -> str:
    """What is wrong with a file of which nothing can be read."""
    what = "is damaged, or may not be read; nothing in it is believed" if _exists(attempt, name) else "is missing"
    return f"{name}.json of #{attempt.number} {what}"
