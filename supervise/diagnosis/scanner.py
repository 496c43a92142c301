"""Passes over the plain stretches of a large log: only the lines that may matter are taken apart.

`SparseReader` is the one entry for everybody who reads a log, live or from a file:

    scan = lambda: Scanner.of(signatures, profiles, extra=["whatever else is looked for"])
    reader = SparseReader(scan, busy=lambda: diagnoser.open)
    for chunk in chunks:                    # any bytes; 1 MiB each is best for a file
        for line in reader.feed(chunk):     # a generator: take every line before the next feed
            tracker.feed(line)
            diagnoser.feed(line)
    for line in reader.close():             # the unfinished last line
        ...

Line numbers are those of the whole log. Whatever is small, the beginning of a log and a log that is no flood, is
delivered whole, and without the price of a scanner.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from supervise.diagnosis import episodes, facts, tracebacks
from supervise.diagnosis.lines import LineReader
from supervise.diagnosis.prefilter import required_literals
from supervise.model.diagnosis import Line, SignatureSet
from supervise.model.profile import Profile

OPENERS = (*tracebacks.OPENERS, "The above exception was the direct cause", "During handling of the above exception")
"""What begins a report of several lines, or belongs to one."""

PLAIN = 256 * 1024
"""Bytes at the beginning of a log of which every line is delivered: banners, arguments, and nearly every ticket."""

# Below the one a chunk costs less than the scanner's import (8 ms) and compilation; below the other less than a scan.
_COLD, _WARM = 32 * 1024, 4 * 1024
# The headline of a traceback comes right before it, though other processes may speak in between.
_BEFORE = 16
_AFTER = 24
# A process that dies within its report leaves it open for ever.
_PATIENCE = 1000
_BATCH = 32
# What means something at the beginning of a record only, and stands in many a plain line ("cache usage: 0.3%").
_BEGINNING = rb"(?:\n|[^a-z \n]|[^a-z\n] )"
_AT_BEGINNING = {"usage: ": _BEGINNING + rb"usage: ", "+ ": _BEGINNING + rb"\++ (?:exec |vllm|sglang|python|/|\w+=)"}
_MEMORY = 32 * 1024 * 1024

_LINES = re.compile(rb"(?:[^\n]*\n){1,%d}" % _BATCH)
# `prefixes` takes them off before it reads a line; see there. None of them spans lines.
_ESCAPE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_COLOURS = 24


class Scanner:
    """Searches for many literals at once, at the speed of grep.

    Args:
        literals: what makes a line worth reading.
        openers: what makes the lines around it worth reading as well.

    Raises:
        ImportError: google-re2 cannot be loaded.
    """

    def __init__(self, literals: Iterable[str], openers: Iterable[str] = OPENERS) -> None:
        openers = tuple(openers)
        self._any = _compile({*literals, *openers})
        self._openers = _compile(openers)

    @classmethod
    def of(cls, signatures: SignatureSet, profiles: Iterable[Profile], extra: Iterable[str] = ()) -> Scanner | None:
        """Make one that finds all that progress, diagnosis, facts and episodes look for.

        Traps are not looked for: what they hide is found by what they hide it from. Neither are progress bars: of a
        flood of them the last of each chunk are enough.

        Args:
            signatures: what the matcher knows.
            profiles: whose phases and ready lines the tracker looks for.
            extra: literals that somebody else looks for.

        Returns:
            The scanner; None if nothing can be passed over: a pattern has no literal, or google-re2 cannot be loaded.
        """
        literals = {*extra, *facts.LITERALS, *episodes.LITERALS}
        literals.update(literal for each in signatures.signatures for literal in each.literals)
        for pattern in _patterns(profiles):
            required = required_literals(pattern)
            if required is None:
                return None
            literals.update(required)
        try:
            return cls(literals)
        except ImportError:
            return None

    def next(self, data: bytes, start: int) -> int:
        """Find the next hit.

        Args:
            data: lines; the byte before `start` is an LF.
            start: where to begin.

        Returns:
            Where in its line the hit ends; -1 without one.
        """
        found = self._any(data, start - 1)
        return int(found.end()) - 1 if found else -1

    def opens(self, data: bytes, start: int, end: int) -> bool:
        """Whether a report of several lines begins between two places; the byte before `start` is an LF."""
        return self._openers(data, start - 1, end) is not None


def _patterns(profiles: Iterable[Profile]) -> Iterator[re.Pattern[str]]:
    for profile in profiles:
        yield from (rule.begins for rule in profile.phases)
        yield from profile.ready.lines


def _compile(literals: Iterable[str]) -> Any:
    import re2

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.never_capture = True
    options.max_mem = _MEMORY
    spelled = sorted({spelling for literal in literals for spelling in _spellings(literal)})
    return re2.compile(b"|".join(spelled), options).search


def _spellings(literal: str) -> set[bytes]:
    """As it is printed, and as it stands in a line of JSON: quotes are escaped, by Go three more characters as well."""
    if literal in _AT_BEGINNING:
        return {_AT_BEGINNING[literal]}
    quoted = json.dumps(literal, ensure_ascii=False)[1:-1]
    go = quoted.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026")
    return {re.escape(each.encode()) for each in (literal, quoted, go)}


class SparseReader:
    """Turns a stream into those of its lines that may matter, each with its number in the whole stream.

    A line with a hit is delivered. So are some before and after one that opens a report, everything while a report is
    open, the first and the last lines of the stream, and the last lines of each chunk: bars are seen to move.

    Args:
        scan: makes the scanner, called when the first large chunk comes; None if nothing may be passed over.
        busy: whether a report is open, after the lines delivered until now. Without it every report is taken for a
            very long one.
        plain: bytes at the beginning of which every line is delivered.
        small: a chunk of fewer bytes is delivered whole; None for what costs less than to scan it.
    """

    def __init__(
        self,
        scan: Callable[[], Scanner | None],
        busy: Callable[[], bool] = lambda: True,
        *,
        plain: int = PLAIN,
        small: int | None = None,
    ) -> None:
        self._lines = LineReader()
        self._make = scan
        self._scanner: Scanner | None = None
        self._made = False
        self._busy = busy
        self._plain = plain
        self._small = small
        self._after = 0
        self._patience = 0

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

    def close(self) -> list[Line]:
        """End the stream: the unfinished last line, if there is one."""
        return self._lines.close()

    def _all(self, data: bytes) -> Iterator[Line]:
        if data:
            self._patience = _PATIENCE
            yield from self._lines.feed(data)

    def _chosen(self, size: int) -> Scanner | None:
        usual = _WARM if self._made else _COLD
        if size < (usual if self._small is None else self._small):
            return None
        if not self._made:
            self._made, self._scanner = True, self._make()
        return self._scanner

    def _sift(self, scanner: Scanner, data: bytes) -> Iterator[Line]:
        """Deliver the line that began in an earlier chunk, sift the whole lines, and keep the one that has no end."""
        begin, end = data.find(b"\n"), data.rfind(b"\n")
        if begin < 0:
            self._lines.take(data)
            return
        yield from self._lines.take(data[: begin + 1])
        # The scanner wants to see the LF before the first line.
        yield from self._through(scanner, _uncoloured(data[begin : end + 1]))
        self._lines.take(data[end + 1 :])

    def _through(self, scanner: Scanner, data: bytes) -> Iterator[Line]:
        at, last = 1, _lines_back(data, 1, len(data), _BEFORE)
        while at < len(data):
            if self._after > 0 or (self._patience > 0 and self._busy()):
                stop = _end_of_batch(data, at)
                self._watch(opened=scanner.opens(data, at, stop))
                yield from self._lines.take(data[at:stop])
            else:
                hit = scanner.next(data, at)
                if hit < 0:
                    break
                start, stop = data.rfind(b"\n", 0, hit) + 1, data.find(b"\n", hit) + 1
                opened = scanner.opens(data, start, stop)
                self._watch(opened=opened)
                start = _lines_back(data, at, start, _BEFORE) if opened else start
                self._lines.skip(data[at:start])
                yield from self._lines.take(data[start:stop])
            at = stop
        last = max(at, last)
        self._lines.skip(data[at:last])
        if last < len(data):
            yield from self._lines.take(data[last:])

    def _watch(self, *, opened: bool) -> None:
        """Go on with what a report needs, or begin anew with a further one."""
        self._after = _AFTER if opened else self._after - _BATCH
        self._patience = _PATIENCE if opened else self._patience - _BATCH


def _lines_back(data: bytes, floor: int, start: int, count: int) -> int:
    """Where the line begins that lies so many lines before the beginning of another, not before `floor`."""
    for _ in range(count):
        if start <= floor:
            break
        start = max(floor, data.rfind(b"\n", floor, start - 1) + 1)
    return start


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
