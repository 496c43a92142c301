"""Puts Python tracebacks together from lines of many processes, interleaved and prefixed line by line."""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from enum import Enum

from supervise.model.diagnosis import Line, Traceback

_OPENS = "Traceback (most recent call last):"
_CHAINS = ("The above exception was the direct cause", "During handling of the above exception")
# What `traceback` prints for the exception itself: a dotted name, then a colon and the message, or nothing.
_EXCEPTION = re.compile(r"(?:[A-Za-z_]\w*\.)*(?P<name>[A-Za-z_]\w*)(?::(?: |$)|$)")
# multiprocessing says whose traceback follows: `Process EngineCore:`.
_CHILD = re.compile(r"Process (?P<name>[\w.:-]+):$")

_FRAMES = 12
_MESSAGE_LINES = 400
_STRAY_LINES = 200
_STREAMS = 256

_Key = tuple[str | None, int | None]


class Place(Enum):
    """Where a line stands: in no traceback, in its body, the line naming the exception, or the rest of its message."""

    OUTSIDE = "outside"
    BODY = "body"
    EXCEPTION = "exception"
    MESSAGE = "message"


@dataclass(frozen=True, slots=True)
class Reading:
    """A line's place; `traceback` is complete and present for EXCEPTION and MESSAGE."""

    place: Place
    traceback: Traceback | None = None


_OUTSIDE = Reading(Place.OUTSIDE)
_BODY = Reading(Place.BODY)


@dataclass(slots=True)
class _Stream:
    """What one process is in the middle of printing. `linked` says that the next block continues the chain."""

    place: Place = Place.OUTSIDE
    said: Line | None = None
    header: Line | None = None
    opened: Line | None = None
    frames: deque[Line] = field(default_factory=lambda: deque(maxlen=_FRAMES))
    traceback: Traceback | None = None
    chain: int = 0
    linked: bool = False
    blank: bool = False
    left: int = 0


class TracebackAssembler:
    """Says of every line where it stands, and hands out each traceback at the line that names its exception.

    Streams are kept apart by the process in the prefix. Memory is bounded: the last frames of each block, and so many
    streams.
    """

    def __init__(self) -> None:
        self._streams: OrderedDict[_Key, _Stream] = OrderedDict()

    def feed(self, line: Line) -> Reading:
        """Take the next line.

        Args:
            line: any line, in the order of the log.

        Returns:
            Its place, with the traceback from the exception line on.
        """
        stream = self._stream(line)
        reading = _advance(stream, line)
        if reading.place is not Place.BODY and _is_headline(line.text):
            stream.said = line
        return reading

    def _stream(self, line: Line) -> _Stream:
        key = _key(line)
        stream = self._streams.get(key)
        if stream is None:
            stream = self._streams[key] = _Stream()
            if len(self._streams) > _STREAMS:
                self._streams.popitem(last=False)
        return stream


def _key(line: Line) -> _Key:
    # SGLang prefixes only the first line of a record, so its tracebacks are plain lines of the common stream.
    if line.pid is not None or (line.process is not None and not line.record):
        return (line.process, line.pid)
    return (None, None)


def _is_headline(text: str) -> bool:
    """Whether a line may head a traceback. Exception groups are drawn with indented lines; those are no headlines."""
    return bool(text) and not text[0].isspace()


def _advance(stream: _Stream, line: Line) -> Reading:
    if _OPENS in line.text and _opens(line.text):
        return _open(stream, line)
    match stream.place:
        case Place.BODY:
            return _in_body(stream, line)
        case Place.MESSAGE:
            return _in_message(stream, line)
        case _:
            return _OUTSIDE


def _opens(text: str) -> bool:
    """Whether a traceback begins here: alone on the line, or after a headline as SGLang writes it."""
    return text.startswith(_OPENS) or (text.endswith(": " + _OPENS) and not text[0].isspace())


def _open(stream: _Stream, line: Line) -> Reading:
    if stream.linked:
        stream.chain += 1
    else:
        stream.chain = 0
        stream.header = stream.said if line.text.startswith(_OPENS) else line
    stream.place, stream.opened, stream.linked, stream.left = Place.BODY, line, False, _STRAY_LINES
    stream.frames.clear()
    return _BODY


def _in_body(stream: _Stream, line: Line) -> Reading:
    if stream.opened is None or _other_record(stream.opened, line):
        return _stray(stream)
    if not line.text:
        return _BODY
    if line.text[0].isspace():
        stream.frames.append(line)
        return _BODY
    if not stream.frames or not _names_exception(line.text):
        return _stray(stream)
    stream.traceback = _complete(stream, stream.opened, line)
    stream.place, stream.blank, stream.left = Place.MESSAGE, False, _MESSAGE_LINES
    return Reading(Place.EXCEPTION, stream.traceback)


def _stray(stream: _Stream) -> Reading:
    """A line of somebody else in between; after too many of them the rest of the block is not coming any more."""
    stream.left -= 1
    if stream.left <= 0:
        stream.place = Place.OUTSIDE
    return _OUTSIDE


def _in_message(stream: _Stream, line: Line) -> Reading:
    traceback = stream.traceback
    if traceback is None or _other_record(traceback.exception, line):
        return _leave(stream)
    if line.text.startswith(_CHAINS):
        stream.linked = True
        return _BODY
    if not line.text:
        stream.blank = True
    elif stream.linked or (stream.blank and not line.record):
        return _leave(stream)
    stream.left -= 1
    return Reading(Place.MESSAGE, traceback) if stream.left > 0 else _leave(stream)


def _leave(stream: _Stream) -> Reading:
    stream.place, stream.linked = Place.OUTSIDE, False
    return _OUTSIDE


def _other_record(own: Line, line: Line) -> bool:
    """Whether another logging call wrote it. vLLM repeats the prefix, source included, on every line of a record."""
    return line.record and (line.source is None or (line.level, line.source) != (own.level, own.source))


def _names_exception(text: str) -> bool:
    found = _EXCEPTION.match(text)
    return found is not None and ("." in found[0] or found["name"][0].isupper())


def _complete(stream: _Stream, opened: Line, line: Line) -> Traceback:
    return Traceback(
        exception=line,
        first=opened.number,
        header=stream.header,
        frames=tuple(stream.frames),
        process=opened.process or _child(stream.header),
        pid=opened.pid,
        chain=stream.chain,
    )


def _child(header: Line | None) -> str | None:
    named = _CHILD.match(header.text) if header else None
    return named["name"] if named else None
