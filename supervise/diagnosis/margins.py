"""Takes off what a whole log was indented by: a block of code in a ticket, an item of a list, a text in YAML."""

from __future__ import annotations

import re
from dataclasses import replace

from supervise.diagnosis.prefixes import parse
from supervise.model.diagnosis import Line

_MARGIN = re.compile(r"[ \t]{1,16}(?=\S)")
# What begins a line of its own: nobody but who quotes a log indents it.
_OPENING = re.compile(
    r"Traceback \(most recent call last\)|usage: \S|╭─+ Traceback|-{60,}\Z|(?:\w+\.)*[A-Z]\w*(?:Error|Exception): \S|"
    r"Fatal Python error: |(?:ggml|llama|gguf|common|print|load)_\w+: |build: \d|docker: |[\w./-]+: line \d+: "
)
# After a line that a logger or a traceback began at the very beginning of a line, indented ones are what they say, or
# what somebody sent.
_REACH = 2000


class Margins:
    """Reads lines in order and gives them back without the margin of the block that they stand in.

    A margin begins at an indented line that can only be the beginning of one, in a text that has shown no log without
    a margin before; it ends with the first line that is not indented as far.
    """

    def __init__(self) -> None:
        self._margin = ""
        self._plain: int | None = None

    def feed(self, line: Line) -> Line:
        """Take the next line.

        Args:
            line: any line, in the order of the log.

        Returns:
            It, or it as it reads without its margin; its `raw` is still the whole.
        """
        raw = line.raw
        if self._margin and raw.startswith(self._margin):
            return self._without(line)
        if not raw or raw.isspace():
            return line
        self._margin = ""
        found = _MARGIN.match(raw)
        if found is None:
            if _is_log(line):
                self._plain = line.number
            return line
        if self._plain is not None and line.number - self._plain <= _REACH:
            return line
        self._margin = found[0]
        inside = self._without(line)
        if _is_log(inside):
            return inside
        self._margin = ""
        return line

    def _without(self, line: Line) -> Line:
        return replace(parse(line.raw[len(self._margin) :], line.number), raw=line.raw)


def _is_log(line: Line) -> bool:
    return line.record or line.process is not None or _OPENING.match(line.text) is not None
