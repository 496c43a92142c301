"""Explains a whole log, from anywhere: which engine, which attempts, and the first cause of the newest that failed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from supervise.diagnosis.engines import EngineGuess, Startup
from supervise.diagnosis.episodes import Episodes
from supervise.diagnosis.margins import Margins
from supervise.diagnosis.scanner import Scanner, SparseReader
from supervise.diagnosis.unwrap import unwrapped
from supervise.diagnosis.verdict import Diagnoser
from supervise.model.diagnosis import Diagnosis, End, Line, SignatureSet
from supervise.model.profile import Profile

UNKNOWN_END = End(known=False)
"""The end of a server of which there is nothing but its log."""

# A restart loop may go on for days: of its attempts the first ones and the last are remembered.
_FIRST_KEPT = 16
_LAST_KEPT = 16


@dataclass(frozen=True, slots=True)
class Tried:
    """What became of one attempt: its number, counted from 1, the line it begins with, and its diagnosis."""

    number: int
    begins: int
    diagnosis: Diagnosis
    ready: bool


@dataclass(frozen=True, slots=True)
class Explained:
    """A log, explained.

    `named` is the newest attempt that failed, or the newest one if none did; `attempts` is how many there are and
    `others` are the rest as far as they are remembered, in order. `lines` counts all lines, `blank` is True if there is
    nothing in them.
    """

    engine: str
    named: Tried
    attempts: int
    others: tuple[Tried, ...]
    lines: int
    blank: bool

    @property
    def diagnosis(self) -> Diagnosis:
        """Of the named attempt."""
        return self.named.diagnosis


def explain(
    chunks: Iterable[bytes],
    end: End,
    signatures: SignatureSet,
    profiles: Mapping[str, Profile],
    engine: str | None = None,
) -> Explained:
    """Read a log to its end and name the first cause of its newest attempt that failed.

    Args:
        chunks: the log, cut anywhere.
        end: how the server of the last attempt ended; `UNKNOWN_END` where nobody knows.
        signatures: known failures of any engine.
        profiles: by engine, the generic one among them.
        engine: whose log it is; None to guess.

    Returns:
        What the log says. Memory is bounded however long it is.
    """
    reading = _Reading(signatures, profiles, engine)
    reader = SparseReader(lambda: Scanner.of(signatures, profiles.values()), busy=lambda: reading.open)
    for line in unwrapped(_lines(reader, chunks)):
        reading.feed(line)
    return reading.conclude(end)


def _lines(reader: SparseReader, chunks: Iterable[bytes]) -> Iterator[Line]:
    for chunk in chunks:
        yield from reader.feed(chunk)
    yield from reader.close()


class _Reading:
    """The log so far."""

    def __init__(self, signatures: SignatureSet, profiles: Mapping[str, Profile], engine: str | None) -> None:
        self._signatures, self._profiles = signatures, profiles
        self._guess = EngineGuess(engine)
        self._episodes = Episodes()
        self._margins = Margins()
        self._over: list[Tried] = []
        self._failed: Tried | None = None
        self._count = 1
        self._last = 0
        self._blank = True
        self._open(1)

    @property
    def open(self) -> bool:
        """Whether the end of a report is still to come."""
        return self._diagnoser.open

    def feed(self, line: Line) -> None:
        line = self._margins.feed(line)
        self._last = line.number
        self._blank = self._blank and not line.raw.strip()
        self._guess.feed(line)
        if self._episodes.feed(line):
            self._close(UNKNOWN_END)
            self._count += 1
            self._open(line.number)
        self._startup.feed(line)
        self._diagnoser.feed(line)

    def conclude(self, end: End) -> Explained:
        self._close(end)
        named = self._failed or self._over[-1]
        return Explained(
            engine=self._guess.engine,
            named=named,
            attempts=self._count,
            others=tuple(each for each in self._over if each.number != named.number),
            lines=self._last,
            blank=self._blank,
        )

    def _open(self, begins: int) -> None:
        self._begins = begins
        self._startup = Startup(self._profiles, self._guess)
        self._diagnoser = Diagnoser(self._signatures, self._startup)

    def _close(self, end: End) -> None:
        ready = self._startup.ready
        told = replace(end, ready=end.ready or ready, phase=end.phase or self._startup.phase)
        tried = Tried(self._count, self._begins, self._diagnoser.conclude(told), ready)
        self._over.append(tried)
        if len(self._over) > _FIRST_KEPT + _LAST_KEPT:
            del self._over[_FIRST_KEPT]
        if tried.diagnosis.fatal:
            self._failed = tried
