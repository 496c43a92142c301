"""Names the first cause: live, as soon as a line says that a server cannot go on, and when it has ended."""

from __future__ import annotations

import re
from typing import Protocol

from supervise.diagnosis.candidates import Candidate, Candidates, rank_of
from supervise.diagnosis.matching import QUIET, Match, Matcher
from supervise.diagnosis.silence import explain
from supervise.diagnosis.tracebacks import Place, Reading, TracebackAssembler
from supervise.model.diagnosis import Diagnosis, End, FailureClass, Fatal, Line, Role, SignatureSet, Traceback

EVIDENCE = 5
"""Lines that a diagnosis quotes at most."""

_ECHOES = 16
# A warning's traceback was handled by whoever logged it.
_HANDLED = QUIET | {"WARNING"}
_FRAME = re.compile(r'\s*File "(?P<file>.+)", line (?P<line>\d+)(?:, in (?P<function>.+))?')


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
    """

    def __init__(self, signatures: SignatureSet, startup: Startup | None = None) -> None:
        self._matcher = Matcher(signatures)
        self._startup = startup
        self._assembler = TracebackAssembler()
        self._causes = Candidates()
        self._quotes = Candidates()
        self._echoes: list[tuple[Line, Match]] = []
        self._context: list[Line] = []
        self._last = 0
        self._death: int | None = None
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
        self._last = line.number
        reading = self._assembler.feed(line)
        if reading.place is Place.BODY and line.text[:1].isspace():
            return None
        match = self._matcher.find(line)
        if reading.place is Place.EXCEPTION and reading.traceback is not None:
            certain = self._on_exception(line, reading.traceback, match)
        elif match is not None:
            certain = self._on_match(line, match, reading)
        else:
            return None
        return self._fatal(line) if certain and not self._said else None

    def conclude(self, end: End) -> Diagnosis:
        """Name the first cause, now that it is over.

        Args:
            end: how the leader ended.

        Returns:
            The diagnosis. After a stop that was asked for nothing in the log is a crash. Where nobody printed a cause
            its text is None and its meaning says what is known instead.
        """
        if end.requested:
            return Diagnosis(None, None, None, None, FailureClass.UNKNOWN, end.phase, "Stopped as asked.", ())
        chosen = self._best(self._ready)
        return self._named(chosen, end) if chosen else self._unnamed(end)

    # --- reading ------------------------------------------------------------------------------------------------------

    def _on_exception(self, line: Line, traceback: Traceback, match: Match | None) -> bool:
        if match is not None and match.role is not Role.ROOT:
            return self._on_echo(line, match, traceback)
        if self._handled(traceback):
            return False
        return self._add(line, match, traceback)

    def _on_match(self, line: Line, match: Match, reading: Reading) -> bool:
        traceback = reading.traceback
        if match.role is not Role.ROOT:
            return self._on_echo(line, match, traceback)
        if traceback is not None and self._handled(traceback):
            return False
        return self._add(line, match, traceback)

    def _on_echo(self, line: Line, match: Match, traceback: Traceback | None) -> bool:
        """Note a line that reports a failure and is not its cause. True if it is certain now that the server dies."""
        if match.role is Role.CONTEXT:
            self._context = [*self._context[-EVIDENCE:], line]
            return False
        if match.role is Role.CONFIRMATION:
            self._quotes.add(self._candidate(line, match, traceback), dying=self._death is not None)
        if len(self._echoes) >= _ECHOES and self._death is None:
            del self._echoes[0]
        if len(self._echoes) < _ECHOES:
            self._echoes.append((line, match))
        if not match.signature.fatal:
            return False
        return self._on_death(line, match, traceback)

    def _on_death(self, line: Line, match: Match, traceback: Traceback | None) -> bool:
        """Note that a process announces its end, or another's. True if waiting for a better line is no use any more."""
        if self._death is None:
            self._death = line.number
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
        new = self._candidate(line, match, traceback)
        self._causes.add(new, dying=self._death is not None)
        if self._death is not None:
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
        if traceback.exception.level in _HANDLED or self._matcher.hides(traceback.exception):
            return True
        return traceback.header is not None and self._matcher.hides(traceback.header)

    def _headed(self, traceback: Traceback | None) -> bool:
        if traceback is None or traceback.header is None:
            return False
        headline = self._matcher.find(traceback.header)
        return headline is not None and headline.role is Role.CASCADE and headline.signature.fatal

    # --- deciding -----------------------------------------------------------------------------------------------------

    @property
    def _ready(self) -> bool:
        return self._startup is not None and self._startup.ready

    @property
    def _starting(self) -> bool:
        return self._startup is not None and not self._startup.ready

    def _best(self, ready: bool) -> Candidate | None:
        death = self._last if self._death is None else self._death
        return self._causes.best(ready=ready, death=death) or self._quotes.best(ready=ready, death=death)

    def _fatal(self, line: Line) -> Fatal:
        self._said = True
        cause = self._best(self._ready)
        if cause is None:
            return Fatal(line, line.text.strip(), meaning="It dies and has printed no cause yet.")
        signature = cause.match.signature.id if cause.match else None
        return Fatal(cause.line, cause.line.text.strip(), signature, _meaning(cause))

    def _named(self, cause: Candidate, end: End) -> Diagnosis:
        signature = cause.match.signature if cause.match else None
        return Diagnosis(
            text=cause.line.text.strip(),
            line=cause.line.number,
            process=cause.process,
            signature=signature.id if signature else None,
            failure=_failure(cause),
            phase=cause.phase or (signature.phase if signature else None) or end.phase,
            meaning=_meaning(cause),
            advice=cause.match.advice if cause.match else (),
            evidence=self._evidence(cause),
        )

    def _unnamed(self, end: End) -> Diagnosis:
        failure, meaning, advice = explain(end, [match for _, match in self._echoes])
        return Diagnosis(
            text=None,
            line=None,
            process=None,
            signature=None,
            failure=failure,
            phase=end.phase,
            meaning=meaning,
            advice=advice,
            evidence=_in_order([line for line, _ in self._echoes] or self._context),
        )

    def _evidence(self, cause: Candidate) -> tuple[Line, ...]:
        """The cause, what came right before it, and the first report of what it led to."""
        lines = [cause.line]
        if traceback := cause.traceback:
            lines += [traceback.exception, *reversed(_raising(traceback))]
            lines += [traceback.header] if traceback.header and self._headed(traceback) else []
        after = [(line, match) for line, match in self._echoes if line.number > cause.line.number]
        lines += [line for line, match in after if match.signature.fatal][:1] or [line for line, _ in after][:1]
        return _in_order(lines)


def _in_order(lines: list[Line]) -> tuple[Line, ...]:
    unique = {line.number: line for line in lines}
    return tuple(sorted(list(unique.values())[:EVIDENCE], key=lambda line: line.number))


def _failure(cause: Candidate) -> FailureClass:
    if cause.match is None:
        return FailureClass.UNKNOWN
    signature = cause.match.signature
    if cause.ready and signature.failure is FailureClass.DETERMINISTIC and signature.phase not in (None, "run"):
        # It got through this phase once with the same arguments: what it met at run time came with the requests.
        return FailureClass.LOAD
    return signature.failure


def _meaning(cause: Candidate) -> str:
    if cause.match is not None:
        return cause.match.meaning
    who = cause.process or "The server"
    what = re.split(r"[:\s]", cause.line.text.strip(), maxsplit=1)[0].rpartition(".")[2]
    return f"{who} raised {what}{_where(cause.traceback)}. No known failure matches it."


def _where(traceback: Traceback | None) -> str:
    frame = _FRAME.match(_raising(traceback)[0].text) if traceback and _raising(traceback) else None
    if frame is None:
        return ""
    file = frame["file"].rpartition("site-packages/")[2]
    return f" in {frame['function'] or 'its source'} ({file}:{frame['line']})"


def _raising(traceback: Traceback) -> list[Line]:
    """The innermost frame: its place, and its source line where there is one."""
    at = max((index for index, line in enumerate(traceback.frames) if _FRAME.match(line.text)), default=None)
    return [] if at is None else list(traceback.frames[at : at + 2])
