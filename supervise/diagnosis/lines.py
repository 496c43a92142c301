"""Takes a log apart: a stream of bytes in, lines out."""

from __future__ import annotations

import re

from supervise.diagnosis.prefixes import parse
from supervise.model.diagnosis import Line

LIMIT = 16 * 1024
"""Bytes kept of one line; the rest of a longer one is dropped up to its end."""

_ENDS = re.compile(rb"\r\n|\r|\n")


class LineReader:
    """Turns a stream into lines, the same ones however the stream is cut into chunks.

    A line ends at LF, CR, or CR LF (one end, not two): progress bars redraw themselves with CR. It never raises on any
    bytes, and it never holds more than `LIMIT` bytes of an unfinished line.
    """

    def __init__(self) -> None:
        self._number = 0
        self._head = b""
        self._after_cr = False

    def feed(self, data: bytes) -> list[Line]:
        """Take the next bytes.

        Args:
            data: any number of bytes, cut anywhere.

        Returns:
            The lines that are complete now, in order.
        """
        if not data:
            return []
        if self._after_cr and data[0] == 0x0A:
            data = data[1:]
        *ended, rest = _ENDS.split(data)
        self._after_cr = (data[-1] == 0x0D) if data else False
        if not ended:
            self._head = _extend(self._head, rest)
            return []
        ended[0] = _extend(self._head, ended[0])
        self._head = rest[:LIMIT]
        return [self._line(each) for each in ended]

    def close(self) -> list[Line]:
        """End the stream: the unfinished last line, if there is one. The reader can go on afterwards."""
        head, self._head = self._head, b""
        return [self._line(head)] if head else []

    def _line(self, data: bytes) -> Line:
        self._number += 1
        return parse(data[:LIMIT].decode("utf-8", "replace"), self._number)


def _extend(head: bytes, more: bytes) -> bytes:
    return head + more[: LIMIT - len(head)] if head else more[:LIMIT]
