"""The two lines after an attempt: what differs from the one before it, and what became of the cause."""

from __future__ import annotations

import _thread
from typing import TYPE_CHECKING

from supervise.report.changes import joined
from supervise.report.comparison import Comparison
from supervise.report.sides import before, compared, patches, side
from supervise.text import shorten

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from supervise.attempts.store import Attempt, Run
    from supervise.report.patches import Patch

_WIDTH = 150
# What is over shall be told at once: content of files that takes longer is not told here.
_PATIENCE_S = 0.5


def since(run: Run, attempt: Attempt, outcome: Mapping[str, Any]) -> tuple[str, ...]:
    """Compare an attempt that is over with the newest before it that is kept.

    Args:
        run: its run.
        attempt: the one that is over.
        outcome: as outcome.json has it, or would.

    Returns:
        At most two lines; none for the first attempt, and none if anything goes wrong: the end is told without them.
    """
    try:
        number = before(run, attempt.number)
        if number is None:
            return ()
        found = compared(run, side(run.attempt(number)), side(attempt, outcome=outcome), _Quick(run).between)
    except Exception:  # noqa: BLE001 - what nobody asked for ends nothing
        return ()
    return lines(found, told=outcome.get("same_as"))


def lines(found: Comparison, told: object = None) -> tuple[str, ...]:
    """A comparison in two lines.

    Args:
        found: the comparison.
        told: number of the attempt of which people have just been told that it failed of the same.
    """
    first = shorten(differs(found), _WIDTH)
    return (first,) if told == found.before.number else (first, shorten(ended(found), _WIDTH))


def differs(found: Comparison) -> str:
    """`differs from #6 by: --max-num-seqs 256 -> 128, patch deepseek_v2.py (+12 −3)`; unknown is never the same."""
    which = f"#{found.before.number}"
    rest = f"; {found.uncompared}" if found.uncompared else ""
    if not found.differences:
        return f"nothing recorded differs from {which}{rest}"
    head = f"differs from {which} by: "
    return head + joined([each.short for each in found.differences], _WIDTH - len(head) - len(rest)) + rest


def ended(found: Comparison) -> str:
    """`cause moved: KeyError at weights -> ready`, `same cause as #6`, `ready as #6 (142 s -> 98 s)`."""
    ready = next((each for each in found.phases if each.name == "ready" and each.moved), None)
    return f"{found.course.told} ({ready.told})" if ready is not None else found.course.told


class _Quick:
    """Finds patches beside the caller, who does not wait for ever."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._over = _thread.allocate_lock()
        self._found: tuple[Patch, ...] | None = None

    def between(self, one: Attempt, other: Attempt) -> tuple[Patch, ...] | None:
        """What `patches` returns, None if that takes too long.

        Raises:
            RuntimeError: no thread can be started.
        """
        self._over.acquire()
        # Not threading.Thread: where memory is short it waits for ever for one that dies at its birth.
        _thread.start_new_thread(self._look, (one, other))
        self._over.acquire(timeout=_PATIENCE_S)
        return self._found

    def _look(self, one: Attempt, other: Attempt) -> None:
        try:
            self._found = patches(self._run, one, other)
        except Exception:  # noqa: BLE001 - unknown is what it is then
            self._found = None
        finally:
            self._over.release()
