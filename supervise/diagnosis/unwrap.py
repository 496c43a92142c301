"""Puts lines together that a terminal broke at its edge: many a ticket was copied from a window."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise

from supervise.diagnosis.prefixes import parse
from supervise.model.diagnosis import Line

# Lines by which it is judged whether the log is broken, and how many of them must reach the edge.
_HEAD = 1000
# Characters that are held until then: less than what a reader delivers whole (scanner.PLAIN), so that nobody decides
# what to pass over by a report that is not fed yet.
_HELD = 128 * 1024
_FULL = 4
_NARROWEST, _WIDEST = 60, 300
# A line goes on over so many lines at most: the engine's configuration takes some 4000 columns.
_PIECES = 80
# Of so many lines that reach the edge one may be followed by a line that has a prefix: it ended just there.
_ENDED_THERE = 4
# How the engines begin a line: what begins so is never the rest of another.
_BEGINS = re.compile(
    r"\([\w.:-]+(?: [\w=]+)* pid=\d+[,)]|(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)(?: \d\d-\d\d |:)|\[\d{4}-\d\d-\d\d "
)


def unwrapped(lines: Iterable[Line]) -> Iterator[Line]:
    """Undo the breaks of a log that a terminal broke, all at the same column.

    Args:
        lines: a log, from its beginning.

    Yields:
        Its lines. One that goes on in the next ones has the number of its first piece; of a log that is not broken they
        are the same.
    """
    lines = iter(lines)
    head = list(_head(lines))
    width = _edge(head)
    everything = chain(iter(head), lines)
    # The iterator lets go of it when it has been read.
    del head
    yield from everything if width is None else _joined(everything, width)


def _head(lines: Iterator[Line]) -> Iterator[Line]:
    held = 0
    for line in islice(lines, _HEAD):
        yield line
        held += len(line.raw)
        if held >= _HELD:
            break


def _edge(lines: Sequence[Line]) -> int | None:
    """The column at which lines are broken; None if they are not."""
    begun = [len(line.raw) for line in lines if _BEGINS.match(line.raw)]
    width = max(begun, default=0)
    if not _NARROWEST <= width <= _WIDEST or begun.count(width) < _FULL:
        return None
    after = [not _is_own(next_) for line, next_ in pairwise(lines) if len(line.raw) == width]
    return width if after.count(False) * _ENDED_THERE <= len(after) else None


def _is_own(line: Line) -> bool:
    """Whether it is no rest of the line before: SGLang's headlines are all as long, and frames follow them."""
    return _BEGINS.match(line.raw) is not None or line.raw.startswith('  File "') or not line.raw.strip()


def _joined(lines: Iterable[Line], width: int) -> Iterator[Line]:
    pieces: list[Line] = []
    for line in lines:
        if pieces and (not _goes_on(pieces, width) or _is_own(line)):
            yield _whole(pieces)
            pieces = []
        pieces.append(line)
    if pieces:
        yield _whole(pieces)


def _goes_on(pieces: list[Line], width: int) -> bool:
    return len(pieces[-1].raw) == width and len(pieces) < _PIECES and _BEGINS.match(pieces[0].raw) is not None


def _whole(pieces: list[Line]) -> Line:
    first, *others = pieces
    return parse("".join(piece.raw for piece in pieces), first.number) if others else first
