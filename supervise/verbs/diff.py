"""`supervise diff`: what differs between two attempts, and what became of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from supervise.attempts.store import Run
from supervise.model.exits import Exit
from supervise.report.comparison import Comparison
from supervise.report.comparison_page import ComparisonPage, patch_text
from supervise.report.sides import before, compared, side
from supervise.text import printable
from supervise.verbs.output import answering
from supervise.verbs.select import choose, is_live, kept, newest, say

_DIFFERS = 1
_MOST_WORDS = 3


def meant(words: Sequence[str]) -> tuple[str | None, tuple[int, ...]]:
    """Take `[RUN] [A [B]]` apart.

    Args:
        words: of the command line. A number that stands where a run may stand is an attempt, unless two follow it.

    Returns:
        The run, None if none is named, and the numbers of attempts.

    Raises:
        ValueError: it cannot be that; the text says what is wrong.
    """
    named = bool(words) and (len(words) == _MOST_WORDS or not _is_number(words[0]))
    numbers = words[1:] if named else words
    if len(numbers) > _MOST_WORDS - 1:
        raise ValueError(f"{' '.join(words)!r}: use [RUN] A B, with the numbers of two attempts")
    for word in numbers:
        if not _is_number(word):
            raise ValueError(f"{word!r} is no number of an attempt; use [RUN] A B, as `supervise history` has them")
    return words[0] if named else None, tuple(map(int, numbers))


def diff(name: str | None, numbers: Sequence[int], *, as_json: bool, patch: bool) -> int:
    """Print what differs between two attempts.

    Args:
        name: the run; None for the one that was launched last.
        numbers: two attempts; one is compared with the one before it, none are the last two.
        as_json: one JSON object on standard output instead of text.
        patch: whether what differs in files is printed, too.

    Returns:
        As diff(1): 0 if nothing differs but times, 1 if something does, or if it is not known whether it does, 2 if
        there is no such run or attempt.
    """
    run = choose(name, live_only=False) if name is not None else newest()
    pair = _pair(run, numbers) if run is not None else None
    if run is None or pair is None:
        return Exit.USAGE
    running = run.latest() if is_live(run) else None
    live = running.number if running is not None and running.read("outcome") is None else None
    serves = (run.read_state() or {}).get("state") == "ready"
    one, other = (side(run.attempt(number), live=number == live, serves=serves) for number in pair)
    found = compared(run, one, other)
    with answering():
        _tell(found, as_json=as_json, patch=patch)
    return Exit.OK if found.same else _DIFFERS


def _pair(run: Run, numbers: Sequence[int]) -> tuple[int, int] | None:
    """The two attempts, the earlier one first where nobody said otherwise; None, with a line that says why not."""
    if not numbers:
        latest = run.latest()
        numbers = [latest.number] if latest else []
    if any(kept(run, run.attempt(number), number) is None for number in numbers or (0,)):
        return None
    if len(numbers) > 1:
        return numbers[0], numbers[1]
    previous = before(run, numbers[0])
    if previous is None:
        say(f"supervise: run {run.name} has no attempt before {numbers[0]} that is still kept")
        return None
    return previous, numbers[0]


def _tell(found: Comparison, *, as_json: bool, patch: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(found.as_data(texts=patch), indent=1) + "\n")
        return
    ComparisonPage().told(found)
    if patch and sys.stdout.isatty():
        sys.stdout.write("".join(f"{printable(line)}\n" for line in patch_text(found).split("\n")))
    elif patch:
        # Byte for byte: it is to be applied.
        sys.stdout.flush()
        sys.stdout.buffer.write(patch_text(found).encode("utf-8", "surrogateescape"))


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) < 10
