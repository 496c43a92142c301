"""Lines come out the same however the stream is cut, and every prefix is told from its text."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervise.diagnosis.lines import LIMIT, LineReader
from supervise.diagnosis.prefixes import parse
from supervise.model.diagnosis import Line

BITS = st.sampled_from(
    [b"\r", b"\n", b"\r\n", b"", b"a", b"(W pid=1) ", b"\x1b[31m", b"\xff\xfe", "é█".encode(), b"x" * 5_000]
)
STREAMS = st.one_of(st.binary(max_size=200), st.lists(BITS, max_size=30).map(b"".join))


def read(*chunks: bytes) -> list[Line]:
    reader = LineReader()
    return [line for chunk in chunks for line in reader.feed(chunk)] + reader.close()


@given(STREAMS, st.lists(st.integers(0, 20_000), max_size=12))
def test_any_chunking_gives_the_same_lines(stream: bytes, cuts: list[int]) -> None:
    edges = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    chunks = [stream[start:end] for start, end in pairwise(edges)]
    assert read(*chunks) == read(stream)


@given(STREAMS)
def test_byte_by_byte_gives_the_same_lines(stream: bytes) -> None:
    assert read(*(stream[index : index + 1] for index in range(len(stream)))) == read(stream)


@given(STREAMS)
def test_lines_are_numbered_without_gaps_safe_to_print_and_bounded(stream: bytes) -> None:
    lines = read(stream)
    assert [line.number for line in lines] == list(range(1, len(lines) + 1))
    for line in lines:
        assert line.raw.endswith(line.text)
        assert len(line.raw.encode()) <= 3 * LIMIT
        assert not any(char < " " and char != "\t" for char in line.raw)


@given(st.text(alphabet=st.characters(blacklist_categories=["Cs"])))
def test_text_without_controls_and_prefix_is_kept(text: str) -> None:
    line = parse(f"={text}=", 1)
    assert line.text == "".join(char for char in f"={text}=".replace("\xa0", " ") if char in line.text)


@pytest.mark.parametrize(
    ("stream", "texts"),
    [
        (b"a\nb\n", ["a", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"\ra 1%\ra 2%\n", ["", "a 1%", "a 2%"]),
        (b"a\n\nb", ["a", "", "b"]),
        (b"a\r\r\nb", ["a", "", "b"]),
        (b"", []),
        (b"unfinished", ["unfinished"]),
    ],
)
def test_ends_of_lines(stream: bytes, texts: list[str]) -> None:
    assert [line.text for line in read(stream)] == texts


def test_an_unfinished_line_waits_for_its_end() -> None:
    reader = LineReader()
    assert reader.feed(b"Traceb") == []
    assert [line.text for line in reader.feed(b"ack\n")] == ["Traceback"]
    assert reader.close() == []


VLLM = "(Worker_TP0 pid=77) ERROR 11-30 05:27:01 [multiproc_executor.py:953] "


def test_a_line_without_end_is_cut_and_does_not_grow() -> None:
    reader = LineReader()
    for _ in range(200):
        assert reader.feed(b"x" * 100_000) == []
    (line,) = reader.feed(b"end\n")
    assert len(line.text) == LIMIT
    assert [each.text for each in reader.feed(b"next\n")] == ["next"]


def test_speed() -> None:
    stream = (
        VLLM.replace("ERROR", "INFO") + "Avg prompt throughput: 1.0 tokens/s, Running: 1 reqs\n"
    ).encode() * 20_000
    began = time.process_time()
    count = len(read(stream))
    assert count == 20_000
    assert len(stream) / (time.process_time() - began) > 5e6
