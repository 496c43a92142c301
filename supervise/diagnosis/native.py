"""Reads what native code, compilers, shells and command lines print when they give up, past Python's tracebacks."""

from __future__ import annotations

import re
from dataclasses import replace

from supervise.diagnosis import builds
from supervise.diagnosis.frames import is_frame
from supervise.diagnosis.last_words import RULES, WATCHDOG, WATCHDOG_SOURCE, Rule, Then
from supervise.diagnosis.matching import group_by_gate
from supervise.diagnosis.readings import BODY, Place, Reading
from supervise.diagnosis.stages import stage_around
from supervise.model.diagnosis import Kind, Line, Traceback

_FRAMES = 12
# So many lines of the log after the last one of a report nothing more of it is expected.
_REACH = 100
# What native code says within so many lines after it gave up is what that led to: the abort after the exception.
_AFTERMATH = 2000
_USAGE_REACH = 400


OPENERS = (
    *dict.fromkeys(literal for rule in RULES for literal in rule.literals),
    *builds.OPENERS,
    WATCHDOG_SOURCE,
    "usage: ",
    "Usage: ",
    "Error: ",
)
"""One of these is in every line that opens a report here."""

_GATES = group_by_gate(OPENERS)
_BY_LITERAL = {literal: [rule for rule in RULES if literal in rule.literals] for literal in OPENERS}
_WHAT = re.compile(r"\s*what\(\): +\S")
_THREAD = re.compile(r"(?P<current>Current thread 0x)?.*\(most recent call first\):")
_STACK = re.compile(r"\s*(?:@ +0x|PC: @|#\d+ |\d+ +\S+ +0x|frame #|\[[^\]]*\] (?:\*\*\*|\[ ?\d|Signal))")
_BOX = re.compile(r"[│|] (?P<text>\S(?:.*\S)?) *[│|]$")
_CLICK = re.compile(r"(?:Error: \S|(?:\S+ ){0,4}\S+: error: \S)")


class Reports:
    """One process's reports.

    Of several in a row the first one is the cause: what native code prints after that is what it led to, and counts as
    the next block of a chain. `reach` is the number of the last line at which a report may still go on; 0 outside.
    """

    def __init__(self) -> None:
        self._report: Traceback | None = None
        self._then = Then.NOTHING
        self._ours = False
        self.reach = 0
        self._usage = -_USAGE_REACH

    def follow(self, line: Line) -> Reading | None:
        """Take a line that may be the next one of the report begun before.

        Args:
            line: the process's next line.

        Returns:
            Its place; None if it is no part of the report.
        """
        if line.number > self.reach:
            self._end()
            return None
        reading = self._next_of(self._then, line)
        if reading is not None and self.reach:
            self.reach = line.number + _REACH
        return reading

    def _next_of(self, then: Then, line: Line) -> Reading | None:
        match then:
            case Then.WHAT:
                return self._explained(line) if _WHAT.match(line.text) else None
            case Then.NEXT:
                return None if line.record or not line.text.strip() else self._explained(line)
            case Then.BOX:
                return self._boxed(line)
            case Then.FRAMES:
                return self._faulting(line)
            case _:
                is_part = _STACK.match(line.text) or _is_frame(line.text)
                return self._refined(Place.MESSAGE) if is_part else None

    def open(self, line: Line) -> Reading | None:
        """Take a line that is no part of anything begun before.

        Args:
            line: the process's next line.

        Returns:
            Its place, EXCEPTION in most cases; None if it reports nothing.
        """
        text = line.text
        if line.source is not None and line.source.startswith(WATCHDOG_SOURCE):
            return self._report_of(line, Kind.NATIVE) if _is_watchdogs(line) else None
        near = [each for gate, literals in _GATES if gate in text for each in literals if each in text]
        if not near:
            return None
        rule = next((rule for each in near for rule in _BY_LITERAL[each] if rule.pattern.match(text)), None)
        if rule is not None:
            return self._begin(line, rule)
        if builds.is_error(text):
            return self._report_of(line, Kind.BUILD)
        return self._of_command(line)

    def _of_command(self, line: Line) -> Reading | None:
        """Some command line's own words, an error only after it has told how it is used."""
        if line.text.startswith(("usage: ", "Usage: ")):
            self._usage = line.number
        elif line.number - self._usage < _USAGE_REACH and _CLICK.match(line.text):
            return self._report_of(line, Kind.USAGE)
        return None

    def _end(self) -> None:
        self._then, self.reach = Then.NOTHING, 0

    def _begin(self, line: Line, rule: Rule) -> Reading:
        self._then, self._ours = rule.then, False
        self.reach = 0 if rule.then is Then.NOTHING else line.number + _REACH
        return BODY if rule.then is Then.BOX else self._report_of(line, rule.kind)

    def _report_of(self, line: Line, kind: Kind) -> Reading:
        before = self._report
        again = before is not None and before.kind is kind and line.number - before.exception.number < _AFTERMATH
        chain = before.chain + 1 if before is not None and again else 0
        new = Traceback(line, line.number, process=line.process, pid=line.pid, kind=kind, chain=chain)
        self._report = new
        return Reading(Place.EXCEPTION, new)

    def _refined(self, place: Place, cause: Line | None = None, frame: Line | None = None) -> Reading:
        report = self._report
        if report is not None:
            added = (frame,) if frame and len(report.frames) < _FRAMES else ()
            stage = stage_around(frame.text, report.stage) if frame else report.stage
            report = replace(report, cause=cause or report.cause, frames=(*report.frames, *added), stage=stage)
            self._report = report
        return Reading(place, report)

    def _explained(self, line: Line) -> Reading:
        self._end()
        return self._refined(Place.CAUSE, line)

    def _boxed(self, line: Line) -> Reading | None:
        inside = _BOX.match(line.text)
        self._end()
        return self._report_of(replace(line, text=inside["text"]), Kind.USAGE) if inside else None

    def _faulting(self, line: Line) -> Reading | None:
        """Frames, under the head of each thread; only those of the thread that crashed tell something."""
        text = line.text
        if thread := _THREAD.match(text):
            self._ours = thread["current"] is not None
            return self._refined(Place.MESSAGE)
        if _is_frame(text):
            return self._refined(Place.MESSAGE, frame=line if self._ours else None)
        if text.startswith("Extension modules:"):
            self._end()
            return self._refined(Place.MESSAGE)
        return None


def _is_frame(text: str) -> bool:
    return text[:1].isspace() and is_frame(text)


def _is_watchdogs(line: Line) -> bool:
    return line.level in ("ERROR", "CRITICAL") and WATCHDOG.match(line.text) is not None
