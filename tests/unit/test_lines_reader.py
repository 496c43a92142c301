"""A stream that is no text costs no more than one that is, and no pattern is slow on a long line."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable

import pytest

from supervise.diagnosis.lines import LIMIT, LineReader
from supervise.diagnosis.prefixes import parse
from supervise.diagnosis.tracebacks import TracebackAssembler
from supervise.model.diagnosis import Line

TEXT = 'Traceback (most recent call last):\r\n  File "x.py", line 3\r\nValueError: no\r\n'
ASSEMBLED = "Traceback (most recent call last):", '  File "x.py", line 3, in step', "    boom()"


def read(*chunks: bytes) -> list[Line]:
    reader = LineReader()
    return [line for chunk in chunks for line in reader.feed(chunk)] + reader.close()


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_text_of_any_width_is_read(encoding: str) -> None:
    assert read(TEXT.encode(encoding)) == read(TEXT.encode())


def test_a_hole_before_the_text_is_no_part_of_the_first_line() -> None:
    assert read(*[b"\0" * 100_000] * 5, TEXT.encode()) == read(TEXT.encode())


@pytest.mark.parametrize("junk", [b"\0", b"x", b"\xff\xfe\x1b", b"\x80\x00"])
def test_a_line_of_many_megabytes_leaves_nothing_behind(junk: bytes) -> None:
    piece = junk * (1_000_000 // len(junk))
    reader = LineReader()
    reader.skip(reader.unify(b"\n" * 9))
    tracemalloc.start()
    try:
        for _ in range(10):
            assert all(len(line.raw) <= LIMIT for line in reader.feed(piece)[:1])
        assert tracemalloc.get_traced_memory()[0] < 8 * LIMIT
    finally:
        tracemalloc.stop()


def test_skipped_lines_are_counted() -> None:
    reader = LineReader()
    assert [line.number for line in reader.feed(b"a\r\nb\r")] == [1, 2]
    reader.skip(reader.unify(b"\nc\rd\r\n"))
    assert [line.number for line in reader.feed(b"e\n")] == [5]


HOSTILE = (
    "a", " ", "(", "[", "\t", "a.", "A: ", "a-", ":", "%|", "\x1b[", "\x1b[0;", "\x1b]", "\x07", "\u202e", "é", "'",
    '"', "(Worker pid=", "(Worker pid=1) ", "[rank1]: ", "[2026-11-30 05:00:00 ", "[2026-11-30 05:00:00 TP0] ",
    "INFO 11-30 05:00:00 ", "INFO 11-30 05:00:00 [a.py:1] ", "INFO:  ", "E1130 05:00:00.1 ", '  File "', ", line 3",
    "Process a", "{", '{"log":"', '{"a":', "\\n", "2026-11-30T05:00:00.123456789Z ", "stdout F ", "| ", "^", "~",
    "systemd[1]: ", "host a[1]: ", "[1/2] ", "pod/a ", "+ ", "  + Exception Group Traceback",
)  # fmt: skip
HEADS = ("", "(Worker pid=1", "[2026-11-30 05:00:00", "INFO 11-30 05:00:00 [", '{"log":"', "\x1b[", '  File "', "A.")


def slow(work: Callable[[str], object], unit: str, head: str) -> bool:
    """Whether four times the line takes much more than four times as long; what seems to be so is looked at again."""
    short, long = (head + unit * (size // len(unit)) for size in (LIMIT // 8, LIMIT // 2))
    return all(_seconds(work, long) > max(0.001, 9 * _seconds(work, short)) for _ in range(6))


def _seconds(work: Callable[[str], object], text: str) -> float:
    began = time.process_time()
    work(text)
    return time.process_time() - began


def assemble(text: str) -> None:
    assembler = TracebackAssembler()
    for number, raw in enumerate((*ASSEMBLED, text, text, "ValueError: " + text, text), 1):
        assembler.feed(Line(number, raw, raw))


@pytest.mark.parametrize("work", [lambda text: parse(text, 1), assemble], ids=["prefixes", "tracebacks"])
def test_no_pattern_is_slow_on_a_long_line(work: Callable[[str], object]) -> None:
    assert not [(head, unit) for head in HEADS for unit in HOSTILE if slow(work, unit, head)]


def test_a_slow_pattern_would_be_found() -> None:
    def cubic(text: str) -> int:
        places = range(0, len(text), 64)
        return sum(text[start:end].count("a") for start in places for end in places)

    # A pause while the short line is measured hides it.
    assert any(slow(cubic, "a", "") for _ in range(5))
