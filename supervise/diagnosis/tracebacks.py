"""Puts tracebacks and other reports of several lines together, from lines of many processes that are interleaved."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from supervise.diagnosis import native, styles
from supervise.diagnosis.blocks import PythonBlocks
from supervise.diagnosis.builds import wraps_build
from supervise.diagnosis.matching import QUIET
from supervise.diagnosis.native import Reports
from supervise.diagnosis.readings import Place, Reading
from supervise.model.diagnosis import Kind, Line

__all__ = ["OPENERS", "Place", "Reading", "TracebackAssembler"]

OPENERS = (styles.OPENER, 'File "', *native.OPENERS)
"""One of these is in every line that opens a traceback or a report. The line before it may be its headline."""

_STREAMS = 256
# A build is long over when this many lines went by.
_BUILD_REACH = 5000

_Key = tuple[str | None, int | None]


@dataclass(slots=True)
class _Stream:
    """What one process prints."""

    blocks: PythonBlocks = field(default_factory=PythonBlocks)
    reports: Reports = field(default_factory=Reports)

    @property
    def reach(self) -> int:
        """The number of the last line at which something may still go on."""
        return max(self.blocks.reach, self.reports.reach)


class TracebackAssembler:
    """Says of every line where it stands, and hands out each report at the line that names its failure.

    Streams are kept apart by the process in the prefix. Memory is bounded: the last frames of each block, and so many
    streams.
    """

    def __init__(self) -> None:
        self._streams: OrderedDict[_Key, _Stream] = OrderedDict()
        self._busy: dict[_Key, _Stream] = {}
        self._build: Line | None = None
        self._number = 0

    @property
    def open(self) -> bool:
        """Whether some process is in the middle of a report: none of the next lines may be left out then."""
        return any(stream.reach >= self._number for stream in self._busy.values())

    def feed(self, line: Line) -> Reading:
        """Take the next line.

        Args:
            line: any line, in the order of the log.

        Returns:
            Its place, with the report from the line on that names its failure.
        """
        self._number = line.number
        key = _key(line)
        stream = self._stream(key)
        reading = self._read(stream, line)
        if stream.blocks.reach or stream.reports.reach:
            self._busy[key] = stream
        elif self._busy:
            self._busy.pop(key, None)
        return reading

    def _read(self, stream: _Stream, line: Line) -> Reading:
        if stream.reports.reach and (followed := stream.reports.follow(line)):
            return followed
        reading = stream.blocks.feed(line)
        place = reading.place
        if place is Place.OUTSIDE or place is Place.MESSAGE:
            return (None if _is_logged(line) else self._outside(stream, line)) or reading
        if place is Place.EXCEPTION and (build := self._failed_build(line)):
            return stream.blocks.explained(build)
        return reading

    def _outside(self, stream: _Stream, line: Line) -> Reading | None:
        """Native code prints past Python's streams, also into the middle of a message."""
        reading = stream.reports.open(line)
        if reading is None:
            return None
        report = reading.traceback
        if report is not None and report.kind is Kind.BUILD and report.chain == 0:
            self._build = line
        stream.blocks.leave()
        return reading

    def _failed_build(self, line: Line) -> Line | None:
        """The error of the build that the exception is about: a compiler's output has no prefix to tell whose it is."""
        build = self._build
        if build is None or line.number - build.number >= _BUILD_REACH or not wraps_build(line.text):
            return None
        return build

    def _stream(self, key: _Key) -> _Stream:
        stream = self._streams.get(key)
        if stream is None:
            stream = self._streams[key] = _Stream()
            if len(self._streams) > _STREAMS:
                dropped, _ = self._streams.popitem(last=False)
                self._busy.pop(dropped, None)
        return stream


def _key(line: Line) -> _Key:
    # SGLang prefixes only the first line of a record, so its tracebacks are plain lines of the common stream.
    if line.pid is not None or (line.process is not None and not line.record):
        return (line.process, line.pid)
    return (None, None)


def _is_logged(line: Line) -> bool:
    """Whether a logger of the server wrote it: no native code then, whatever it quotes. torch's own C++ logger is."""
    source = line.source
    return line.record and (line.level in QUIET or (source is not None and ".py:" in source))
