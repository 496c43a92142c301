"""A log is read whatever it is packed in, as far as it goes, and nothing else is taken for one."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
from collections.abc import Callable

import pytest
import zstandard

from supervise.host.archives import NoLogError, Unpacked

TEXT = "".join(f"line {number}: é 漢\r\n" for number in range(5_000)).encode()
PACKED: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bzip2": lambda data: bz2.compress(data, 1),
    "xz": lambda data: lzma.compress(data, preset=0),
    "zstd": zstandard.ZstdCompressor().compress,
}


class Trickle(io.RawIOBase):
    """A pipe that hands out little at a time."""

    def __init__(self, data: bytes, step: int) -> None:
        self._data, self._step = io.BytesIO(data), step

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        piece = self._data.read(min(self._step, len(buffer)))
        buffer[: len(piece)] = piece
        return len(piece)


def unpack(data: bytes, step: int = 1 << 20) -> tuple[bytes, str | None]:
    unpacked = Unpacked(Trickle(data, step))
    return b"".join(unpacked), unpacked.note


@pytest.mark.parametrize("kind", PACKED)
def test_packed(kind: str) -> None:
    packed = PACKED[kind](TEXT)
    assert unpack(packed) == (TEXT, None)
    assert unpack(packed, step=97) == (TEXT, None)


def test_packed_again_and_again() -> None:
    twice = gzip.compress(gzip.compress(TEXT))
    assert unpack(twice) == unpack(twice, step=97) == (TEXT, None)
    assert unpack(PACKED["zstd"](bz2.compress(lzma.compress(TEXT)))) == (TEXT, None)
    assert "cut off" in str(unpack(gzip.compress(gzip.compress(TEXT)[:-9]))[1])


def test_but_not_for_ever() -> None:
    with pytest.raises(NoLogError):
        unpack(gzip.compress(gzip.compress(gzip.compress(gzip.compress(TEXT)))))


def test_what_only_begins_like_an_archive_is_text() -> None:
    for text in (b"BZh is how it begins\n", b"BZh9 is how it begins\n", b"BZ"):
        assert unpack(text) == unpack(text, step=1) == (text, None)
    assert unpack(bz2.compress(b"")) == (b"", None)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_needs_no_mark(encoding: str) -> None:
    assert unpack(TEXT.decode().encode(encoding)) == (TEXT, None)


@pytest.mark.parametrize("kind", PACKED)
def test_several_archives_in_a_row(kind: str) -> None:
    """`zcat a.gz b.gz`, and logs that rotate into one file."""
    assert unpack(PACKED[kind](TEXT) + PACKED[kind](b"more")) == (TEXT + b"more", None)


@pytest.mark.parametrize("kind", PACKED)
def test_what_is_cut_off_is_read_as_far_as_it_goes(kind: str) -> None:
    noise = "".join(f"{hash((1, number))}\n" for number in range(40_000)).encode()
    packed = PACKED[kind](noise)
    text, note = unpack(packed[: len(packed) * 2 // 3])
    assert len(text) > len(noise) // 4
    assert noise.startswith(text)
    assert note is not None
    assert "cut off" in note


def test_what_is_damaged_is_read_as_far_as_it_goes() -> None:
    text, note = unpack(gzip.compress(TEXT) + b"no archive at all")
    assert (text, note is not None) == (TEXT, True)


@pytest.mark.parametrize("kind", PACKED)
def test_a_bomb_is_handed_out_in_pieces(kind: str) -> None:
    bomb = PACKED[kind](b"a" * 2**24)
    assert max(map(len, Unpacked(Trickle(bomb, 1 << 20)))) <= 2**21


@pytest.mark.parametrize(
    "data",
    [
        codecs.BOM_UTF8 + TEXT,
        codecs.BOM_UTF16_LE + TEXT.decode().encode("utf-16-le"),
        codecs.BOM_UTF16_BE + TEXT.decode().encode("utf-16-be"),
        gzip.compress(codecs.BOM_UTF16_LE + TEXT.decode().encode("utf-16-le")),
        TEXT,
    ],
)
def test_encodings(data: bytes) -> None:
    assert unpack(data) == (TEXT, None)
    assert unpack(data, step=3)[0] == TEXT


@pytest.mark.parametrize("data", [b"", b"x", b"\n", codecs.BOM_UTF8])
def test_hardly_anything(data: bytes) -> None:
    assert unpack(data) == (data.removeprefix(codecs.BOM_UTF8), None)


@pytest.mark.parametrize(
    "data",
    [
        # A file that was truncated under its writer begins with a hole.
        bytes(100_000) + TEXT,
        "naïve – ü".encode("latin-1", "replace") * 50,
        "加载模型失败\n".encode("gb18030") * 50,
        b"\x1b[31mERROR\x1b[0m no\n" * 50,
        b"Loading:  10%\rLoading:  20%\r\b\b\b",
    ],
)
def test_odd_text_is_text(data: bytes) -> None:
    assert unpack(data)[0] == data


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"PK\x03\x04" + TEXT, "ZIP"),
        (b"\x7fELF\x02\x01\x01" + bytes(64), "program"),
        (b"\x89PNG\r\n\x1a\n" + bytes(64), "picture"),
        (b"log.txt" + bytes(250) + b"ustar  \0" + TEXT, "tar"),
        (gzip.compress(b"log.txt" + bytes(250) + b"ustar  \0" + TEXT), "tar"),
        (bytes(range(256)) * 40, "binary"),
    ],
)
def test_no_text_is_named(data: bytes, what: str) -> None:
    with pytest.raises(NoLogError, match=what):
        unpack(data)
