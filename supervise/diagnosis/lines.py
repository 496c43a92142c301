"""Takes a log apart: a stream of bytes in, lines out."""

from __future__ import annotations

from supervise.diagnosis.prefixes import parse_all
from supervise.model.diagnosis import Line

LIMIT = 16 * 1024
"""Bytes kept of one line; the rest of a longer one is dropped up to its end."""

RECORD_LIMIT = 8 * LIMIT
"""The same for a record in JSON, which holds a whole traceback."""

# Marks of the byte order, in what is left of them without NULs: UTF-8, and UTF-16 and UTF-32 of either order.
_MARKS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")


class LineReader:
    """Turns a stream into lines, the same ones however the stream is cut into chunks.

    A line ends at LF, CR, or CR LF (one end, not two): progress bars redraw themselves with CR. NULs are dropped: a log
    that was truncated under its writer begins with a hole of any size, and PowerShell's `>` writes UTF-16. It never
    raises on any bytes, and it never holds more than `LIMIT` bytes of an unfinished line, or `RECORD_LIMIT` of a record
    in JSON. Of such a record every line that it holds is delivered, all with its number.

    `feed` is all that most readers need. It is made of `unify` and `take`; `skip` is for whoever knows that a stretch
    has nothing to tell (`supervise.diagnosis.scanner`).
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
        return self.take(self.unify(data))

    def close(self) -> list[Line]:
        """End the stream: the unfinished last line, if there is one. The reader can go on afterwards."""
        head, self._head = self._head, b""
        return list(self._parsed(head)) if head else []

    def unify(self, data: bytes) -> bytes:
        """Give every line of the next bytes the same end.

        Args:
            data: the next bytes of the stream, each given once, cut anywhere.

        Returns:
            The same without NULs, every end of a line an LF.
        """
        if b"\0" in data:
            data = data.translate(None, b"\0")
        if self._after_cr and data:
            self._after_cr = False
            data = data.removeprefix(b"\n")
        if b"\r" in data:
            self._after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return data

    def take(self, data: bytes) -> list[Line]:
        """Take apart what `unify` returned.

        Args:
            data: bytes with LF as the only end of a line.

        Returns:
            The lines that are complete now, in order.
        """
        first, *others = data.split(b"\n")
        if not others:
            self._head = _extend(self._head, first)
            return []
        ended = [_extend(self._head, first), *others]
        self._head = _extend(b"", ended.pop())
        return [line for each in ended for line in self._parsed(each)]

    def skip(self, data: bytes) -> None:
        """Count the lines of a stretch and pass over them.

        Args:
            data: what `unify` returned, from the beginning of a line to the end of one; `take` got all before it.
        """
        self._number += data.count(b"\n")

    def _parsed(self, data: bytes) -> tuple[Line, ...]:
        self._number += 1
        if self._number == 1:
            data = _unmarked(data)
        return parse_all(_extend(b"", data).decode("utf-8", "replace"), self._number)


def _extend(head: bytes, more: bytes) -> bytes:
    limit = RECORD_LIMIT if (head or more)[:1] == b"{" else LIMIT
    return head + more[: limit - len(head)] if head else more[:limit]


def _unmarked(data: bytes) -> bytes:
    return next((data.removeprefix(mark) for mark in _MARKS if data.startswith(mark)), data)
