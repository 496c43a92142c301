"""Whether a completion is one, or what a broken kernel, a wrong scale or damaged weights make of it. Pure.

Text of a small or untrained model may be nonsense and is none of this: only what no working model says is told.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from itertools import groupby

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
# More than one in so many characters.
_FEW = 20
# What is shorter says nothing: `ha ha` is an answer.
_LEAST_CHARS, _LEAST_UNITS, _LEAST_WORDS = 8, 4, 8
_LEAST_FOR_TWO = 32


def garbage(text: str) -> str | None:
    """Say what is wrong with a completion.

    Args:
        text: of the completion, without the prompt.

    Returns:
        A phrase, None if nothing is. The thresholds are in docs/try.md.
    """
    bare = text.strip()
    # A character that takes several tokens may have been cut at the last one.
    whole = bare.rstrip(REPLACEMENT)
    if not bare:
        return "it is empty" if not text else "it is nothing but blanks"
    if (count := bare.count(REPLACEMENT)) and (not whole or whole.count(REPLACEMENT) * _FEW > len(whole)):
        return f"{count} of its {len(bare)} characters are no valid UTF-8"
    if (count := sum(map(_unprintable, whole))) * _FEW > len(whole):
        return f"{count} of its {len(whole)} characters cannot be printed"
    return _repeated(whole)


def _unprintable(char: str) -> bool:
    return unicodedata.category(char) in ("Cc", "Cn", "Co", "Cs") and char not in "\n\r\t"


def _repeated(text: str) -> str | None:
    if len(text) >= _LEAST_CHARS and (unit := _period(text)) * _LEAST_UNITS <= len(text):
        return f"it is {text[:unit].strip()[:20]!r} again and again"
    words = text.split()
    run, word = max(((len(list(same)), word) for word, same in groupby(words)), default=(0, ""))
    if run >= _LEAST_WORDS and run * 2 > len(words):
        return f"it has {word[:20]!r} {run} times in a row"
    chars = Counter(char for char in text if not char.isspace())
    if chars.total() >= _LEAST_FOR_TWO and len(chars) <= 2:
        return f"it has no characters but {' and '.join(repr(char) for char in chars)}"
    return None


def _period(text: str) -> int:
    """Length of the shortest beginning of which the whole text is a repetition (Knuth, Morris, Pratt)."""
    fits = [0] * len(text)
    for end in range(1, len(text)):
        length = fits[end - 1]
        while length and text[end] != text[length]:
            length = fits[length - 1]
        fits[end] = length + (text[end] == text[length])
    return len(text) - fits[-1]
