"""Cheap substrings that every match of a pattern must contain: a plain line is passed over without a regex."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

_MIN = 3
_TOKEN = re.compile(r"\\.|\{[\d,]*\}|.", re.DOTALL)
_ESCAPED_TEXT = re.compile(r"[^\w]")


@lru_cache(maxsize=1024)
def required_literals(pattern: re.Pattern[str]) -> tuple[str, ...] | None:
    """Find substrings of which every match holds at least one: the longest seen in each alternative.

    It is careful rather than clever: only text outside of groups and classes counts, and none at all in a pattern
    that ignores case.

    Args:
        pattern: any compiled pattern.

    Returns:
        The substrings, one for each alternative; None if one of them has none of three characters or more.
    """
    if pattern.flags & (re.IGNORECASE | re.VERBOSE):
        return None
    branches = _branches(_outside_groups(pattern.pattern))
    longest = tuple(max(_runs(branch), key=len, default="") for branch in branches)
    return longest if all(len(each) >= _MIN for each in longest) else None


def finder(pattern: re.Pattern[str]) -> Callable[[str], re.Match[str] | None]:
    """Make a search for a pattern that costs no more than `in` where the text cannot match.

    Args:
        pattern: what to search.

    Returns:
        A function like `pattern.search`.
    """
    literals = required_literals(pattern)
    search = pattern.search
    if literals is None:
        return search
    if len(literals) == 1:
        literal = literals[0]
        return lambda text: search(text) if literal in text else None

    def find(text: str) -> re.Match[str] | None:
        for literal in literals:
            if literal in text:
                return search(text)
        return None

    return find


def _branches(source: str) -> list[list[str]]:
    """The alternatives, as tokens: an escape, a counted repeat, or one character."""
    branches: list[list[str]] = [[]]
    for token in _TOKEN.findall(source):
        if token == "|":
            branches.append([])
        else:
            branches[-1].append(token)
    return branches


_GAP = "\0"


def _outside_groups(source: str) -> str:
    """The pattern with every group, class and counted repeat replaced by a gap; escapes are kept as two characters."""
    kept: list[str] = []
    depth, index = 0, 0
    while index < len(source):
        char = source[index]
        step = 1
        if char == "\\":
            step = 2
            if not depth:
                kept.append(source[index : index + 2])
        elif char == "[":
            step = _class_length(source, index)
            if not depth:
                kept.append(_GAP)
        elif char in "()":
            depth += 1 if char == "(" else -1
            if not depth:
                kept.append(_GAP)
        elif not depth:
            kept.append(char)
        index += step
    return "".join(kept)


def _class_length(source: str, start: int) -> int:
    index = start + 2 if source[start + 1 : start + 2] == "^" else start + 1
    index += 1  # a ] right at the beginning is an ordinary character
    while index < len(source) and source[index] != "]":
        index += 2 if source[index] == "\\" else 1
    return index - start + 1


def _runs(tokens: list[str]) -> list[str]:
    """Literal stretches. What a quantifier follows may be absent, so it ends a stretch and is no part of it."""
    runs: list[str] = [""]
    for token in tokens:
        if token in "?*" or token.startswith("{"):
            runs[-1] = runs[-1][:-1]
            runs.append("")
        elif len(token) == 2 and _ESCAPED_TEXT.match(token[1]):
            runs[-1] += token[1]
        elif len(token) == 2 or token in "+.^$\0":
            runs.append("")
        else:
            runs[-1] += token
    return runs
