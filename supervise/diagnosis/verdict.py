"""Names the first cause: live, as soon as a line says that a server cannot go on, and when it has ended."""

from __future__ import annotations

import re
from signal import SIGHUP, SIGINT, SIGTERM
from typing import Protocol

from supervise.diagnosis.candidates import Candidate, Candidates, first_of, rank_of
from supervise.diagnosis.course import Course
from supervise.diagnosis.facts import Facts
from supervise.diagnosis.frames import Owners
from supervise.diagnosis.matching import QUIET, Match, Matcher
from supervise.diagnosis.naming import EVIDENCE, happened, in_order, named
from supervise.diagnosis.silence import explain
from supervise.diagnosis.tracebacks import Place, Reading, TracebackAssembler
from supervise.model.diagnosis import (
    Diagnosis,
    End,
    FailureClass,
    Fatal,
    Kind,
    Line,
    Role,
    SignatureSet,
    Traceback,
)  # fmt: skip

__all__ = ["EVIDENCE", "Diagnoser"]

_ENGINES = ("vllm", "sglang")
_ECHOES = 16
# A warning's traceback was handled by whoever logged it, and so was that of one of vLLM's handlers of requests.
_HANDLED = QUIET | {"WARNING"}
_HANDLERS = re.compile(r"(?:serving_\w+|\w+_(?:tool|reasoning)_parser)\.py:\d+")
# Where a logger names the line of code that called it, the engine logged; otherwise somebody passes its output on.
_CODE = re.compile(r"[\w./<>-]+\.\w+:\d+")
# What asks a server to end, and what one exits with that was asked: 0, or as a shell says those.
_ASKING = (SIGHUP, SIGINT, SIGTERM)
_ORDERLY = (0, *(128 + signum for signum in _ASKING))


class Startup(Protocol):
    """What is known about start-up; `supervise.diagnosis.progress.ProgressTracker` is one."""

    @property
    def phase(self) -> str | None:
        """The phase that start-up is in."""

    @property
    def ready(self) -> bool:
        """Whether the log has said that the server is up."""


class Diagnoser:
    """Reads a log line by line and keeps what may be its first cause. Memory is bounded however long the log is.

    Args:
        signatures: the failures that are known.
        startup: tells the phase and whether the server is up; fed by somebody else. Without it a server is taken
            for one that is up, of which nothing outside its engine processes is called fatal while it lives.
        owners: tells whose code a frame is in.
    """

    def __init__(
        self,
        signatures: SignatureSet,
        startup: Startup | None = None,
        owners: Owners = Owners(_ENGINES),  # noqa: B008
    ) -> None:
        self._facts = Facts()
        self._matcher = Matcher(signatures, self._facts.values)
        self._startup, self._owners = startup, owners
        self._assembler = TracebackAssembler()
        self._causes = Candidates()
        self._quotes = Candidates()
        self._echoes: list[tuple[Line, Match]] = []
        self._context: list[Line] = []
        self._course = Course()
        self._phase: str | None = None
        self._announced: set[tuple[str | None, int | None]] = set()
        self._said = False

    def feed(self, line: Line) -> Fatal | None:
        """Take the next line.

        Args:
            line: any line, in the order of the log.

        Returns:
            Once, at the line that makes it certain: that the server cannot go on, with the cause as far as it is
            known then.
        """
        self._follow(line)
        reading = self._assembler.feed(line)
        if reading.place is Place.BODY and line.text[:1].isspace():
            return None
        certain = self._on_line(line, reading)
        return self._fatal(line) if certain and not self._said else None

    def forgive(self) -> None:
        """What was called fatal was not; the next line that is will be told again."""
        self._said = False

    def conclude(self, end: End) -> Diagnosis:
        """Name the first cause, now that it is over.

        Args:
            end: how the leader ended.

        Returns:
            The diagnosis. After a stop that was asked for nothing in the log is a crash. Where nobody printed a cause
            its text is None and its meaning says what is known instead. Of a log whose end is not known it also says
            whether there was a failure at all.
        """
        if end.requested:
            return _sound("Stopped as asked.", end)
        ready = self._ready and not self._never_served()
        chosen = self._best(ready)
        if not end.known and not self._course.failed(chosen, ready=ready):
            return _sound(self._course.in_words(ready=self._ready), end)
        if chosen is not None:
            return named(chosen, end, self._echoes, self._owners)
        if self._course.ended_in_order and (end.code in _ORDERLY or end.signal in _ASKING):
            return _sound(self._course.in_words(ready=ready), end)
        return self._unnamed(end)

    def _never_served(self) -> bool:
        """Whether what kept it from serving came before it said that it is ready."""
        early = self._best(ready=False) if self._course.stillborn else None
        return early is not None and early.certain and not early.ready

    @property
    def open(self) -> bool:
        """Whether a report of several lines is in the middle: no line may be passed over then."""
        return self._assembler.open

    # --- reading ------------------------------------------------------------------------------------------------------

    def _follow(self, line: Line) -> None:
        """Note how far start-up has come. One that is ready was not kept from it by whoever asked it to end before."""
        self._course.pass_by(line)
        if self._course.up is None:
            self._facts.feed(line)
        if self._startup is None:
            return
        if self._startup.phase != self._phase:
            self._phase = self._startup.phase
            self._course.phases.append(line.number)
        if self._startup.ready and self._course.up is None:
            self._course.up = line.number
            self._course.asked, self._course.ending = None, None

    def _on_line(self, line: Line, reading: Reading) -> bool:
        """Read one line outside of a report's body. True if it is certain now that the server dies."""
        if (report := reading.traceback) is not None and reading.place in (Place.EXCEPTION, Place.CAUSE):
            named = report.cause or report.exception
            return self._on_report(named, report, self._matcher.find(named))
        if report is not None and report.kind is Kind.NATIVE:
            self._causes.refresh(report)
        match = self._matcher.find(line)
        return match is not None and self._on_report(line, report, match)

    def _on_report(self, line: Line, report: Traceback | None, match: Match | None) -> bool:
        if match is not None and match.role is not Role.ROOT:
            return self._on_echo(line, match, report)
        if report is not None and (_follows(report) or self._handled(report)):
            return False
        return self._add(line, match, report)

    def _on_echo(self, line: Line, match: Match, traceback: Traceback | None) -> bool:
        """Note a line that reports a failure and is not its cause. True if it is certain now that the server dies."""
        if match.role in (Role.ASKED, Role.ENDING):
            self._on_stop(line, match)
            return False
        if self._course.stopped:
            return False
        if match.role is Role.CONTEXT:
            self._context = [*self._context[-EVIDENCE:], line]
            return False
        if match.role is Role.CONFIRMATION:
            self._quotes.add(self._candidate(line, self._matcher.inner(line, match), traceback), dying=self._dying)
        if len(self._echoes) >= _ECHOES and not self._dying:
            del self._echoes[0]
        if len(self._echoes) < _ECHOES:
            self._echoes.append((line, match))
        if not match.signature.fatal:
            return False
        return self._on_death(line, match, traceback)

    def _on_stop(self, line: Line, match: Match) -> None:
        """Note a stop. A server that ends by itself asks its own processes to: then nobody asked it."""
        if match.role is Role.ENDING:
            self._course.ending = self._course.ending or line.number
        elif not self._dying and (self._course.ending is None or self._course.stopped):
            self._course.asked = self._course.asked or line.number

    def _on_death(self, line: Line, match: Match, traceback: Traceback | None) -> bool:
        """Note that a process announces its end, or another's. True if waiting for a better line is no use any more."""
        if not self._dying:
            self._course.death = line.number
        who = (line.process, line.pid)
        again = who in self._announced
        if len(self._announced) < _ECHOES:
            self._announced.add(who)
        if match.role is Role.CONFIRMATION:
            return False
        # A headline comes right before its traceback. What is no headline, or is the second one, has nothing to follow.
        return again or traceback is not None or self._best(self._ready) is not None

    def _add(self, line: Line, match: Match | None, traceback: Traceback | None) -> bool:
        """Note a candidate. True if it is certain now that the server dies."""
        if self._course.stopped:
            return False
        self._course.raised = line.number
        new = self._candidate(line, match, traceback)
        self._causes.add(new, dying=self._dying)
        if self._dying:
            return True
        fatal = match is not None and match.signature.fatal
        return fatal and ((new.rank.is_engine and new.process is not None) or self._starting)

    def _candidate(self, line: Line, match: Match | None, traceback: Traceback | None) -> Candidate:
        return Candidate(
            line=line,
            rank=rank_of(line, traceback),
            match=match,
            traceback=traceback,
            phase=self._startup.phase if self._startup else None,
            ready=self._ready,
            headed=self._headed(traceback),
        )

    def _handled(self, traceback: Traceback) -> bool:
        """Whether somebody caught it and went on: a failed request, a destructor, a warning."""
        if traceback.exception.level in _HANDLED and not _relayed(traceback):
            return True
        if self._matcher.hides(traceback.exception) or _HANDLERS.match(traceback.exception.source or ""):
            return True
        return traceback.header is not None and self._matcher.covers(traceback.header)

    def _headed(self, traceback: Traceback | None) -> bool:
        headline = self._matcher.find(traceback.header) if traceback and traceback.header else None
        return headline is not None and headline.role is Role.CASCADE

    # --- deciding -----------------------------------------------------------------------------------------------------

    @property
    def _dying(self) -> bool:
        return self._course.death is not None

    @property
    def _ready(self) -> bool:
        return self._startup is not None and self._startup.ready

    @property
    def _starting(self) -> bool:
        return self._startup is not None and not self._startup.ready

    def _best(self, ready: bool) -> Candidate | None:
        death = self._course.last if self._course.death is None else self._course.death
        return first_of(self._causes.best(ready=ready, death=death), self._quotes.best(ready=ready, death=death))

    def _fatal(self, line: Line) -> Fatal:
        self._said = True
        cause = self._best(self._ready)
        if cause is None:
            return Fatal(line, line.text.strip(), meaning="It dies and has printed no cause yet.")
        signature = cause.match.signature.id if cause.match else None
        return Fatal(cause.line, cause.line.text.strip(), signature, happened(cause, self._owners))

    def _unnamed(self, end: End) -> Diagnosis:
        failure, meaning, advice, kind = explain(end, [match for _, match in self._echoes], ready=self._ready)
        return Diagnosis(
            text=None,
            line=None,
            process=None,
            signature=None,
            failure=failure,
            phase="run" if self._ready else end.phase,
            meaning=meaning,
            advice=advice,
            evidence=in_order([line for line, _ in self._echoes] or self._context),
            end=kind,
        )


def _follows(report: Traceback) -> bool:
    """Whether native code only says what it was driven to: `Aborted` after an exception that nobody caught."""
    return report.kind is Kind.NATIVE and report.chain > 0


def _relayed(traceback: Traceback) -> bool:
    """Whether somebody logs the output of another program line by line, at whatever level he likes."""
    frames = [line for line in traceback.frames if line.text[:1].isspace()]
    return all(line.record and not (line.source and _CODE.fullmatch(line.source)) for line in frames) and bool(frames)


def _sound(meaning: str, end: End) -> Diagnosis:
    return Diagnosis(None, None, None, None, FailureClass.UNKNOWN, end.phase, meaning, (), fatal=False)
