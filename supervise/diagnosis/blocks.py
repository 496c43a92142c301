"""One process's Python tracebacks: which block its lines stand in, and what is known of it by then."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from supervise.diagnosis import styles
from supervise.diagnosis.builds import is_error, wraps_build
from supervise.diagnosis.causes import Seeker
from supervise.diagnosis.readings import BODY, OUTSIDE, Place, Reading
from supervise.diagnosis.stages import stage_of
from supervise.diagnosis.styles import Opening, Style
from supervise.model.diagnosis import Kind, Line, Traceback

# multiprocessing says whose traceback follows: `Process EngineCore:`.
_CHILD = re.compile(r"Process (?P<name>[\w.:-]+):$")
# What heads frames that nothing was raised from: a stack somebody asked for, also between `Call stack:` and `Message:`.
_STACKS = re.compile(r"Call stack:$|.*\(most recent call (?:first|last)\)")
_CODE = re.compile(r"[\w./<>-]+\.\w+:\d+")

_FRAMES = 12
_MESSAGE_LINES = 400
_STRAY_LINES = 200
_STRAYS_OF_HEADLESS = 8
# So many lines of the log after the last one of a block nothing more of it is expected.
_BODY_REACH = 1000
_MESSAGE_REACH = 200
_HEADLINE_REACH = 1000
_BARE_REACH = 50
# Characters kept of a line that only leads to an exception: of each process many such lines are held.
_KEPT = 600


@dataclass(slots=True)
class PythonBlocks:
    """What one process is in the middle of printing.

    `linked` says that the next block continues the chain. `reach` is the number of the last line at which the block may
    still go on; 0 outside of blocks. `bare` is an exception that was printed without a traceback, after `before`; it is
    `quoted` once a link says that it led to the next block.
    """

    place: Place = Place.OUTSIDE
    said: Line | None = None
    header: Line | None = None
    opened: Line | None = None
    style: Style = Style.PLAIN
    name: str | None = None
    frames: deque[Line] = field(default_factory=lambda: deque(maxlen=_FRAMES))
    inner: deque[Line] = field(default_factory=lambda: deque(maxlen=_FRAMES))
    stage: str | None = None
    traceback: Traceback | None = None
    first: Traceback | None = None
    seeker: Seeker = field(default_factory=lambda: Seeker(""))
    chain: int = 0
    linked: bool = False
    blank: bool = False
    left: int = 0
    reach: int = 0
    bare: Line | None = None
    before: Line | None = None
    quoted: Line | None = None

    def feed(self, line: Line) -> Reading:
        """Take the process's next line.

        Args:
            line: the line.

        Returns:
            Its place.
        """
        if self.reach and line.number > self.reach:
            self.leave()
        reading = self._advance(line)
        if self.place is not Place.OUTSIDE and reading is not OUTSIDE:
            waits = self.place is Place.BODY or self.seeker.waits
            self.reach = line.number + (_BODY_REACH if waits else _MESSAGE_REACH)
        if reading.place is not Place.BODY and _is_headline(line.text):
            self.said = _shortened(line)
        return reading

    def leave(self) -> Reading:
        """Give up the block: what comes next is no part of it."""
        self.place, self.linked, self.reach = Place.OUTSIDE, False, 0
        self.traceback = self.first = None
        return OUTSIDE

    def explained(self, cause: Line) -> Reading:
        """Take an error of a build, printed before the exception that only says that the build failed, for its cause.

        Args:
            cause: the compiler's line.

        Returns:
            The reading of the exception's line, with the cause.
        """
        return Reading(Place.EXCEPTION, self._refine(cause, Kind.BUILD, ()))

    def _advance(self, line: Line) -> Reading:
        text = line.text
        if styles.OPENER in text and (opening := styles.opening(text)):
            return self._open(line, opening)
        if self.place is Place.BODY:
            return self._in_body(line)
        if self.place is Place.MESSAGE:
            return self._in_message(line)
        if _opens_headless(line) and not self._shows_stack(line):
            self._open(line, Opening(Style.HEADLESS))
            return self._frame(line)
        return self._between(line)

    def _between(self, line: Line) -> Reading:
        """Outside of blocks: an exception may stand there alone, and a link after it."""
        text = line.text
        if text.startswith(styles.LINKS):
            if self.bare is not None and line.number - self.bare.number <= _BARE_REACH:
                self.quoted = self.quoted or self.bare
            return BODY
        if ": " in text and not text[0].isspace() and styles.names_exception(text, surely=True) and self._is_new(line):
            self.bare, self.before, self.quoted = line, self.said, None
        return OUTSIDE

    def _is_new(self, line: Line) -> bool:
        """Whether no chain goes on whose first exception is known."""
        return self.quoted is None or line.number - self.quoted.number > _BARE_REACH

    def _shows_stack(self, line: Line) -> bool:
        said = self.said
        return said is not None and line.number - said.number < _BODY_REACH and _STACKS.match(said.text) is not None

    def _open(self, line: Line, opening: Opening) -> Reading:
        if self.linked:
            self.chain += 1
        else:
            self.chain, self.first = 0, None
            self.quoted = self.quoted if self.quoted and line.number - self.quoted.number <= _BARE_REACH else None
            self.header = line if opening.headed else self._headline(line)
        self.style, self.name = opening.style, opening.name
        self.place, self.opened, self.linked = Place.BODY, _shortened(line), False
        self.left = _STRAYS_OF_HEADLESS if opening.style is Style.HEADLESS else _STRAY_LINES
        self.stage = None
        self.frames.clear()
        return BODY

    def _headline(self, line: Line) -> Line | None:
        said = self.before if self.quoted else self.said
        return said if said and line.number - said.number <= _HEADLINE_REACH else None

    def _in_body(self, line: Line) -> Reading:
        if self.opened is None or _is_foreign(self.opened, line, lined=bool(self.frames) and self.frames[-1].record):
            return self._stray()
        text = styles.plain(self.style, self.name, line.text)
        if text is None:
            return self._stray()
        if not text:
            return BODY
        if text[0].isspace():
            return self._frame(line)
        if styles.is_flat_frame(text):
            return self._frame(line)
        if not self.frames or not styles.names_exception(text, surely=self.style is Style.HEADLESS or self._is_flat):
            return self._stray()
        return self._raised(self.opened, line, text)

    @property
    def _is_flat(self) -> bool:
        """Whether whoever passed the log on took the blanks away at which frames are told from the rest."""
        return styles.is_flat_frame(self.frames[0].text)

    def _frame(self, line: Line) -> Reading:
        self.stage = stage_of(line.text, self.stage)
        self.frames.append(_shortened(line))
        return BODY

    def _raised(self, opened: Line, line: Line, text: str) -> Reading:
        self.traceback = Traceback(
            exception=_reading_as(line, text),
            first=opened.number,
            header=self.header,
            frames=tuple(self.frames),
            process=opened.process or _child(self.header),
            pid=opened.pid,
            chain=self.chain,
            cause=self.quoted,
            stage=self.stage,
        )
        self.quoted = self.bare = None
        self.first = self.first or self.traceback
        self.seeker = Seeker(text)
        self.inner.clear()
        self.place, self.blank, self.left = Place.MESSAGE, False, _MESSAGE_LINES
        return Reading(Place.EXCEPTION, self.traceback)

    def _stray(self) -> Reading:
        """A line of somebody else in between; after too many of them the rest of the block is not coming any more."""
        self.left -= 1
        return self.leave() if self.left <= 0 else OUTSIDE

    def _in_message(self, line: Line) -> Reading:
        traceback = self.traceback
        goes_on = self.seeker.waits or line.text.startswith(styles.LINKS)
        if traceback is None or _is_foreign(traceback.exception, line, lined=goes_on):
            return OUTSIDE if self.seeker.waits else self.leave()
        if line.text.startswith(styles.LINKS):
            self.linked = True
            return BODY
        text = styles.plain(Style.GROUP, None, line.text) if self.style is Style.GROUP else line.text
        if not line.text:
            self.blank = True
        elif self.linked and styles.names_exception(line.text, surely=True):
            # An exception of the chain that was printed without its traceback.
            self.linked = self.blank = False
        elif text is None or self._ends(line):
            return self.leave()
        self.left -= 1
        return self._inside(line, text or "", traceback) if self.left > 0 else self.leave()

    def _ends(self, line: Line) -> bool:
        return self.linked or (self.blank and not line.record and not self.seeker.waits)

    def _inside(self, line: Line, text: str, traceback: Traceback) -> Reading:
        if self.seeker.feed(text):
            kind = Kind.BUILD if is_error(text) else Kind.PYTHON
            return Reading(Place.CAUSE, self._refine(_reading_as(line, text), kind, self.inner))
        if text[:1].isspace():
            self.inner.append(_shortened(line))
            self.stage = stage_of(text, self.stage)
        return Reading(Place.MESSAGE, traceback)

    def _refine(self, cause: Line, kind: Kind, frames: Iterable[Line]) -> Traceback | None:
        """Note the cause: for the first block of the chain, where that one only says that a build failed."""
        first, own = self.first, self.traceback
        if first is None or own is None:
            return own
        of_first = kind is Kind.BUILD and first.cause is None and wraps_build(first.exception.text)
        known = first if of_first else own
        stage = self.stage if known is own else known.stage
        told = replace(known, cause=cause, kind=kind, frames=tuple(frames) or known.frames, stage=stage)
        self.first = told if known is first else first
        self.traceback = told if known is own else own
        return told


def _reading_as(line: Line, text: str) -> Line:
    return line if text == line.text else replace(line, text=text)


def _shortened(line: Line) -> Line:
    return line if len(line.raw) <= _KEPT else replace(line, raw=line.raw[:_KEPT], text=line.text[:_KEPT])


def _opens_headless(line: Line) -> bool:
    """Whether a report goes on whose head is missing. Without indentation only an engine's own record is believed."""
    return styles.opens_headless(line.text) or (line.level == "ERROR" and styles.is_flat_frame(line.text))


def _is_headline(text: str) -> bool:
    """Whether a line may head a traceback; what is drawn around groups and quoted tracebacks heads none."""
    return bool(text) and not text[0].isspace() and text != '"""' and "RemoteTraceback:" not in text


def _is_foreign(own: Line, line: Line, *, lined: bool) -> bool:
    """Whether another logging call wrote it.

    vLLM repeats the prefix, source included, on every line of a record. A prefix that names no source begins a record
    of its own, unless somebody passes on the output of another program line by line: then also the lines of the
    traceback before it have one (`lined`).
    """
    if not line.record:
        return False
    if line.source is not None and _CODE.fullmatch(line.source):
        return (line.level, line.source) != (own.level, own.source)
    passed_on = own.record and (line.level, line.source) == (own.level, own.source)
    return not (passed_on and (lined or not line.text or line.text[0].isspace()))


def _child(header: Line | None) -> str | None:
    named = _CHILD.match(header.text) if header else None
    return named["name"] if named else None
