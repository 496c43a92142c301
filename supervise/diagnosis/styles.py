"""The ways in which a Python traceback is drawn, and how each reads as a plain one."""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

from supervise.diagnosis.frames import is_frame

OPENER = "Traceback (most recent call last)"
"""What every traceback with a head has in its first line."""

LINKS = ("The above exception was the direct cause", "During handling of the above exception")
"""How the line begins that links one block of a chain to the next."""


class Style(Enum):
    """How a traceback is drawn.

    PLAIN as Python does. GROUP is an exception group, behind margins. BOX is rich's. NOTEBOOK is IPython's. HEADLESS is
    plain without its first line: a log that was cut there, or a syntax error, which has none.
    """

    PLAIN = "plain"
    GROUP = "group"
    BOX = "box"
    NOTEBOOK = "notebook"
    HEADLESS = "headless"


class Opening(NamedTuple):
    """A first line: the style, the name of the exception where it is told there, and whether it is a headline too."""

    style: Style
    name: str | None = None
    headed: bool = False


_GROUP = re.compile(r"\s*\+ Exception Group " + re.escape(OPENER))
# A progress bar does not end its line: what comes next stands right after it.
_GLUED = re.compile(r".*[\])%|█#…]" + re.escape(OPENER) + ":$")
_NOTEBOOK = re.compile(r"(?:\w+\.)*(?P<name>\w+) {2,}" + re.escape(OPENER) + "$")
# `  | text`, or a rule between two exceptions of a group: `  +-+---------------- 1 ----------------`.
_MARGIN = re.compile(r"\s*(?:\| ?|\+-(?:\+-)?-+(?: [\d.]+ -+)?$|\+ )")
_BORDERS = "│╭╰┌└|+"
_NOTEBOOK_FRAME = re.compile(
    r"(?:File |(?:Cell )?In ?\[|<ipython-input|[~/.\w]\S*\.pyx? in |-+> ?\d|-{20,}$|\(\.\.\.\)$)"
)
# What `traceback` prints for the exception itself: a dotted name, then a colon and the message, or nothing. Ray puts
# the class of the inner exception after its own.
_EXCEPTION = re.compile(r"(?P<path>(?:[A-Za-z_]\w*\.)*)(?P<name>[A-Za-z_]\w*)(?:\((?:\w|\.)+\))?(?::(?: |$)|$)")
_TELLING = re.compile(
    r"\w*(?:Error|Exception|Exit|Interrupt|Failed|Failure|Timeout|Expired|Died|Fault|Quit|ExceptionGroup)$"
)


def opening(text: str) -> Opening | None:
    """Read a line that may be the first one of a traceback.

    Args:
        text: a line's text that holds `OPENER`.

    Returns:
        How it is drawn; None if no traceback begins here, as in a text that merely quotes one.
    """
    if text.startswith(OPENER + ":"):
        return Opening(Style.PLAIN)
    if text.endswith(f": {OPENER}:") and not text[0].isspace():
        return Opening(Style.PLAIN, headed=True)
    if _GLUED.match(text):
        return Opening(Style.PLAIN)
    if _GROUP.match(text):
        return Opening(Style.GROUP)
    if text[0] in _BORDERS and f" {OPENER} " in text:
        return Opening(Style.BOX)
    if named := _NOTEBOOK.match(text):
        return Opening(Style.NOTEBOOK, named["name"])
    return None


def opens_headless(text: str) -> bool:
    """Whether a line is a frame, as the first one that is left of a traceback may be."""
    return 'File "' in text and text[0].isspace() and is_frame(text)


def is_flat_frame(text: str) -> bool:
    """Whether a line is a frame that has lost its indentation."""
    return text.startswith('File "') and is_frame(text)


def plain(style: Style, name: str | None, text: str) -> str | None:
    """Read a line after the first one as if its traceback were plain.

    Args:
        style: how the traceback is drawn.
        name: the exception that a notebook's first line told.
        text: the line's text.

    Returns:
        Indented text for what belongs to the frames, other text for what may name the exception; None for what cannot
        belong to the traceback.
    """
    match style:
        case Style.GROUP:
            margin = _MARGIN.match(text)
            return text[margin.end() :] if margin else None
        case Style.BOX:
            return f"  {text}" if text[:1] in _BORDERS else text
        case Style.NOTEBOOK:
            return _of_notebook(name or "", text)
        case _:
            return text


def _of_notebook(name: str, text: str) -> str | None:
    found = _EXCEPTION.match(text)
    if found and found["name"] == name:
        return text
    return f"  {text}" if text[:1].isspace() or _NOTEBOOK_FRAME.match(text) else None


def names_exception(text: str, *, surely: bool = False) -> bool:
    """Whether a line reads like the one that names an exception.

    Args:
        text: a line's text.
        surely: whether there is no frame before it to tell so: then the name itself must look like an exception's.
    """
    found = _EXCEPTION.match(text)
    if found is None:
        return False
    return bool(_TELLING.match(found["name"])) if surely else bool(found["path"]) or found["name"][0].isupper()
