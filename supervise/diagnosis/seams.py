"""Finds where in a log one can begin to read without beginning in the middle of a report."""

from __future__ import annotations

from supervise.diagnosis.styles import LINKS, OPENER

_OPENER = OPENER.encode()
_FRAME = b'File "'
_LINKS = tuple(link.encode() for link in LINKS)
# A frame's line of code and the exception: what comes after them may head the next report.
_AFTER_FRAME = 3
# A link and the empty lines around it.
_LINK_LINES = 3


def clean_start(data: bytes, start: int, end: int) -> int:
    """Pass over what is left of a report that began before.

    Who reads the frames of a failed request and not the headline that says so takes it for a failure of the server.

    Args:
        data: lines.
        start: the beginning of a line.
        end: the beginning of another one, or the end of the data.

    Returns:
        The beginning of a line between them: `start` if no frame comes before the first headline and traceback.
    """
    opened = _first_of_chain(data, start, end)
    frame = data.rfind(_FRAME, start, opened)
    if frame < 0:
        return start
    for _ in range(_AFTER_FRAME):
        frame = data.find(b"\n", frame, opened) + 1
        if not frame:
            return data.rfind(b"\n", start, opened) + 1 or start
    return frame


def _first_of_chain(data: bytes, start: int, end: int) -> int:
    """Where the first traceback begins that continues none; `end` without one."""
    at = start
    while (at := data.find(_OPENER, at, end)) >= 0:
        line = before = data.rfind(b"\n", start, at) + 1 or start
        for _ in range(_LINK_LINES):
            before = data.rfind(b"\n", start, max(start, before - 1)) + 1 or start
        linked = any(data.find(link, before, line) >= 0 for link in _LINKS)
        if not linked and data.find(b"|", line, at) < 0:
            return at
        at += len(_OPENER)
    return end
