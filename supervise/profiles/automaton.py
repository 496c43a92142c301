"""What a regular expression is to a matcher: places that take one character each, and the ways between them.

This is the automaton of Glushkov (1961), with the number of ways from place to place, because a matcher that backtracks
tries every one of them. Python's own parser reads the pattern, so that nothing is understood differently here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from re import IGNORECASE, Pattern
from typing import Any, NamedTuple

LONGEST = 16_384
"""Characters of the longest text: longer lines are cut before they are matched."""

_PARSER: Any = import_module("re._parser")
_CODES: Any = import_module("re._constants")

# Few repetitions are written out, more are a loop.
_FEW = 4
_FIXED = 64
_MOST_PLACES = 3000

# Characters are bits: ASCII each its own, all others four kinds.
_WORD, _SPACE, _DIGIT, _REST = (1 << bit for bit in range(128, 132))
_OTHERS = _WORD | _SPACE | _DIGIT | _REST
ALL = (1 << 132) - 1
LINE = ALL & ~(1 << 10)


def _ascii(wanted: Iterable[str]) -> int:
    return sum(1 << ord(each) for each in wanted)


_ASCII = [chr(code) for code in range(128)]
_CATEGORIES = {
    "DIGIT": _ascii(filter(str.isdigit, _ASCII)) | _DIGIT,
    "SPACE": _ascii(filter(str.isspace, _ASCII)) | _SPACE,
    "WORD": _ascii(each for each in _ASCII if each.isalnum() or each == "_") | _WORD | _DIGIT,
}


class Part(NamedTuple):
    """A piece of a pattern: where it may begin and end, with the number of ways, and in how many ways it is empty."""

    first: Counter[int]
    last: Counter[int]
    empty: int


class Loop(NamedTuple):
    """An outermost loop: its places, how many characters it reads at most, and how often it can come round."""

    places: list[int]
    bound: int
    rounds: int


@dataclass(slots=True)
class Automaton:
    """Places by number: what each takes, how many ways lead from it where, and in which outermost loop it is.

    `widths` has the characters that the innermost loop around a place reads at most.
    """

    takes: list[int] = field(default_factory=list)
    follow: list[Counter[int]] = field(default_factory=list)
    loop: list[int | None] = field(default_factory=list)
    widths: list[int] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)
    inside: int | None = None
    width: int = 1

    def place(self, taken: int) -> Part:
        """Add a place that takes these characters; it begins and ends there."""
        if len(self.takes) >= _MOST_PLACES:
            raise TooLargeError
        self.takes.append(taken)
        self.follow.append(Counter())
        self.loop.append(self.inside)
        self.widths.append(self.width)
        if self.inside is not None:
            self.loops[self.inside].places.append(len(self.takes) - 1)
        here = Counter([len(self.takes) - 1])
        return Part(here, here, 0)

    def join(self, last: Counter[int], first: Counter[int], ways: int = 1) -> None:
        """Add ways from the end of one part to the beginning of another."""
        for place, out in last.items():
            for following, into in first.items():
                self.follow[place][following] = min(2, self.follow[place][following] + ways * out * into)


class TooLargeError(Exception):
    """The pattern has more places than can be looked at."""


def build(pattern: Pattern[str]) -> tuple[Automaton, Part]:
    """Build the automaton of a pattern.

    Args:
        pattern: any.

    Returns:
        The automaton, and where the pattern begins and ends in it.

    Raises:
        TooLargeError: it has more places than can be looked at.
    """
    automaton = Automaton()
    return automaton, _Builder(automaton).sequence(_PARSER.parse(pattern.pattern, pattern.flags), pattern.flags)


class _Builder:
    """Builds an automaton from what Python's own parser makes of a pattern."""

    def __init__(self, automaton: Automaton) -> None:
        self._automaton = automaton

    def sequence(self, items: Iterable[tuple[Any, Any]], flags: int) -> Part:
        whole = _EMPTY
        for code, value in items:
            whole = self._then(whole, self._item(str(code), value, flags))
        return whole

    def _then(self, one: Part, other: Part) -> Part:
        self._automaton.join(one.last, other.first)
        first = one.first + _times(other.first, one.empty)
        return Part(first, other.last + _times(one.last, other.empty), min(2, one.empty * other.empty))

    def _item(self, code: str, value: Any, flags: int) -> Part:
        if code in ("LITERAL", "NOT_LITERAL", "ANY", "IN", "RANGE"):
            return self._automaton.place(_taken(code, value, flags))
        if code == "BRANCH":
            return _either([self.sequence(each, flags) for each in value[1]])
        if code == "SUBPATTERN":
            return self.sequence(value[3], (flags | value[1]) & ~value[2])
        if code == "ATOMIC_GROUP":
            return self.sequence(value, flags)
        if code.endswith("_REPEAT"):
            least, most, body = value
            return self._repeat(least, most, body, flags)
        if code in ("ASSERT", "ASSERT_NOT"):
            return self._aside(value[1], flags)
        if code == "GROUPREF":
            return self._loop([(_CODES.ANY, None)], 0, LONGEST, LONGEST, flags)
        if code == "GROUPREF_EXISTS":
            return _either([self.sequence(each or (), flags) for each in value[1:]])
        # An anchor is a place that takes nothing: no text leads through it.
        return self._automaton.place(0) if code == "AT" and "BOUNDARY" not in str(value) else _EMPTY

    def _aside(self, items: Any, flags: int) -> Part:
        """A lookaround: entered from what comes before it, and left for nothing."""
        return Part(self.sequence(items, flags).first, Counter(), 1)

    def _repeat(self, least: int, most: Any, items: Any, flags: int) -> Part:
        most = min(int(most), LONGEST)
        width = items.getwidth()
        if most <= _FEW or (least == most and width[0] == width[1] and most * width[1] <= _FIXED):
            whole = _EMPTY
            for number in range(most):
                part = self.sequence(items, flags)
                whole = self._then(whole, part if number < least else part._replace(empty=min(2, part.empty + 1)))
            return whole
        return self._loop(items, least, most, min(width[1], LONGEST), flags)

    def _loop(self, items: Any, least: int, most: int, width: int, flags: int) -> Part:
        automaton = self._automaton
        outer, around = automaton.inside, automaton.width
        automaton.width = min(most * width, LONGEST)
        if outer is None:
            automaton.inside = len(automaton.loops)
            automaton.loops.append(Loop([], automaton.width, most))
        elif width > 1:
            known = automaton.loops[outer]
            automaton.loops[outer] = known._replace(rounds=min(known.rounds * most, LONGEST))
        body = self.sequence(items, flags)
        automaton.join(body.last, body.first)
        automaton.inside, automaton.width = outer, around
        return body if least else body._replace(empty=min(2, body.empty + 1))


_EMPTY = Part(Counter(), Counter(), 1)


def _times(ways: Counter[int], factor: int) -> Counter[int]:
    return Counter({place: min(2, count * factor) for place, count in ways.items()}) if factor else Counter()


def _either(parts: Sequence[Part]) -> Part:
    first, last = Counter[int](), Counter[int]()
    for part in parts:
        first, last = first + part.first, last + part.last
    return Part(first, last, min(2, sum(part.empty for part in parts)))


def _taken(code: str, value: Any, flags: int) -> int:
    """The characters that one place may take; too many rather than too few."""
    if code == "ANY":
        return LINE
    if code == "NOT_LITERAL":
        return ALL & ~(_one(value, flags) & ~_OTHERS)
    if code == "LITERAL":
        return _one(value, flags)
    negated = bool(value) and str(value[0][0]) == "NEGATE"
    taken = whole = 0
    for kind, each in value:
        members = _members(str(kind), each, flags)
        taken |= members
        # Of the others a single one does not stand for its kind.
        whole |= members if str(kind) == "CATEGORY" else members & ~_OTHERS
    return ALL & ~whole if negated else taken


def _members(kind: str, value: Any, flags: int) -> int:
    if kind == "LITERAL":
        return _one(value, flags)
    if kind == "RANGE":
        members = 0
        for code in range(value[0], min(value[1], 127) + 1):
            members |= _one(code, flags)
        return members | (_OTHERS if value[1] > 127 else 0)
    if kind == "CATEGORY":
        name = str(value).removeprefix("CATEGORY_")
        return _CATEGORIES[name] if name in _CATEGORIES else ALL & ~_CATEGORIES[name.removeprefix("NOT_")]
    return 0


def _one(code: int, flags: int) -> int:
    letter = chr(code)
    bits = 0
    for each in {letter, letter.lower(), letter.upper()} if flags & IGNORECASE else {letter}:
        bits |= _bit(each[0])
    return bits


def _bit(letter: str) -> int:
    if ord(letter) < 128:
        return 1 << ord(letter)
    if letter.isdigit():
        return _DIGIT
    return _WORD if letter.isalnum() else _SPACE if letter.isspace() else _REST
