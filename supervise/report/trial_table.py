"""What trials have come to: a table for people, objects for machines. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from supervise.model.sweep import Axis, Result, largest
from supervise.model.trial import Verdict
from supervise.text import duration, printable, shorten

VERSION = 1
"""Of the JSON; docs/try.md says what it promises."""

WORDS = {"pass": "passed", "fail": "failed", "skip": "unjudged", "abandoned": "abandoned"}
"""What a verdict is called where there are several."""

_HEAD = ("verdict", "ended", "ready", "first token", "#", "why")
_WHY = 100


def table(swept: Sequence[Axis], results: Sequence[Result]) -> list[str]:
    """A line for each trial under a line that names the columns.

    Args:
        swept: what was varied.
        results: in the order in which they are shown.
    """
    rows = [(*(axis.name for axis in swept), *_HEAD), *map(_cells, results)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def summary(swept: Sequence[Axis], results: Sequence[Result]) -> str:
    """How many came to what, and the largest value that passed."""
    counts = {word: sum(result.verdict == verdict for result in results) for verdict, word in WORDS.items()}
    told = ", ".join(f"{count} {word}" for word, count in counts.items() if count) or "nothing was tried"
    best = largest(swept, results)
    return told if best is None else f"{told}; the largest that passed: {swept[0].name}={best}"


def sweep_as_data(run: str, swept: Sequence[Axis], results: Sequence[Result], status: int) -> dict[str, Any]:
    """A sweep as JSON; see docs/try.md."""
    names = [axis.name for axis in swept]
    return {
        "version": VERSION,
        "run": run,
        "verdict": Verdict(status).name.lower(),
        "exit_status": status,
        "largest": largest(swept, results),
        "results": [
            {"values": dict(zip(names, result.values, strict=True)), **trial_as_data(result)} for result in results
        ],
    }


def trial_as_data(result: Result) -> dict[str, Any]:
    """A trial as JSON; see docs/try.md."""
    return {name: value for name, value in result._asdict().items() if name != "values"} | {
        "advice": list(result.advice)
    }


def _cells(result: Result) -> tuple[str, ...]:
    return (
        *(printable(value) for value in result.values),
        WORDS[result.verdict],
        result.outcome or "-",
        _seconds(result.ready_s),
        _seconds(result.ttft_s),
        "-" if result.attempt is None else str(result.attempt),
        # Blanks within a quoted completion stay.
        shorten(printable(" ".join(line.strip() for line in result.why.splitlines())), _WHY),
    )


def _seconds(value: float | None) -> str:
    return "-" if value is None else duration(value)
