"""Finds the signature that a line matches, at the price of a few `in` for a line that matches none."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from supervise.model.diagnosis import Line, Role, Signature, SignatureSet, Trap

QUIET = frozenset({"TRACE", "DEBUG", "INFO"})
"""Levels that no cause is logged at: requests are, and what users send may read like any error."""

_Entry = TypeVar("_Entry", Signature, Trap)
_Table = tuple[tuple[str, tuple[_Entry, ...]], ...]


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


class Matcher:
    """Matches lines against signatures, traps first.

    Args:
        signatures: what is known.
    """

    def __init__(self, signatures: SignatureSet) -> None:
        self._all = _by_literal(signatures.signatures)
        self._context = _by_literal(each for each in signatures.signatures if each.role is Role.CONTEXT)
        self._traps = _by_literal(signatures.traps)

    def find(self, line: Line) -> Match | None:
        """Find the signature that a line matches.

        Args:
            line: any line.

        Returns:
            The match. Where several signatures match, the one whose literal says most, that is, the longest. None
            for a line that a trap hides, and for one logged as information unless it is mere context.
        """
        text = line.text
        table = self._context if line.level in QUIET else self._all
        hit = [(len(literal), entries) for literal, entries in table if literal in text]
        if not hit or self.hides(line):
            return None
        hit.sort(key=lambda found: -found[0])
        return next(filter(None, (_match(each, text) for _, entries in hit for each in entries)), None)

    def hides(self, line: Line) -> bool:
        """Whether a line is a known trap: it looks fatal and is not."""
        text = line.text
        return any(
            trap.pattern.search(text) is not None for literal, traps in self._traps if literal in text for trap in traps
        )


def _match(signature: Signature, text: str) -> Match | None:
    found = signature.pattern.search(text)
    return Match(signature, found.groupdict(default="unknown")) if found else None


def _by_literal(entries: Iterable[_Entry]) -> _Table[_Entry]:
    table: dict[str, list[_Entry]] = {}
    for entry in entries:
        for literal in entry.literals:
            table.setdefault(literal, []).append(entry)
    return tuple((literal, tuple(listed)) for literal, listed in table.items())
