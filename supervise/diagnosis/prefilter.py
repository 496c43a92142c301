"""Cheap substrings that every match of a pattern must contain: a plain line is passed over without a regex."""

from __future__ import annotations

import re
from collections.abc import Callable

_MIN = 3
_ESCAPED_TEXT = re.compile(r"[^\w]")


def required_literal(pattern: re.Pattern[str]) -> str | None:
    """Find a substring of every match, the longest one seen.

    It is careful rather than clever: only text outside of groups, classes and alternatives counts, and none at all
    in a pattern that ignores case.

    Args:
        pattern: any compiled pattern.

    Returns:
        The substring; None if there is none of three characters or more.
    """
    source = pattern.pattern
    if pattern.flags & (re.IGNORECASE | re.VERBOSE) or "|" in _outside_groups(source):
        return None
    runs = _runs(_outside_groups(source))
    longest = max(runs, key=len, default="")
    return longest if len(longest) >= _MIN else None


def finder(pattern: re.Pattern[str]) -> Callable[[str], re.Match[str] | None]:
    """Make a search for a pattern that costs no more than `in` where the text cannot match.

    Args:
        pattern: what to search.

    Returns:
        A function like `pattern.search`.
    """
    literal = required_literal(pattern)
    search = pattern.search
    if literal is None:
        return search
    return lambda text: search(text) if literal in text else None


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


def _runs(source: str) -> list[str]:
    """Literal stretches. What a quantifier follows may be absent, so it ends a stretch and is no part of it."""
    runs: list[str] = [""]
    for token in re.findall(r"\\.|\{[\d,]*\}|.", source, re.DOTALL):
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
