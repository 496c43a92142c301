"""Judges a pattern by its structure: how much effort it can take on the worst text, without searching any.

A pattern is seen as an automaton whose states are the places in it that take one character (Glushkov, 1961). A matcher
that backtracks takes exponential effort if a loop can read the same text in two ways, and as many times n as there are
loops one after the other that can share it (Weber and Seidl, 1991, "On the degree of ambiguity of finite automata").
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from re import IGNORECASE, Pattern
from typing import Any, NamedTuple

LONGEST = 16_384
"""Characters of the longest text: longer lines are cut before they are matched."""

MOST = 2**24
"""Steps that a search may take at most: some hundredths of a second."""

_PARSER: Any = import_module("re._parser")
_CODES: Any = import_module("re._constants")

# Few repetitions are written out, more are a loop.
_FEW = 4
_FIXED = 64
_MOST_PLACES = 3000
_MOST_TRIPLES = 200_000

# Characters are bits: ASCII each its own, all others four kinds.
_WORD, _SPACE, _DIGIT, _REST = (1 << bit for bit in range(128, 132))
_OTHERS = _WORD | _SPACE | _DIGIT | _REST
_ALL = (1 << 132) - 1
_LINE = _ALL & ~(1 << 10)


def _ascii(wanted: Iterable[str]) -> int:
    return sum(1 << ord(each) for each in wanted)


_ASCII = [chr(code) for code in range(128)]
_CATEGORIES = {
    "DIGIT": _ascii(filter(str.isdigit, _ASCII)) | _DIGIT,
    "SPACE": _ascii(filter(str.isspace, _ASCII)) | _SPACE,
    "WORD": _ascii(each for each in _ASCII if each.isalnum() or each == "_") | _WORD | _DIGIT,
}


class _Part(NamedTuple):
    """A piece of a pattern: where it may begin and end, with the number of ways, and in how many ways it is empty."""

    first: Counter[int]
    last: Counter[int]
    empty: int


@dataclass(slots=True)
class _Automaton:
    """Places by number: what each takes, how many ways lead from it where, and in which outermost loop it is."""

    takes: list[int] = field(default_factory=list)
    follow: list[Counter[int]] = field(default_factory=list)
    loop: list[int | None] = field(default_factory=list)
    bounds: list[int] = field(default_factory=list)
    inside: int | None = None

    def place(self, taken: int) -> _Part:
        if len(self.takes) >= _MOST_PLACES:
            raise _TooLargeError
        self.takes.append(taken)
        self.follow.append(Counter())
        self.loop.append(self.inside)
        here = Counter([len(self.takes) - 1])
        return _Part(here, here, 0)

    def join(self, last: Counter[int], first: Counter[int], ways: int = 1) -> None:
        for place, out in last.items():
            for following, into in first.items():
                self.follow[place][following] = min(2, self.follow[place][following] + ways * out * into)


class _TooLargeError(Exception):
    """The pattern has more places than can be looked at."""


def trouble(pattern: Pattern[str]) -> str | None:
    """Say what makes a pattern unsafe, if anything does.

    Args:
        pattern: what is searched in text of up to `LONGEST` characters.

    Returns:
        A sentence that begins in lower case; None if no text makes a search take more than `MOST` steps. It errs on the
        safe side: what follows a lookaround, and how long a group was that is referred to, is not considered.
    """
    automaton = _Automaton()
    try:
        whole = _Builder(automaton).sequence(_PARSER.parse(pattern.pattern, pattern.flags), pattern.flags)
    except _TooLargeError:
        return "the pattern is too large"
    if any(_is_ambiguous(automaton, loop) for loop in range(len(automaton.bounds))):
        return "a repeat can read the same text in several ways: exponential effort"
    if (steps := _steps(automaton, whole)) > MOST:
        return f"repeats one after the other can share the same text: {steps:.0e} steps in a long line"
    return None


# --- from the tree of the pattern to the automaton --------------------------------------------------------------------


class _Builder:
    """Builds an automaton from what Python's own parser makes of a pattern."""

    def __init__(self, automaton: _Automaton) -> None:
        self._automaton = automaton

    def sequence(self, items: Iterable[tuple[Any, Any]], flags: int) -> _Part:
        whole = _EMPTY
        for code, value in items:
            whole = self._then(whole, self._item(str(code), value, flags))
        return whole

    def _then(self, one: _Part, other: _Part) -> _Part:
        self._automaton.join(one.last, other.first)
        first = one.first + _times(other.first, one.empty)
        return _Part(first, other.last + _times(one.last, other.empty), min(2, one.empty * other.empty))

    def _item(self, code: str, value: Any, flags: int) -> _Part:
        if code in ("LITERAL", "NOT_LITERAL", "ANY", "IN", "RANGE"):
            return self._automaton.place(_taken(code, value, flags))
        if code == "BRANCH":
            return _either([self.sequence(each, flags) for each in value[1]])
        if code == "SUBPATTERN":
            return self.sequence(value[3], (flags | value[1]) & ~value[2])
        if code == "ATOMIC_GROUP":
            return self.sequence(value, flags)
        if code.endswith("_REPEAT"):
            return self._repeat(*value, flags)
        if code in ("ASSERT", "ASSERT_NOT"):
            return self._aside(value[1], flags)
        if code == "GROUPREF":
            return self._loop([(_CODES.ANY, None)], 0, LONGEST, flags)
        if code == "GROUPREF_EXISTS":
            return _either([self.sequence(each or (), flags) for each in value[1:]])
        return self._automaton.place(0) if code == "AT" and "END" in str(value) else _EMPTY

    def _aside(self, items: Any, flags: int) -> _Part:
        """A lookaround: entered from what comes before it, and left for nothing."""
        return _Part(self.sequence(items, flags).first, Counter(), 1)

    def _repeat(self, least: int, most: Any, items: Any, flags: int) -> _Part:
        most = min(int(most), LONGEST)
        width = items.getwidth()
        if most <= _FEW or (least == most and width[0] == width[1] and most * width[1] <= _FIXED):
            whole = _EMPTY
            for number in range(most):
                part = self.sequence(items, flags)
                whole = self._then(whole, part if number < least else part._replace(empty=min(2, part.empty + 1)))
            return whole
        return self._loop(items, least, most * min(width[1], LONGEST), flags)

    def _loop(self, items: Any, least: int, width: int, flags: int) -> _Part:
        automaton = self._automaton
        outermost = automaton.inside is None
        if outermost:
            automaton.inside = len(automaton.bounds)
            automaton.bounds.append(min(width, LONGEST))
        body = self.sequence(items, flags)
        automaton.join(body.last, body.first)
        if outermost:
            automaton.inside = None
        return body if least else body._replace(empty=min(2, body.empty + 1))


_EMPTY = _Part(Counter(), Counter(), 1)


def _times(ways: Counter[int], factor: int) -> Counter[int]:
    return Counter({place: min(2, count * factor) for place, count in ways.items()}) if factor else Counter()


def _either(parts: Sequence[_Part]) -> _Part:
    first, last = Counter[int](), Counter[int]()
    for part in parts:
        first, last = first + part.first, last + part.last
    return _Part(first, last, min(2, sum(part.empty for part in parts)))


def _taken(code: str, value: Any, flags: int) -> int:
    """The characters that one place may take; too many rather than too few."""
    if code == "ANY":
        return _LINE
    if code == "NOT_LITERAL":
        return _ALL & ~(_one(value, flags) & ~_OTHERS)
    if code == "LITERAL":
        return _one(value, flags)
    negated = bool(value) and str(value[0][0]) == "NEGATE"
    taken = whole = 0
    for kind, each in value:
        members = _members(str(kind), each, flags)
        taken |= members
        # Of the others a single one does not stand for its kind.
        whole |= members if str(kind) == "CATEGORY" else members & ~_OTHERS
    return _ALL & ~whole if negated else taken


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
        return _CATEGORIES[name] if name in _CATEGORIES else _ALL & ~_CATEGORIES[name.removeprefix("NOT_")]
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


# --- what the automaton can do ----------------------------------------------------------------------------------------


def _is_ambiguous(automaton: _Automaton, loop: int) -> bool:
    """Whether two different ways lead around a loop on the same text."""
    places = [place for place, its in enumerate(automaton.loop) if its == loop]
    within = {
        place: {each: ways for each, ways in automaton.follow[place].items() if automaton.loop[each] == loop}
        for place in places
    }
    if any(ways > 1 for following in within.values() for ways in following.values()):
        return True
    if len(places) == 1:
        return False
    forward: dict[tuple[int, int], set[tuple[int, int]]] = {}
    reached = _reach(
        [(place, place) for place in places],
        lambda pair: forward.setdefault(pair, set(_pairs(automaton, within, pair))),
    )
    backward: dict[tuple[int, int], set[tuple[int, int]]] = {}
    for pair, following in forward.items():
        for each in following:
            backward.setdefault(each, set()).add(pair)
    returning = _reach([(place, place) for place in places], lambda pair: backward.get(pair, ()))
    return any(one != other for one, other in reached & returning)


def _pairs(automaton: _Automaton, within: dict[int, dict[int, int]], pair: tuple[int, int]) -> Iterator[tuple[int, int]]:
    for one in within[pair[0]]:
        for other in within[pair[1]]:
            if automaton.takes[one] & automaton.takes[other]:
                yield one, other


def _reach(starts: Iterable[Any], following: Any) -> set[Any]:
    seen = set(starts)
    left = deque(seen)
    while left:
        for each in following(left.popleft()):
            if each not in seen:
                seen.add(each)
                left.append(each)
    return seen


class _Loop(NamedTuple):
    """A loop: its places, and how many characters it reads at most."""

    places: tuple[int, ...]
    bound: int


def _steps(automaton: _Automaton, whole: _Part) -> float:
    """The most steps that loops one after the other multiply to.

    Text that each of several loops can read, and so can what stands between them, may be divided among them in as many
    ways as the text repeats. A loop after which the pattern may be over is never entered anew.
    """
    loops = [
        _Loop(tuple(place for place, its in enumerate(automaton.loop) if its == number), bound)
        for number, bound in enumerate(automaton.bounds)
    ]
    loops = [each for each in loops if each.places and not _ends(automaton, whole, each)]
    scanned = _scan(automaton, whole)
    loops = [scanned, *loops] if scanned is not None else loops
    most: dict[int, float] = {}
    for number in reversed(range(len(loops))):
        one = loops[number]
        later = (
            max(1.0, one.bound / shared) * most[after]
            for after in range(number + 1, len(loops))
            if (shared := _shared(automaton, one, loops[after]))
        )
        most[number] = max(float(one.bound), *later, 1.0)
    return max(most.values(), default=1.0)
