"""What could be the first cause, and which of it is."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum

from supervise.diagnosis.matching import Match
from supervise.model.diagnosis import Kind, Line, Traceback

_PER_RANK = 24
# After readiness a cause is looked for this close to the death of the engine: what was longer ago, the server survived.
# vLLM dumps its whole scheduler state in between, some 300 lines (VLLM_REAL.md section 3).
_NEAR_LINES = 1000
# A shorter message may well be somebody else's.
_TELLING = 16


class Rank(IntEnum):
    """How far inside a process sits. An error goes outwards: the innermost report is the first cause (FIELD.md B0)."""

    WORKER = 0
    ENGINE = 1
    HELPER = 2
    FRONT = 3
    MAIN = 4

    @property
    def is_engine(self) -> bool:
        """Whether the server cannot live without that process."""
        return self <= Rank.ENGINE


# The names in the prefixes of vLLM and SGLang, in multiprocessing's `Process NAME:`, and in SGLang's headlines.
_RANKS = (
    (
        Rank.WORKER,
        re.compile(r"(?:Vllm|Ray)?Worker|(?:rank|gpu=)\d|(?:[A-Z_]+\d+ ?)+$|ModelWorker|Exception in |kernel$|raylet$"),
    ),
    (Rank.ENGINE, re.compile(r"(?:DP)?EngineCore|MQLLMEngine|Engine background|Scheduler|scheduler")),
    (
        Rank.HELPER,
        re.compile(r"DPCoordinator|VLLM_DP_Coordinator|Detokenizer|DataParallelController|\w*Process-\d|pid$"),
    ),
    (Rank.FRONT, re.compile(r"A[Pp][Ii]Server|TokenizerManager|MultiTokenizerRouter")),
)

# SGLang's headlines, the second one before 0.4; that of vLLM's engine where it runs inside of the front end.
_HEADLINE = re.compile(
    r" hit an exception|^Exception in (?:ModelTpServer|run_tp_server|ModelRpcClient):|^Engine background task failed"
)

# Where a logger of native code stands: glog's and torch's file and line, or NCCL.
_NATIVE = re.compile(r"^NCCL$|\.(?:cc|cpp|cu|cuh|h|hpp|c):\d+$")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A line that may be the first cause.

    `headed` is True if the process announced its own death right before; `ready` if the server had been up by then.
    """

    line: Line
    rank: Rank
    match: Match | None = None
    traceback: Traceback | None = None
    phase: str | None = None
    ready: bool = False
    headed: bool = False

    @property
    def process(self) -> str | None:
        """Who printed it."""
        return (self.traceback.process if self.traceback else None) or self.line.process

    @property
    def strong(self) -> bool:
        """Whether it ends a server by itself: a raised exception, or a signature that is fatal. A build may fail."""
        return self._fatal or (self.traceback is not None and self.traceback.kind is not Kind.BUILD)

    @property
    def certain(self) -> bool:
        """Whether it is known to have ended the server, not only to look like it."""
        return self.headed or self._fatal

    @property
    def refused(self) -> bool:
        """Whether a program told how it was started wrongly, and did not begin."""
        return self.traceback is not None and self.traceback.kind is Kind.USAGE

    @property
    def _fatal(self) -> bool:
        return self.match is not None and self.match.signature.fatal


class Candidates:
    """Keeps candidates within a bound however long the log is, and chooses among them."""

    def __init__(self) -> None:
        self._by_rank: dict[Rank, list[Candidate]] = {}

    def add(self, new: Candidate, *, dying: bool) -> None:
        """Take one more.

        Before readiness and once the engine is dying the earliest are kept, in between the latest: a server lives
        through many errors. Of one traceback, or of a chain of them, only one becomes a candidate: the first, or the
        first that a signature knows.

        Args:
            new: the candidate, later in the log than all before.
            dying: whether the engine has announced its death.
        """
        kept = self._by_rank.setdefault(new.rank, [])
        if new.ready:
            kept[:] = [each for each in kept if each.ready]
        twin = next((index for index, each in enumerate(kept) if _same_failure(each, new)), None)
        if twin is not None:
            kept[twin] = _better(kept[twin], new)
            return
        if len(kept) >= _PER_RANK:
            _make_room(kept, new, dying=dying)
        if len(kept) < _PER_RANK:
            kept.append(new)

    def refresh(self, traceback: Traceback) -> None:
        """Take what has become known of a report since it was added."""
        for kept in self._by_rank.values():
            for index, each in enumerate(kept):
                if each.traceback is not None and _is_same(each.traceback, traceback):
                    kept[index] = replace(each, traceback=traceback)

    def best(self, *, ready: bool, death: int) -> Candidate | None:
        """Choose the first cause.

        Args:
            ready: whether the server had been up.
            death: the number of the line at which the engine announced its death, or of the last line.

        Returns:
            The innermost process's earliest; None if there is no candidate.
        """
        eligible = _without_echoes(list(self._eligible(ready, death)))
        innermost = min(eligible, key=_precedence, default=None)
        return innermost and _first_told(_first_raised(innermost, eligible), eligible)

    def _eligible(self, ready: bool, death: int) -> Iterable[Candidate]:
        listed = [each for kept in self._by_rank.values() for each in kept]
        if not ready:
            return listed
        return [each for each in listed if each.ready and each.line.number >= death - _NEAR_LINES]


def first_of(cause: Candidate | None, quote: Candidate | None) -> Candidate | None:
    """Choose between what failed and a report that quotes it, such as that of a watchdog.

    Args:
        cause: the first cause as far as anybody printed it himself.
        quote: the first report that quotes one.

    Returns:
        The cause, unless all that it says had been quoted before: native code that ends because of what it quotes, or
        another process that met the same.
    """
    if cause is None or quote is None:
        return cause or quote
    return quote if quote.line.number < cause.line.number and _said_before(cause, quote) else cause


def rank_of(line: Line, traceback: Traceback | None) -> Rank:
    """Say how far inside a line comes from.

    Args:
        line: the line.
        traceback: the traceback that it belongs to, if any.

    Returns:
        The rank by the process's name, or else by the headline. Native code prints without either, past Python's
        streams: a line without prefix and traceback is taken for the innermost.
    """
    name = (traceback.process if traceback else None) or line.process
    header = traceback.header.text if traceback and traceback.header else ""
    if name:
        # Ray names the actor in which an engine runs, the headline the engine's process.
        return min(_rank(name), _rank(header) if _HEADLINE.search(header) else Rank.MAIN)
    if traceback is None:
        return Rank.MAIN if line.record and not _is_native(line) else Rank.WORKER
    if traceback.kind is Kind.NATIVE:
        return Rank.WORKER
    return _rank(header) if _HEADLINE.search(header) else Rank.MAIN


def _is_native(line: Line) -> bool:
    return line.source is not None and _NATIVE.search(line.source) is not None


def _rank(name: str) -> Rank:
    return next((rank for rank, pattern in _RANKS if pattern.match(name)), Rank.MAIN)


def _make_room(kept: list[Candidate], new: Candidate, *, dying: bool) -> None:
    """Let go of the earliest while the server lives on, or of an uncertain one for one that is certain."""
    drop = 0 if new.ready and not dying else None
    if drop is None and new.certain:
        drop = next((index for index, each in enumerate(kept) if not each.certain), None)
    if drop is not None:
        del kept[drop]


def _same_failure(known: Candidate, new: Candidate) -> bool:
    before, now = known.traceback, new.traceback
    if before is None or now is None or (before.process, before.pid) != (now.process, now.pid):
        return False
    return _is_same(before, now) or (now.chain > before.chain and before.header is now.header)


def _is_same(one: Traceback, other: Traceback) -> bool:
    return (one.process, one.pid, one.first, one.chain) == (other.process, other.pid, other.first, other.chain)


def _better(known: Candidate, new: Candidate) -> Candidate:
    """Of one failure: what says more exactly what went wrong, and what a signature knows."""
    headed = new.headed or known.headed
    before, now = known.traceback, new.traceback
    exacter = now is not None and now.cause is new.line and known.line is not new.line
    if exacter and before is not None and now is not None and _is_same(before, now):
        return replace(new, match=new.match or known.match, headed=headed)
    if known.match is None and new.match is not None:
        return replace(new, headed=headed)
    return _staged(_understood(known, new), new)


def _understood(known: Candidate, new: Candidate) -> Candidate:
    """What fails anywhere, such as a name that does not resolve, means what the one says who wanted it."""
    if known.match is None or new.match is None:
        return known
    before, now = known.match.signature, new.match.signature
    explained = before.id in now.explains or (before.phase is None and now.phase is not None)
    return replace(known, match=new.match) if explained else known


def _staged(known: Candidate, new: Candidate) -> Candidate:
    """A chain's first exception may be raised in a library: where that was called from, a later one tells."""
    if known.traceback is None or new.traceback is None or known.traceback.stage is not None:
        return known
    return replace(known, traceback=replace(known.traceback, stage=new.traceback.stage))


def _without_echoes(eligible: list[Candidate]) -> list[Candidate]:
    """Leave out native code that dies of what Python had raised before: it repeats the message after `what():`."""
    return [each for each in eligible if not any(_repeats(each, other) or _ends(each, other) for other in eligible)]


def _repeats(candidate: Candidate, other: Candidate) -> bool:
    if candidate.traceback is None or candidate.traceback.kind is not Kind.NATIVE or other.traceback is None:
        return False
    said = candidate.line.text.strip().removeprefix("what():").strip()
    raised = other.traceback.kind is Kind.PYTHON and other.line.number < candidate.line.number
    return raised and len(said) >= _TELLING and said in other.line.text


def _ends(candidate: Candidate, other: Candidate) -> bool:
    """Whether native code crashes, of a process that nobody names, after an engine had said what it dies of."""
    report = candidate.traceback
    if report is None or report.kind is not Kind.NATIVE or candidate.process is not None:
        return False
    return other.headed and other.rank.is_engine and other.line.number < candidate.line.number


def _said_before(cause: Candidate, quote: Candidate) -> bool:
    said = cause.line.text.strip()
    if said.startswith("terminate called"):
        return True
    message = said.partition(": ")[2]
    return cause.process != quote.process and len(message) >= _TELLING and message in quote.line.text


def _first_raised(chosen: Candidate, eligible: Iterable[Candidate]) -> Candidate:
    """Where the same was raised before, though its headline is missing: the log was cut there."""
    said = chosen.line.text.strip()
    raised = [each for each in eligible if each.strong and each.rank == chosen.rank and each.line.text.strip() == said]
    first = min(raised, key=lambda each: each.line.number, default=chosen)
    return replace(first, match=first.match or chosen.match, headed=first.headed or chosen.headed)


def _first_told(chosen: Candidate, eligible: Iterable[Candidate]) -> Candidate:
    """Where the same was said before, though nobody signed it: an engine logs its exception, then Python prints it."""
    said = chosen.line.text.strip()
    told = [each for each in eligible if each.strong and each.rank > chosen.rank and each.line.text.strip() == said]
    first = min(told, key=lambda each: each.line.number, default=chosen)
    if first.line.number >= chosen.line.number or first.process is not None:
        return chosen
    return replace(first, match=first.match or chosen.match, headed=first.headed or chosen.headed)


def _precedence(candidate: Candidate) -> tuple[bool, Rank, bool, int]:
    return (not candidate.strong, candidate.rank, not candidate.certain, candidate.line.number)
