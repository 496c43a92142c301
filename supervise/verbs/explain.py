"""`supervise explain`: the first cause, from any log."""

from __future__ import annotations

import errno
import json
import os
import signal
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from supervise.diagnosis.engines import GENERIC
from supervise.diagnosis.whole import UNKNOWN_END, Explained, Tried, explain
from supervise.host.archives import NoLogError, Unpacked
from supervise.model.diagnosis import Diagnosis, End, Line, SignatureSet
from supervise.model.exits import Exit
from supervise.model.profile import Profile
from supervise.profiles.load import load_all
from supervise.profiles.own import with_own
from supervise.profiles.signatures import available_sets, load_signatures
from supervise.report.page import Page, same_cause
from supervise.verbs.output import answering
from supervise.verbs.records import log_pieces
from supervise.verbs.select import say

VERSION = 1
"""Of the JSON; docs/explain.md says what it promises."""

NAMED, HEALTHY, UNNAMED = 0, 1, 3
"""Exit statuses: a cause is named; the log is healthy; it failed, or is empty, and no cause can be named."""

_STDIN = "-"
# The worst of several files decides, the least expected first.
_WORST_FIRST = (Exit.USAGE, UNNAMED, NAMED, HEALTHY)


def explain_files(files: Sequence[str], *, as_json: bool, exit_status: int | None, engine: str | None) -> int:
    """Explain logs, one after the other.

    Args:
        files: paths; `-` is standard input.
        as_json: one JSON object per file and line instead of text.
        exit_status: how the server ended, where known: its exit code, 128 and a signal, or minus a signal.
        engine: whose logs they are; None to guess.

    Returns:
        0 if a cause is named, 1 if the log is healthy, 3 if it failed for a reason that cannot be named, is empty, or
        shows no failure and could not be read to its end, 2 if it cannot be read. Of several files the worst, in the
        order 2, 3, 0, 1.

    Raises:
        ProfileError: a profile or a set of signatures is damaged.
    """
    profiles = load_all()
    signatures = _signatures(profiles, engine)
    statuses = []
    for index, file in enumerate(files):
        notes: list[str] = []
        damage: list[str] = []
        try:
            told = explain(_pieces(file, notes, damage), _end(exit_status), signatures, profiles, engine)
        except (NoLogError, OSError) as error:
            say(f"supervise: {file}: {_complaint(file, error)}")
            statuses.append(int(Exit.USAGE))
            continue
        whole = not damage
        with answering():
            _print(file, told, notes + damage, as_json=as_json, gap=index > 0, whole=whole)
        statuses.append(_status(told, whole=whole))
    return next(status for status in _WORST_FIRST if status in statuses)


def _signatures(profiles: dict[str, Profile], engine: str | None) -> SignatureSet:
    """Those of the engine that somebody named; otherwise all there are, for a guess comes after the first lines.

    The user's own are always among them.
    """
    sets = available_sets() if engine is None else profiles.get(engine, profiles[GENERIC]).signatures
    known, notes = with_own(load_signatures(sets), os.environ)
    for note in notes:
        say(f"supervise: {note}")
    return known


def _end(exit_status: int | None) -> End:
    if exit_status is None:
        return UNKNOWN_END
    return End(signal=-exit_status, sent=None) if exit_status < 0 else End(code=exit_status, sent=None)


def _complaint(file: str, error: Exception) -> str:
    if isinstance(error, IsADirectoryError):
        return "is a directory; name a log in it"
    if isinstance(error, OSError) and error.errno == errno.ENXIO and stat.S_ISSOCK(os.stat(file).st_mode):
        return "is a socket, no log"
    return (isinstance(error, OSError) and error.strerror) or str(error)


# --- reading ----------------------------------------------------------------------------------------------------------


def _pieces(file: str, notes: list[str], damage: list[str]) -> Iterator[bytes]:
    """The text of a log; `notes` tell afterwards what is missing in it, `damage` what should have been there."""
    if file != _STDIN and os.path.exists(f"{file}.map"):
        # Its own supervise keeps it within a bound: its beginning is in an archive beside it.
        yield from log_pieces(file, damage)
        return
    if file == _STDIN:
        with _interruptible(notes):
            yield from _unpacked(sys.stdin.fileno(), damage)
    else:
        yield from _unpacked(file, damage)


@contextmanager
def _interruptible(notes: list[str]) -> Iterator[None]:
    """Let Ctrl-C end what comes, not us: whoever pipes a log that goes on for ever ends it that way and wants to know.

    A read that a signal interrupts is tried again (PEP 475), and finds an end. Another Ctrl-C ends us.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:
        yield
        return

    def end(signum: int, frame: object) -> None:
        del frame
        signal.signal(signum, signal.default_int_handler)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, sys.stdin.fileno())
        os.close(nothing)
        notes.append("interrupted; what had come until then was read")

    signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _unpacked(file: str | int, damage: list[str]) -> Iterator[bytes]:
    with open(file, "rb", buffering=0, closefd=isinstance(file, str)) as raw:
        unpacked = Unpacked(raw)
        yield from unpacked
        if unpacked.note:
            damage.append(unpacked.note)


# --- telling ----------------------------------------------------------------------------------------------------------


def _status(told: Explained, *, whole: bool) -> int:
    if told.diagnosis.fatal:
        return NAMED if told.diagnosis.text is not None else UNNAMED
    return UNNAMED if told.blank or not whole else HEALTHY


def _print(file: str, told: Explained, notes: list[str], *, as_json: bool, gap: bool, whole: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(as_data(file, told, notes), ensure_ascii=False) + "\n")
    else:
        sys.stdout.write("\n" if gap else "")
        Page().explained("standard input" if file == _STDIN else file, told, notes, whole=whole)


def as_data(file: str, told: Explained, notes: Sequence[str] = ()) -> dict[str, Any]:
    """One log as JSON has it; see docs/explain.md.

    Args:
        file: the log's name as it was given.
        told: what it says.
        notes: what people should know of how it was read.

    Returns:
        The object.
    """
    diagnosis = told.diagnosis
    named = diagnosis.fatal and diagnosis.text is not None
    return {
        "version": VERSION,
        "file": file,
        "fatal": diagnosis.fatal,
        "cause": _cause(diagnosis) if named else None,
        "fingerprint": diagnosis.fingerprint,
        "engine": told.engine,
        "attempts": told.attempts,
        "attempt": told.named.number,
        "unnamed": _common(diagnosis) if diagnosis.fatal and not named else None,
        "others": [_other(other, told.named) for other in told.others],
        "lines": told.lines,
        "notes": list(notes),
    }


def _cause(diagnosis: Diagnosis) -> dict[str, Any]:
    return {
        "text": _as_in_the_log(diagnosis),
        "line": diagnosis.line,
        "process": diagnosis.process,
        "rank": diagnosis.rank,
        "signature": diagnosis.signature,
        **_common(diagnosis),
    }


def _as_in_the_log(diagnosis: Diagnosis) -> str | None:
    """The whole line, its prefix included."""
    return next((line.raw for line in diagnosis.evidence if line.number == diagnosis.line), diagnosis.text)


def _common(diagnosis: Diagnosis) -> dict[str, Any]:
    return {
        "class": diagnosis.failure.value,
        "phase": diagnosis.phase,
        "meaning": diagnosis.meaning,
        "advice": list(diagnosis.advice),
        "evidence": [_quoted(line) for line in diagnosis.evidence],
    }


def _quoted(line: Line) -> dict[str, Any]:
    return {"line": line.number, "text": line.raw}


def _other(other: Tried, named: Tried) -> dict[str, Any]:
    its = other.diagnosis
    return {
        "attempt": other.number,
        "begins": other.begins,
        "fatal": its.fatal,
        "same": its.fatal and named.diagnosis.fatal and same_cause(its, named.diagnosis),
        "line": its.line,
        "text": its.text,
        "fingerprint": its.fingerprint,
    }
