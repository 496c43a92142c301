"""Reads a log whatever it is packed in: gzip, bzip2, xz, zstd, UTF-16; streamed, so that size does not matter."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator

import zstandard

_Read = Callable[[int], bytes | None]
_ReadInto = Callable[[bytearray | memoryview], int | None]

_READ = 1024 * 1024
_HEAD = 8 * 1024
# zstd's own default limit for a window, `--long=27`: what asks for more is refused instead of held in memory.
_ZSTD_WINDOW = 2**27
# A block of 128 KiB may be packed into 4 bytes (RFC 8878, 3.1.1.2): so much at once is at most 16 MiB.
_ZSTD_STEP = 512
# Packed by a log collector, then by whoever sent it: more is nobody's habit, and each multiplies what is unpacked.
_DEEPEST = 3

_GZIP, _BZIP2, _XZ, _ZSTD = b"\x1f\x8b\x08", b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd"
# What follows "BZh" and a digit, a block or the end (bzip2's format has no specification but its source, compress.c).
_BZIP2_BLOCKS = (b"1AY&SY", b"\x17rE8P\x90")
_MAGIC = 10
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_NO_TEXT = (
    (b"PK\x03\x04", "a ZIP archive: unpack it first"),
    (b"\x7fELF", "a program, no log"),
    (b"%PDF-", "a PDF document, no log"),
    (b"\x89PNG", "a picture: the log's text is needed"),
    (b"\xff\xd8\xff", "a picture: the log's text is needed"),
)
_TAR = (257, b"ustar")
# Control characters that no logger writes; NUL is counted apart, since files that were truncated begin with many.
_ODD = frozenset({*range(1, 8), *range(0x0E, 0x1B), *range(0x1C, 0x20), 0x7F})
_TOO_ODD = 0.05
# Of UTF-16 without a mark every second byte is NUL wherever it holds ASCII, and no other one is.
_MOSTLY, _HARDLY = 0.7, 0.1
BROKEN = (EOFError, OSError, zlib.error, lzma.LZMAError, zstandard.ZstdError)


class NoLogError(Exception):
    """It is no text; the message says what it is."""


class Unpacked:
    """The text of a log, piece by piece, as UTF-8 or what the log has instead.

    Args:
        raw: the file or pipe, read from where it stands.

    Attributes:
        note: set when everything has been read: what is missing, if something is.
    """

    def __init__(self, raw: io.RawIOBase) -> None:
        self.note: str | None = None
        self._raw = raw

    def __iter__(self) -> Iterator[bytes]:
        """Yield pieces of at most a few MiB.

        Raises:
            NoLogError: it is no text.
            OSError: not one byte could be read.
        """
        source, packed = _opened(self._raw.read, self._raw.readinto)
        if not packed:
            yield from _text(source)
            return
        try:
            for _ in range(_DEEPEST - 1):
                if not packed:
                    break
                source, packed = _opened(source.read1, source.readinto1)
            yield from _text(source)
        except BROKEN as error:
            self.note = damage(error)


def damage(error: Exception) -> str:
    """Say in a note that an archive could not be read to its end."""
    return f"the archive is damaged or cut off; what could be unpacked was read ({_said(error)})"


def _opened(read: _Read, readinto: _ReadInto) -> tuple[io.BufferedIOBase, bool]:
    """A stream without what it is packed in, if it is packed in something, and whether it is."""
    head = _read_head(read)
    source: io.BufferedReader = io.BufferedReader(_Primed(head, readinto), _READ)
    unpacked = _unpacker(head, source)
    return unpacked, unpacked is not source


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__


def _read_head(read: _Read) -> bytes:
    """The first bytes, enough to tell a format by; a pipe hands them out as they come."""
    head = b""
    while len(head) < _MAGIC and (more := read(_HEAD)):
        head += more
    return head


class _Primed(io.RawIOBase):
    """A stream of which the first bytes have been read already."""

    def __init__(self, head: bytes, readinto: _ReadInto) -> None:
        self._head, self._readinto = head, readinto

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int | None:  # type: ignore[override]
        if not self._head:
            return self._readinto(buffer)
        piece, self._head = self._head[: len(buffer)], self._head[len(buffer) :]
        buffer[: len(piece)] = piece
        return len(piece)


class _Zstd(io.RawIOBase):
    """Frames of zstd; unlike the library's own reader it tells a frame that is cut off from one that has ended."""

    def __init__(self, source: io.BufferedReader) -> None:
        self._source = source
        self._make = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).decompressobj
        self._frame = self._make()
        self._packed = self._out = b""
        self._within = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        while not self._out:
            if not (packed := self._packed or self._source.read(_ZSTD_STEP)):
                if self._within:
                    raise EOFError("a frame of zstd does not end")
                return 0
            self._out = self._frame.decompress(packed)
            self._within, self._packed = not self._frame.eof, self._frame.unused_data
            if self._frame.eof:
                self._frame = self._make()
        piece, self._out = self._out[: len(buffer)], self._out[len(buffer) :]
        buffer[: len(piece)] = piece
        return len(piece)


def _unpacker(head: bytes, source: io.BufferedReader) -> io.BufferedIOBase:
    if head.startswith(_GZIP):
        return gzip.GzipFile(fileobj=source)
    if head.startswith(_BZIP2) and head[4:_MAGIC] in _BZIP2_BLOCKS:
        return bz2.BZ2File(source)
    if head.startswith(_XZ):
        return lzma.LZMAFile(source)
    if head.startswith(_ZSTD):
        return io.BufferedReader(_Zstd(source), _READ)
    return source


def _text(stream: io.BufferedIOBase) -> Iterator[bytes]:
    first = stream.read1(_READ)
    _refuse_no_text(first)
    bom, encoding = next(((bom, name) for bom, name in _BOMS if first.startswith(bom)), (b"", _unmarked(first)))
    first = first[len(bom) :]
    if encoding == "utf-8":
        yield first
        yield from _pieces(stream)
        return
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    yield decoder.decode(first).encode("utf-8", "replace")
    for piece in _pieces(stream):
        yield decoder.decode(piece).encode("utf-8", "replace")


def _unmarked(first: bytes) -> str:
    """The encoding of what begins without a mark of it."""
    half = len(first[:_HEAD]) // 2
    if half < 2:
        return "utf-8"
    even, odd = (first[at : 2 * half : 2].count(0) / half for at in (0, 1))
    if odd > _MOSTLY and even < _HARDLY:
        return "utf-16-le"
    return "utf-16-be" if even > _MOSTLY and odd < _HARDLY else "utf-8"


def _pieces(stream: io.BufferedIOBase) -> Iterator[bytes]:
    while piece := stream.read1(_READ):
        yield piece


def _refuse_no_text(first: bytes) -> None:
    for magic, what in _NO_TEXT:
        if first.startswith(magic):
            raise NoLogError(what)
    at, magic = _TAR
    if first[at : at + len(magic)] == magic:
        raise NoLogError("a tar archive: unpack it first")
    if first.startswith(tuple(bom for bom, _ in _BOMS)) or _unmarked(first) != "utf-8":
        return
    sample = first.lstrip(b"\0")[:_HEAD]
    odd = sum(byte in _ODD or byte == 0 for byte in sample)
    if odd > max(4, _TOO_ODD * len(sample)):
        raise NoLogError("binary data, no log")
