"""What a stream takes whose encoding is not UTF-8: signs that look alike where there are any, never an error."""

from __future__ import annotations

import codecs
import os
from typing import TextIO

_UTF8 = "utf-8"
# One sign for one, so that what stands below each other stays there.
_ALIKE = {"━": "=", "─": "-", "…": "~", "·": "|", "→": ">", "•": "*", "’": "'", "“": '"', "”": '"', "–": "-"}


def encoding_of(stream: TextIO) -> str:
    """The encoding of whoever reads; UTF-8 where nobody knows.

    Python writes UTF-8 in the C locale (PEP 538, PEP 540), and sets LC_CTYPE then; who asked for that locale on
    a terminal by name has a reason to.
    """
    try:
        encoding = codecs.lookup(getattr(stream, "encoding", None) or _UTF8).name
    except LookupError:
        return _UTF8
    return "ascii" if encoding == _UTF8 and stream.isatty() and _asks_for_c() else encoding


def _asks_for_c() -> bool:
    env = os.environ
    coerced = env.get("LC_CTYPE", "") in ("", "C", "POSIX", "C.UTF-8", "C.utf8", "UTF-8")
    return (env.get("LC_ALL") or (env.get("LANG", "") if coerced else "")) in ("C", "POSIX")


def encoded(text: str, encoding: str) -> bytes:
    """A line: what cannot be written is shown as a sign that looks alike, or by its number."""
    if encoding != _UTF8:
        text = "".join(c if _fits(c, encoding) else _ALIKE.get(c, c) for c in text)
    return text.encode(encoding, "backslashreplace")


def fitting(line: str, encoding: str) -> str:
    """A line of the view, as wide as before, of which everything can be written."""
    if encoding == _UTF8 or line.isascii():
        return line
    from rich.cells import cell_len

    return "".join(c if _fits(c, encoding) else _ALIKE.get(c, "?" * cell_len(c)) for c in line)


def _fits(character: str, encoding: str) -> bool:
    try:
        character.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True
