"""How words are written so that systemd reads exactly them (systemd.service(5), COMMAND LINES). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

WIDTH = 118
"""How long a line may become where it can be continued."""

# Not `#` and `;`: at the beginning of a continued line they would make a comment of it.
_PLAIN = re.compile(r"[A-Za-z0-9_@%$+=:,./^~-]+")
_NAMED = {"\\": r"\\", '"': r"\"", "\n": r"\n", "\t": r"\t", "\r": r"\r"}
_REFERENCE = re.compile(r"(?:[A-Za-z0-9_-]+=)?\$\{[A-Za-z_][A-Za-z0-9_]*\}")


class UnwritableError(Exception):
    """A unit file has no way to say this; the text says what, and what to do."""


def word(text: str, *, expanded: bool = True) -> str:
    """One word of a command line (systemd.service(5), COMMAND LINES) or of Environment=.

    Args:
        text: any text.
        expanded: whether variables are put in where it stands, so that a dollar must be doubled.

    Returns:
        What systemd reads as exactly this word.

    Raises:
        UnwritableError: it is no UTF-8, or has a zero byte.
    """
    _check(text)
    text = text.replace("%", "%%")
    if expanded:
        text = text.replace("$", "$$")
    if _PLAIN.fullmatch(text):
        return text
    return '"' + "".join(map(_escaped, text)) + '"'


def path(text: str) -> str:
    """A path as a whole setting: nothing is unquoted there, but specifiers are put in.

    Raises:
        UnwritableError: it has a character that such a setting cannot have.
    """
    _check(text)
    if text != text.strip() or text.endswith("\\") or any(ord(c) < 32 or ord(c) == 127 for c in text):
        raise UnwritableError(f"{text!r}: systemd cannot be told of a directory with such a name; rename it")
    return text.replace("%", "%%")


def is_reference(text: str) -> bool:
    """Whether a word is `${NAME}` or `name=${NAME}`: systemd puts the variable in, so that it is written as it is."""
    return _REFERENCE.fullmatch(text) is not None


def _check(text: str) -> None:
    if "\0" in text:
        raise UnwritableError(f"{text!r}: a zero byte cannot be passed on to a program")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UnwritableError(f"{text!r}: a unit file is UTF-8, and this is not") from None


def _escaped(char: str) -> str:
    if char in _NAMED:
        return _NAMED[char]
    return f"\\x{ord(char):02x}" if ord(char) < 32 or ord(char) == 127 else char


def line(words: Iterable[str]) -> str:
    """Words in lines of a readable length, each but the last continued."""
    lines, current = [], ""
    for each in words:
        if current and len(current) + 1 + len(each) > WIDTH:
            lines.append(current)
            current = "    " + each
        else:
            current = f"{current} {each}" if current else each
    return " \\\n".join([*lines, current])
