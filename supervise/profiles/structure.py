"""Judges a pattern by its structure: how much effort it can take on the worst text, without searching any.

A matcher that backtracks takes exponential effort if a loop can read the same text in two ways; and text as often as
there are loops one after the other that can share it (Weber and Seidl, 1991, "On the degree of ambiguity of finite
automata").
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from functools import lru_cache
from re import Pattern
from typing import Any

from supervise.profiles.automaton import ALL, LINE, LONGEST, Automaton, Loop, Part, TooLargeError, build

MOST = 2**24
"""Steps that a search may take at most: some hundredths of a second."""

_MOST_TRIPLES = 200_000


@lru_cache(maxsize=4096)
def trouble(pattern: Pattern[str]) -> str | None:
    """Say what makes a pattern unsafe, if anything does.

    Args:
        pattern: what is searched in text of up to `LONGEST` characters.

    Returns:
        A sentence that begins in lower case; None if no text makes a search take more than `MOST` steps. It errs on the
        safe side: what follows a lookaround, and how long a group was that is referred to, is not considered.
    """
    try:
        automaton, whole = build(pattern)
    except TooLargeError:
        return "the pattern is too large"
    if any(_is_ambiguous(automaton, loop) for loop in automaton.loops):
        return "a repeat can read the same text in several ways, which takes exponential effort"
    if (steps := _steps(automaton, whole)) > MOST:
        return f"repeats one after the other can share the same text, {steps:.0e} steps in a long line"
    return None


def _is_ambiguous(automaton: Automaton, loop: Loop) -> bool:
    """Whether two different ways lead around a loop on the same text."""
    places = frozenset(loop.places)
    within = {
        place: {each: ways for each, ways in automaton.follow[place].items() if each in places} for place in places
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


def _pairs(automaton: Automaton, within: dict[int, dict[int, int]], pair: tuple[int, int]) -> Iterator[tuple[int, int]]:
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


def _steps(automaton: Automaton, whole: Part) -> float:
    """The most steps that loops one after the other multiply to.

    Text that each of several loops can read, and so can what stands between them, may be divided among them in as many
    ways as the text repeats. A loop after which the pattern may be over is never entered anew.
    """
    loops = [_scan(automaton, whole)]
    loops += [each for each in automaton.loops if each.places and not _ends(automaton, whole, each)]
    most: dict[int, float] = {}
    for number in reversed(range(len(loops))):
        one = loops[number]
        later = (
            ways * most[after]
            for after in range(number + 1, len(loops))
            if (ways := _ways(automaton, one, loops[after]))
        )
        most[number] = max(float(one.bound), *later, 1.0)
    return max(most.values(), default=1.0)


def _ends(automaton: Automaton, whole: Part, loop: Loop) -> bool:
    """Whether the pattern may be over after each character of a loop."""
    return all(
        place in whole.last
        or (
            automaton.takes[place] & LINE == LINE
            and any(each in whole.last and not automaton.takes[each] for each in automaton.follow[place])
        )
        for place in loop.places
    )


def _scan(automaton: Automaton, whole: Part) -> Loop:
    """The loop that a search is: a match is tried at each character, unless an anchor says where."""
    place = next(iter(automaton.place(ALL).first))
    automaton.follow[place] = whole.first + Counter([place])
    automaton.widths[place] = LONGEST
    return Loop([place], LONGEST, LONGEST)


def _ways(automaton: Automaton, one: Loop, other: Loop) -> float:
    """In how many ways two loops can share a text, 0 if they cannot.

    That is how often the shortest text fits in that both read on and on, and that leads from one to the other.
    """
    ways = 0.0
    for place in one.places:
        for target in other.places:
            if length := _between(automaton, place, target):
                ways = max(ways, automaton.widths[place] / length)
            elif len(one.places) + len(other.places) > 2 and (length := _three(automaton, place, target)):
                ways = max(ways, min(one.bound / length, one.rounds))
    return max(1.0, ways) if ways else 0.0


def _between(automaton: Automaton, place: int, target: int) -> int:
    taken = automaton.takes[place] & automaton.takes[target]
    if not (taken and automaton.follow[place][place] and automaton.follow[target][target]):
        return 0
    return _distance(place, target, lambda at: (each for each in automaton.follow[at] if automaton.takes[each] & taken))


def _three(automaton: Automaton, place: int, target: int) -> int:
    """The same where more than one place comes round: what is read there and on the way is followed together."""

    def following(at: tuple[int, int, int]) -> Iterator[tuple[int, int, int]]:
        for first in automaton.follow[at[0]]:
            if automaton.loop[first] != automaton.loop[place]:
                continue
            for middle in automaton.follow[at[1]]:
                if not (taken := automaton.takes[first] & automaton.takes[middle]):
                    continue
                for last in automaton.follow[at[2]]:
                    if automaton.loop[last] == automaton.loop[target] and taken & automaton.takes[last]:
                        yield first, middle, last

    return _distance((place, place, target), (place, target, target), following)


def _distance(start: Any, goal: Any, following: Any) -> int:
    """Steps on the shortest way, 0 if there is none; at least one is taken."""
    seen = {start}
    left = deque([(start, 0)])
    while left and len(seen) < _MOST_TRIPLES:
        at, steps = left.popleft()
        for each in following(at):
            if each == goal:
                return steps + 1
            if each not in seen:
                seen.add(each)
                left.append((each, steps + 1))
    return 1 if left else 0
