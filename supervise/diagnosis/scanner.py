"""Passes over the plain stretches of a large log: only the lines that may matter are taken apart.

`SparseReader` is the one entry for everybody who reads a log, live or from a file:

    scan = lambda: Scanner.of(signatures, profiles, extra=["whatever else is looked for"])
    reader = SparseReader(scan, busy=lambda: diagnoser.open)
    for chunk in chunks:                    # any bytes; 1 MiB each is best for a file
        for line in reader.feed(chunk):     # a generator: take every line before the next feed
            tracker.feed(line)
            diagnoser.feed(line)
    for line in reader.close():             # what it still holds back, and the unfinished last line
        ...

Line numbers are those of the whole log. Whatever is small, the beginning of a log and a log that is no flood, is
delivered whole, and without the price of a scanner. Of a log that says the same again and again, a server's that fails
every request, that is not looked for any more after a while; what else is found there has a wide stretch around it
delivered, as what belongs to it is scattered.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from supervise.diagnosis.lines import RECORD_LIMIT, LineReader
from supervise.diagnosis.seams import clean_start
from supervise.diagnosis.searching import OPENERS, Hit, Scanner
from supervise.diagnosis.tolerance import Tolerance
from supervise.model.diagnosis import Line

__all__ = ["ALLOWANCE", "HURRIED", "OPENERS", "PLAIN", "Scanner", "SparseReader"]

PLAIN = 256 * 1024
"""Bytes at the beginning of a log of which every line is delivered: banners, arguments, and nearly every ticket."""

ALLOWANCE = 1024 * 1024
"""Bytes of a file that one literal may have delivered: half a second's work."""

HURRIED = 64 * 1024
"""The same for whoever has to catch up with a server that is writing."""

# Below the one a chunk costs less than the scanner's import (8 ms) and compilation; below the other less than a scan.
_COLD, _WARM = 32 * 1024, 4 * 1024
# The headline of a traceback comes right before it, though other processes may speak in between.
_BEFORE = 16
_AFTER = 24
# A process that dies within its report leaves it open for ever.
_PATIENCE = 1000
_BATCH = 32
# Lines around a hit when some are passed over that may belong to it. What kept a server from going on may be as far
# before its engine's death as a cause is looked for, and much else is said after it.
_WIDE_BEFORE, _WIDE_AFTER = 300, 200
_DEATH_BEFORE, _DEATH_AFTER = 1000, 2000
# Bytes of them before it, at most.
_HELD = 2 * RECORD_LIMIT
_LINES = re.compile(rb"(?:[^\n]*\n){1,%d}" % _BATCH)
# `prefixes` takes them off before it reads a line; see there. None of them spans lines.
_ESCAPE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_COLOURS = 24


class SparseReader:
    """Turns a stream into those of its lines that may matter, each with its number in the whole stream.

    A line with a hit is delivered. So are some before and after one that opens a report, everything while a report is
    open, the first and the last lines of the stream, and the last lines of each chunk: bars are seen to move. While
    something is not looked for any more, what has no hit is held back at the end of a chunk, as far as one at the
    beginning of the next would have it delivered.

    Args:
        scan: makes the scanner, called when the first large chunk comes; None if nothing may be passed over.
        busy: whether a report is open, after the lines delivered until now. Without it every report is taken for a
            very long one.
        plain: bytes at the beginning of which every line is delivered.
        small: a chunk of fewer bytes is delivered whole; None for what costs less than to scan it.
        allowance: asked at each chunk: how many bytes one literal may have delivered; None for all.
    """

    def __init__(
        self,
        scan: Callable[[], Scanner | None],
        busy: Callable[[], bool] = lambda: True,
        *,
        plain: int = PLAIN,
        small: int | None = None,
        allowance: Callable[[], int | None] = lambda: ALLOWANCE,
    ) -> None:
        self._lines = LineReader()
        self._make = scan
        self._scanner: Scanner | None = None
        self._made = False
        self._busy = busy
        self._plain = plain
        self._small = small
        self._allowance = allowance
        self._tolerance = Tolerance()
        self._after = 0
        self._patience = 0
        self._reason = ""
        # Whole lines that are held back, and what has come of the line after them.
        self._held = self._begun = b""

    def feed(self, data: bytes) -> Iterator[Line]:
        """Take the next bytes.

        Args:
            data: any number of bytes, cut anywhere.

        Yields:
            Lines that are complete now, in order. Every one is to be taken before the next `feed`.
        """
        if self._plain > 0:
            head, data = data[: self._plain], data[self._plain :]
            self._plain -= len(head)
            yield from self._all(head)
        scanner = self._chosen(len(data))
        if scanner is None:
            yield from self._all(data)
        else:
            yield from self._sift(scanner, self._lines.unify(data))

    def pass_over(self, data: bytes) -> None:
        """Only count the lines of the next bytes.

        Args:
            data: as for `feed`.
        """
        data = self._held + self._begun + self._lines.unify(data)
        self._held = self._begun = b""
        begin, end = data.find(b"\n") + 1, data.rfind(b"\n") + 1
        self._lines.take(data[:begin])
        self._lines.skip(data[begin:end])
        self._lines.take(data[end:])

    def close(self) -> list[Line]:
        """End the stream: what is held back, and the unfinished last line, if there is one."""
        return [*self._let_go(), *self._lines.close()]

    def _let_go(self) -> list[Line]:
        held, begun = self._held, self._begun
        self._held = self._begun = b""
        return self._lines.take(held + begun)

    def _all(self, data: bytes) -> Iterator[Line]:
        if data:
            self._patience = _PATIENCE
            yield from self._lines.feed(data)

    def _chosen(self, size: int) -> Scanner | None:
        usual = _WARM if self._made else _COLD
        if size < (usual if self._small is None else self._small) and not self._held:
            return None
        if not self._made:
            self._made, self._scanner = True, self._make()
        return self._scanner

    def _sift(self, scanner: Scanner, data: bytes) -> Iterator[Line]:
        """Deliver the line that began in an earlier chunk, sift the whole lines, and keep the one that has no end."""
        held, data = self._held, self._begun + data
        begin, end = data.find(b"\n"), data.rfind(b"\n")
        if end < 0 and held and len(data) <= RECORD_LIMIT:
            self._begun = data
            return
        self._held = self._begun = b""
        if end < 0:
            yield from self._lines.take(held + data)
            return
        if not held:
            yield from self._lines.take(data[: begin + 1])
        self._tolerance.go_on(end, self._allowance())
        # The scanner wants to see the LF before the first line.
        lines = b"\n" + held + _uncoloured(data[: end + 1]) if held else _uncoloured(data[begin : end + 1])
        yield from self._through(scanner, lines, 1 + len(held) if self._tolerance.tired else 1)
        if self._held:
            self._begun = data[end + 1 :]
        else:
            self._lines.take(data[end + 1 :])

    def _through(self, scanner: Scanner, data: bytes, scanned: int) -> Iterator[Line]:
        """Sift whole lines; those before `scanned` have no hit."""
        at, last = 1, _lines_back(data, 1, len(data), _BEFORE)
        while at < len(data):
            eager = scanner.without(self._tolerance.ignored)
            if self._after > 0 or (self._patience > 0 and self._busy()):
                start, stop = at, _end_of_batch(data, at)
                self._go_on(eager, data, start, stop)
            else:
                hit = eager.next(data, max(at, scanned))
                if hit is None:
                    break
                start, stop = data.rfind(b"\n", 0, hit.end) + 1, data.find(b"\n", hit.end) + 1
                before = self._begin(hit, opened=eager.opens(data, start, stop))
                start = (
                    _lines_back(data, at, start, before) if before <= _BEFORE else _far_back(data, at, start, before)
                )
                self._lines.skip(data[at:start])
            self._tolerance.charge(self._reason, stop - start)
            yield from self._lines.take(data[start:stop])
            at = stop
        if self._tolerance.tired:
            last = _far_back(data, at, len(data), _DEATH_BEFORE)
            self._held = data[last:]
        last = max(at, last)
        self._lines.skip(data[at:last])
        if last < len(data) and not self._held:
            yield from self._lines.take(data[last:])

    def _begin(self, hit: Hit, *, opened: bool) -> int:
        """Begin with what a hit needs after it, and say how many lines it needs before it."""
        self._reason = hit.name
        if self._tolerance.tired:
            self._after = max(self._after, _DEATH_AFTER if hit.grave else _WIDE_AFTER)
            self._patience = _DEATH_AFTER + _PATIENCE if hit.grave else self._patience
            return _DEATH_BEFORE if hit.grave else _WIDE_BEFORE
        self._watch(opened=opened)
        return _BEFORE if opened else 0

    def _go_on(self, scanner: Scanner, data: bytes, start: int, stop: int) -> None:
        """Go on with what a report needs, or begin anew with a further one."""
        if not self._tolerance.tired:
            self._watch(opened=scanner.opens(data, start, stop))
            return
        self._watch(opened=False)
        hit = scanner.next(data, start, stop)
        if hit is not None:
            self._begin(hit, opened=True)

    def _watch(self, *, opened: bool) -> None:
        self._after = _AFTER if opened else self._after - _BATCH
        self._patience = _PATIENCE if opened else self._patience - _BATCH


def _lines_back(data: bytes, floor: int, start: int, count: int) -> int:
    """Where the line begins that lies so many lines before the beginning of another, not before `floor`."""
    for _ in range(count):
        if start <= floor:
            break
        start = max(floor, data.rfind(b"\n", floor, start - 1) + 1)
    return start


def _far_back(data: bytes, floor: int, start: int, count: int) -> int:
    """The same, not more bytes back than can be held, and not in the middle of a report."""
    near = floor if start - floor <= _HELD else data.find(b"\n", start - _HELD) + 1
    back = _lines_back(data, near, start, count)
    return back if back == floor else clean_start(data, back, start)


def _end_of_batch(data: bytes, start: int) -> int:
    found = _LINES.match(data, start)
    return found.end() if found else len(data)


def _uncoloured(data: bytes) -> bytes:
    """Take escape sequences off, which may stand within a literal; a log has few different ones, each very often."""
    for _ in range(_COLOURS):
        at = data.find(b"\x1b")
        if at < 0:
            return data
        found = _ESCAPE.match(data, at)
        if found is None or found[0].startswith(b"\x1b]"):
            break
        data = data.replace(found[0], b"")
    return _ESCAPE.sub(b"", data)
