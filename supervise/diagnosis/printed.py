"""A mapping as Python prints it, `{'a': 1}` or `Name(a=1)`, read without trusting it: what is no literal is UNKNOWN."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from supervise.diagnosis.effective import UNKNOWN

_OPEN, _CLOSE = "([{<", ")]}>"
_LONGEST = 512 * 1024
_BEGINS = re.compile(r"\s*(?:\{|[A-Za-z_][\w.]*\()")
_DICT_KEY = re.compile(r"\s*(['\"])([A-Za-z_]\w*)\1\s*:\s*")
_NAMED_KEY = re.compile(r"\s*([A-Za-z_]\w*)\s*=\s*")


def mapping(text: str) -> dict[str, Any] | None:
    """Read a mapping.

    Args:
        text: begins with it; what follows it is not looked at. It may have been cut off: the last value is lost then.

    Returns:
        What it maps; None if there is none. Keys that are no names are left out.
    """
    begins = _BEGINS.match(text)
    if begins is None:
        return None
    found: dict[str, Any] = {}
    for item in _items(text[begins.end() : _LONGEST]):
        key = _DICT_KEY.match(item) or _NAMED_KEY.match(item)
        if key is not None:
            found[key[key.lastindex or 1]] = _value(item[key.end() :])
    return found


def _value(text: str) -> object:
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return UNKNOWN


def _items(text: str) -> Iterator[str]:
    """What commas separate, up to the bracket that closes the mapping."""
    depth, start, quote, at = 0, 0, "", 0
    while at < len(text):
        letter = text[at]
        if quote:
            if letter == "\\":
                at += 1
            elif letter == quote:
                quote = ""
        elif letter in "'\"":
            quote = letter
        elif letter in _OPEN:
            depth += 1
        elif letter in _CLOSE:
            if depth == 0:
                yield text[start:at]
                return
            depth -= 1
        elif letter == "," and depth == 0:
            yield text[start:at]
            start = at + 1
        at += 1
