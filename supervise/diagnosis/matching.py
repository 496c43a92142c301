"""Finds the signature that a line matches, at the price of a few `in` for a line that matches none."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from supervise.model.diagnosis import Line, Role, Signature, SignatureSet, Trap

QUIET = frozenset({"TRACE", "DEBUG", "INFO"})
"""Levels that no cause is logged at: requests are, and what users send may read like any error."""

_Entry = TypeVar("_Entry", Signature, Trap)
# Literals are grouped under gates, pieces of five characters that they share ("Error", "ailed"): some 40 instead of 180
# look-ups for a line that holds none, which is nearly every line.
_GATE = 5


@dataclass(frozen=True, slots=True)
class Match:
    """A signature with what its pattern captured."""

    signature: Signature
    groups: dict[str, str]

    @property
    def role(self) -> Role:
        """What the match says."""
        return self.signature.role

    @property
    def meaning(self) -> str:
        """The signature's meaning with the captured values filled in."""
        return self.signature.meaning.format_map(self.groups)

    @property
    def advice(self) -> tuple[str, ...]:
        """The signature's advice with the captured values filled in."""
        return tuple(text.format_map(self.groups) for text in self.signature.advice)


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
    """

    def __init__(self, signatures: SignatureSet) -> None:
        self._all = _Table(signatures.signatures)
        self._context = _Table(each for each in signatures.signatures if each.role is Role.CONTEXT)
        self._traps = _Table(signatures.traps)

    def find(self, line: Line) -> Match | None:
        """Find the signature that a line matches.

        Args:
            line: any line.

        Returns:
            The match. Where several signatures match, the one whose literal says most, that is, the longest. None
            for a line that a trap hides, and for one logged as information unless it is mere context.
        """
        text = line.text
        near = (self._context if line.level in QUIET else self._all).near(text)
        if not near or self.hides(line):
            return None
        near.sort(key=lambda held: -len(held[0]))
        return next(filter(None, (_match(each, text) for _, entries in near for each in entries)), None)

    def hides(self, line: Line) -> bool:
        """Whether a line is a known trap: it looks fatal and is not."""
        text = line.text
        return any(trap.pattern.search(text) for _, traps in self._traps.near(text) for trap in traps)


def _match(signature: Signature, text: str) -> Match | None:
    found = signature.pattern.search(text)
    return Match(signature, found.groupdict(default="unknown")) if found else None
