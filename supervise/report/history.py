"""The attempts of a run, one below the other. Pure."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from supervise.report.changes import joined
from supervise.text import duration, printable, shorten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from supervise.report.comparison import Comparison
    from supervise.report.standing import Side

VERSION = 1
"""Of the JSON; docs/compare.md says what it promises."""

_HEAD = ("#", "when", "seconds", "reached", "cause", "changed")
_NARROW = 20
_WIDEST = 28
# What changed, where no terminal says how wide a line may be.
_UNBOUNDED = 300


@dataclass(frozen=True, slots=True)
class Row:
    """One attempt.

    `began` is in seconds since the epoch, `seconds` how long it lasted or lasts, None where nobody knows. `phase` is
    the one that a living one is in. `found` compares it with the one before it that is kept, None for the first.
    """

    side: Side
    began: float | None
    seconds: float | None
    phase: str | None
    found: Comparison | None

    @property
    def reached(self) -> str:
        """How far it got: `ready`, or the last phase that it entered."""
        if self.side.outcome is None:
            return (self.phase or "runs") if self.side.live else "unknown"
        if self.side.ready_s is not None:
            return "ready"
        cause = self.side.cause
        return (cause.phase if cause else None) or next(reversed(self.side.phases), None) or "-"

    @property
    def cause_id(self) -> str | None:
        """What tells its cause from others: the known failure, or else the fingerprint."""
        cause = self.side.cause
        return None if cause is None else cause.signature or cause.fingerprint or cause.end

    @property
    def cells(self) -> tuple[str, ...]:
        """As it stands in the table, without what changed."""
        moment = "unknown" if self.began is None else time.strftime("%m-%d %H:%M:%S", time.localtime(self.began))
        lasted = "unknown" if self.seconds is None else duration(self.seconds)
        unknown = self.side.outcome is None and not self.side.live
        cause = self.cause_id or ("unknown" if unknown or self.side.cause is not None else "-")
        return (str(self.side.number), moment, lasted, self.reached, shorten(cause, _WIDEST))

    def changed(self, width: int) -> str:
        """What changed against the one before it, in as many characters; `(?)` if not all could be compared."""
        if self.found is None:
            return "-"
        phrases = [each.short for each in self.found.differences] or ["nothing recorded"]
        rest = f"; {self.found.uncompared}" if self.found.uncompared else ""
        if rest and len(", ".join(phrases)) + len(rest) > width:
            rest = " (?)"
        return joined(phrases, width - len(rest)) + rest

    def as_data(self) -> dict[str, Any]:
        """As JSON; see docs/compare.md."""
        found, outcome = self.found, self.side.outcome or {}
        return {
            "attempt": self.side.number,
            "live": self.side.live,
            "began": self.began,
            "seconds": self.seconds,
            "outcome": outcome.get("outcome"),
            "ended": self.side.ended(),
            "reached": self.reached,
            "ready_s": self.side.ready_s,
            "cause_id": self.cause_id,
            "same_cause_as": outcome.get("same_as"),
            "before": None if found is None else found.before.number,
            "changed": None if found is None else [each.told for each in found.differences],
            "unknown": [] if found is None else list(found.unknown),
            "notes": list(self.side.notes),
        }


def table(rows: Sequence[Row], width: int | None) -> str:
    """The attempts, a line for each.

    Args:
        rows: in the order in which they are shown.
        width: columns of the terminal, None where there is none: then only what changed is cut, where it is very long.
    """
    cells = [_HEAD[:-1], *(row.cells for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    left = _UNBOUNDED if width is None else max(_NARROW, width - sum(widths) - 2 * len(widths) - 1)
    lines = [
        f"{'  '.join(f'{cell:<{size}}' for cell, size in zip(each, widths, strict=True))}  {changed}"
        for each, changed in zip(cells, (_HEAD[-1], *(row.changed(left) for row in rows)), strict=True)
    ]
    whole = (printable(line) for line in lines)
    return "".join(f"{line if width is None else shorten(line, width - 1)}\n" for line in whole)
