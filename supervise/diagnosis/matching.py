"""Finds the signature that a line matches, at the price of a few `in` for a line that matches none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from heapq import heapify, heappop, heappush
from string import Formatter
from typing import Generic, TypeVar

from supervise.diagnosis.figures import compute
from supervise.model.diagnosis import Line, Role, Signature, SignatureSet, Trap

QUIET = frozenset({"TRACE", "DEBUG", "INFO"})
"""Levels that no cause is logged at: requests are, and what users send may read like any error."""

_STOP = (Role.ASKED, Role.ENDING)
_INFORMATION = (Role.CONTEXT, *_STOP)

_Entry = TypeVar("_Entry", Signature, Trap)
# Literals are grouped under gates, pieces of five characters that they share ("Error", "ailed"): some 40 instead of 180
# look-ups for a line that holds none, which is nearly every line.
_GATE = 5

OPTIONAL = re.compile(r"\[([^\[\]]*\{\w+\}[^\[\]]*)\]")
"""A stretch in brackets that holds a field is said only if the field is known: "A GPU had no room[ for {wanted}]."."""

# Longer values, such as a list of all architectures, drown the sentence that they stand in.
_LONGEST_VALUE = 240


@dataclass(frozen=True, slots=True)
class Match:
    """A signature with what its pattern captured; a group that took no part is not among `groups`.

    `facts` are numbers that the launch printed before (`supervise.diagnosis.facts`), for values that are computed.
    """

    signature: Signature
    groups: dict[str, str]
    facts: Mapping[str, float] = field(default_factory=dict, compare=False)

    @property
    def role(self) -> Role:
        """What the match says."""
        return self.signature.role

    @property
    def meaning(self) -> str:
        """The signature's meaning with the values filled in; what is in brackets and not known is left out."""
        filled = self._fill(self.signature.meaning)
        return filled or OPTIONAL.sub("", self.signature.meaning).format_map(
            _Unknown({name: _without_stop(value) for name, value in self.groups.items()})
        )

    @property
    def advice(self) -> tuple[str, ...]:
        """The signature's advice with the values filled in, without the pieces of which a value is not known."""
        return tuple(filter(None, map(self._fill, self.signature.advice)))

    @property
    def constraint(self) -> str | None:
        """When the advice must not be followed, or what it costs; None if it costs nothing."""
        return self._fill(self.signature.constraint) if self.signature.constraint else None

    def _fill(self, template: str) -> str | None:
        """The template with its values; None if one is missing outside of brackets."""
        if "{" not in template:
            return template
        values = self._values(template)
        kept = OPTIONAL.sub(lambda found: found[1] if values.keys() >= set(fields(found[1])) else "", template)
        return kept.format_map(values) if values.keys() >= set(fields(kept)) else None

    def _values(self, template: str) -> dict[str, str]:
        computed = compute(fields(template), self.groups, self.facts)
        return {name: shorten(_without_stop(value)) for name, value in (self.groups | computed).items()}


class _Unknown(dict[str, str]):
    """Values of which a missing one is said to be unknown."""

    def __missing__(self, key: str) -> str:
        return "unknown"


def fields(template: str) -> list[str]:
    """Name the fields of a template, in order.

    Raises:
        ValueError: a brace has no counterpart.
    """
    return [name for _, name, _, _ in Formatter().parse(template) if name is not None]


def _without_stop(value: str) -> str:
    """A value without the full stop of the message that it was captured at the end of: the sentence has its own."""
    return value.rstrip(" .") or value


def shorten(value: str) -> str:
    """Cut a captured value to what a sentence bears."""
    return value if len(value) <= _LONGEST_VALUE else value[: _LONGEST_VALUE - 1] + "…"


class _Table(Generic[_Entry]):
    """Entries by their literals."""

    def __init__(self, entries: Iterable[_Entry]) -> None:
        by_literal: dict[str, list[_Entry]] = {}
        for entry in entries:
            for literal in entry.literals:
                by_literal.setdefault(literal, []).append(entry)
        self._gates: list[tuple[str, list[tuple[str, list[_Entry]]]]] = [
            (gate, [(literal, by_literal[literal]) for literal in literals])
            for gate, literals in group_by_gate(by_literal)
        ]

    def near(self, text: str) -> list[tuple[str, list[_Entry]]]:
        """The literals that a text holds, with their entries."""
        return [found for gate, listed in self._gates if gate in text for found in listed if found[0] in text]


def group_by_gate(literals: Iterable[str]) -> list[tuple[str, list[str]]]:
    """Group literals under few short pieces of them.

    Args:
        literals: any strings.

    Returns:
        Pairs of a piece and the literals that hold it; every literal is in exactly one group.
    """
    return _cover(frozenset(literals))


@lru_cache(maxsize=16)
def _cover(literals: frozenset[str]) -> list[tuple[str, list[str]]]:
    """Take the piece that most literals share, then the one that most of the rest share, and so on."""
    holders: dict[str, set[str]] = {}
    for literal in literals:
        for piece in _pieces(literal):
            holders.setdefault(piece, set()).add(literal)
    queue = [(-len(held), piece) for piece, held in holders.items()]
    heapify(queue)
    left = set(literals)
    groups: list[tuple[str, list[str]]] = []
    while left:
        size, piece = heappop(queue)
        held = holders[piece] & left
        if len(held) < -size:
            # Counted before others took some of them; its turn comes later.
            heappush(queue, (-len(held), piece))
            continue
        groups.append((min(held) if len(held) == 1 else piece, sorted(held)))
        left -= held
    return groups


def _pieces(literal: str) -> set[str]:
    return {literal[at : at + _GATE] for at in range(max(1, len(literal) - _GATE + 1))}


class Matcher:
    """Matches lines against signatures, traps first.

    Args:
        signatures: what is known.
        facts: numbers that the launch prints on its way up; a live mapping, such as `Facts.values`.
    """

    def __init__(self, signatures: SignatureSet, facts: Mapping[str, float] | None = None) -> None:
        self._facts = {} if facts is None else facts
        self._all = _Table(signatures.signatures)
        self._context = _Table(each for each in signatures.signatures if each.role in _INFORMATION)
        self._traps = _Table(signatures.traps)

    def find(self, line: Line) -> Match | None:
        """Find the signature that a line matches.

        Args:
            line: any line.

        Returns:
            The match. Where several signatures match, the one whose literal says most, that is, the longest. None
            for a line that a trap hides, unless it tells of a stop, and for one logged as information unless it is
            mere context.
        """
        text = line.text
        near = (self._context if line.level in QUIET else self._all).near(text)
        if not near:
            return None
        near.sort(key=lambda held: -len(held[0]))
        hidden = self.hides(line)
        entries = (each for _, listed in near for each in listed if not hidden or each.role in _STOP)
        return next(filter(None, (self._match(each, text) for each in entries)), None)

    def inner(self, line: Line, match: Match) -> Match:
        """Say what is known of an error that a report quotes.

        Args:
            line: the report.
            match: what it matched; the quoted error is its group `inner`.

        Returns:
            The error's match; the report's own if nothing is known of the error, or none is quoted.
        """
        quoted = match.groups.get("inner")
        found = self.find(replace(line, text=quoted)) if quoted else None
        return found if found is not None and found.role is Role.ROOT else match

    def hides(self, line: Line) -> bool:
        """Whether a line is a known trap: it looks fatal and is not."""
        return any(self._trapped(line.text))

    def covers(self, line: Line) -> bool:
        """Whether a headline says that the traceback below it was handled."""
        return any(trap.covers for trap in self._trapped(line.text))

    def _trapped(self, text: str) -> Iterator[Trap]:
        return (trap for _, traps in self._traps.near(text) for trap in traps if trap.pattern.search(text))

    def _match(self, signature: Signature, text: str) -> Match | None:
        found = signature.pattern.search(text)
        if found is None:
            return None
        captured = {name: value for name, value in found.groupdict().items() if value is not None}
        return Match(signature, captured, self._facts)
