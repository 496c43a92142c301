"""Puts a first cause into words: what it means, whose it is, which lines prove it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from supervise.diagnosis.candidates import Candidate, Rank
from supervise.diagnosis.causes import carries
from supervise.diagnosis.fingerprint import fingerprint
from supervise.diagnosis.frames import Owners, frames, is_frame
from supervise.diagnosis.matching import Match
from supervise.model.diagnosis import Diagnosis, End, FailureClass, Kind, Line, Owner, Traceback

EVIDENCE = 5
"""Lines that a diagnosis quotes at most."""

Echoes = Iterable[tuple[Line, Match]]

# Raised by the same launch each time. Of others (RuntimeError, OSError, TimeoutError) nobody can know.
_DETERMINISTIC = frozenset(
    {
        "ArgumentError", "AssertionError", "AttributeError", "ConfigAttributeError", "ConfigKeyError", "ImportError",
        "IndentationError", "IndexError", "JSONDecodeError", "KeyError", "LookupError", "ModuleNotFoundError",
        "NameError", "NotImplementedError", "RecursionError", "SyntaxError", "TypeError", "UnboundLocalError",
        "UnicodeDecodeError", "UsageError", "ValidationError", "ValueError", "ZeroDivisionError",
    }
)  # fmt: skip
# Who gave up waiting may be luckier next time, whatever he raised.
_WAITED = re.compile(r"(?i)\btim(?:ed? ?|e-)out\b")


def named(cause: Candidate, end: End, echoes: Echoes, owners: Owners) -> Diagnosis:
    """Build the diagnosis of a cause that somebody printed.

    Args:
        cause: the first cause.
        end: how the leader ended; its phase counts where neither the log nor the signature tells one.
        echoes: reports of what the cause led to, in the order of the log.
        owners: tells whose code a frame is in.
    """
    signature = cause.match.signature if cause.match else None
    phase = _phase(cause, end)
    return Diagnosis(
        text=cause.line.text.strip(),
        line=cause.line.number,
        process=cause.process,
        signature=signature.id if signature else None,
        failure=_failure(cause),
        phase=phase,
        meaning=meaning(cause, owners),
        advice=_advice(cause.match),
        evidence=_evidence(cause, echoes),
        rank=_rank(cause),
        fingerprint=_fingerprint(cause, phase),
    )


def meaning(cause: Candidate, owners: Owners) -> str:
    """What a cause means, and whether it is a known one."""
    return happened(cause, owners) + ("" if cause.match is not None else " No known failure matches it.")


def happened(cause: Candidate, owners: Owners) -> str:
    """The same in one sentence, for a moment when more may be found yet."""
    if cause.match is not None:
        return cause.match.meaning
    who = cause.process or "The server"
    kind = cause.traceback.kind if cause.traceback else Kind.PYTHON
    did = {
        Kind.PYTHON: f"raised {_exception(cause)}",
        Kind.NATIVE: "died in native code",
        Kind.BUILD: "could not compile what it needs",
        Kind.USAGE: "refused its command line",
    }[kind]
    return f"{who} {did}{_where(cause.traceback, owners)}."


def _advice(match: Match | None) -> tuple[str, ...]:
    """What to try, and last what that costs or when it must not be done."""
    if match is None:
        return ()
    return (*match.advice, f"Mind: {match.constraint}") if match.constraint else match.advice


def in_order(lines: list[Line]) -> tuple[Line, ...]:
    """As many lines as a diagnosis quotes, the first ones, in the order of the log."""
    unique = {(line.number, line.text): line for line in lines}
    return tuple(sorted(list(unique.values())[:EVIDENCE], key=lambda line: line.number))


def _failure(cause: Candidate) -> FailureClass:
    if cause.match is None:
        known = not _served(cause) and _exception(cause) in _DETERMINISTIC and not _WAITED.search(cause.line.text)
        known = known or cause.refused
        return FailureClass.DETERMINISTIC if known else FailureClass.UNKNOWN
    signature = cause.match.signature
    if _served(cause) and signature.at_run is not None:
        return signature.at_run
    if _served(cause) and signature.failure is FailureClass.DETERMINISTIC and signature.phase not in (None, "run"):
        # It got through this phase once with the same arguments: what it met at run time came with the requests.
        return FailureClass.LOAD
    return signature.failure


def _served(cause: Candidate) -> bool:
    """Whether the server had been up, by the log or by the frames: of many a log only the end is there."""
    return cause.ready or _stage(cause) == "run"


def _stage(cause: Candidate) -> str | None:
    return cause.traceback.stage if cause.traceback else None


def _exception(cause: Candidate) -> str:
    text = (cause.line if cause.traceback is None or _is_carried(cause) else cause.traceback.exception).text.strip()
    return re.split(r"[:\s]", text, maxsplit=1)[0].rpartition(".")[2]


def _is_carried(cause: Candidate) -> bool:
    """Whether it was raised elsewhere: Ray brings a worker's exception to whoever waits for its result."""
    report = cause.traceback
    return report is not None and report.cause is cause.line and carries(report.exception.text.strip())


def _rank(cause: Candidate) -> int | None:
    """Python's own traceback has no prefix: the rank is in the headline then."""
    report = cause.traceback
    told = [cause.line, *([report.exception] if report else []), *([report.header] if report and cause.headed else [])]
    return next((line.rank for line in told if line is not None and line.rank is not None), None)


def _phase(cause: Candidate, end: End) -> str | None:
    """The phase that the traceback tells, else the one that the log was in, else the one that the failure belongs to.

    Ranks that are ahead of the one that failed may have taken the log into a later phase. What fails in the first
    process before any phase began has not got past arguments and configuration.
    """
    own = cause.match.signature.phase if cause.match else None
    if cause.ready:
        # uvicorn says that the application is up before it listens.
        return "server" if own == "server" or cause.refused else "run"
    reached = _reached(cause)
    if own == "distributed" and cause.rank < Rank.FRONT and reached in ("config", "engine"):
        # vLLM prints no milestone between the engine and the weights.
        return own
    return reached or own or end.phase or ("config" if cause.rank >= Rank.FRONT and not _is_carried(cause) else None)


def _reached(cause: Candidate) -> str | None:
    """Frames tell more exactly than milestones, except that all of a start goes through those of the engine."""
    stage = _stage(cause)
    return cause.phase if stage == "engine" and cause.phase not in (None, "config") else stage or cause.phase


def _fingerprint(cause: Candidate, phase: str | None) -> str:
    places = [(each.file, each.function or "") for each in frames(cause.traceback)] if cause.traceback else []
    signature = cause.match.signature.id if cause.match else None
    exception = _exception(cause) if cause.traceback else None
    return fingerprint(exception, cause.line.text.strip(), places, signature, phase)


def _evidence(cause: Candidate, echoes: Echoes) -> tuple[Line, ...]:
    """The cause, what came right before it, and the first report of what it led to."""
    lines = [cause.line]
    if traceback := cause.traceback:
        lines += [traceback.exception, *reversed(_raising(traceback))]
        lines += [traceback.header] if traceback.header and cause.headed else []
    after = [(line, match) for line, match in echoes if line.number > cause.line.number]
    lines += [line for line, match in after if match.signature.fatal][:1] or [line for line, _ in after][:1]
    return in_order(lines)


def _where(traceback: Traceback | None, owners: Owners) -> str:
    """The frame that people want to see: in their own code, else in the engine's, else the innermost."""
    if traceback is None:
        return ""
    found = (owners.innermost(traceback, owner) for owner in (Owner.USER, Owner.ENGINE, None))
    frame = next(filter(None, found), None)
    if frame is None:
        return ""
    file = frame.file.rpartition("-packages/")[2]
    return f" in {frame.function or 'its source'} ({file}:{frame.line})"


def _raising(traceback: Traceback) -> list[Line]:
    """The innermost frame: its place, and its source line where there is one."""
    places = [index for index, line in enumerate(traceback.frames) if is_frame(line.text)]
    if not places:
        return []
    if traceback.kind is Kind.NATIVE:
        return [traceback.frames[places[0]]]
    return list(traceback.frames[places[-1] : places[-1] + 2])
