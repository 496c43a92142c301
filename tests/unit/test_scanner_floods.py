"""A log that says the same error again and again is passed over as well, and what else is in it is found."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervise.diagnosis import scanner, tolerance
from supervise.diagnosis.lines import LineReader
from supervise.diagnosis.scanner import SparseReader
from supervise.diagnosis.seams import clean_start
from supervise.diagnosis.verdict import Diagnoser
from supervise.model.diagnosis import Line, SignatureSet
from tests.unit.test_scanner import BITS, LOGS, SCANNER, every, opened, run

SAID = b"(APIServer pid=1) ERROR 11-30 05:00:00 [serving.py:99] "
# A request that fails, with the headline that says that it was no more than that.
REQUEST = SAID + SAID.join(
    [
        b"Error in preprocessing prompt inputs\n",
        b"Traceback (most recent call last):\n",
        b'  File "serving.py", line 91, in create\n',
        b"    raise ValueError(\n",
        b"ValueError: This model's maximum context length is 4096 tokens. However, you requested 5000 tokens\n",
    ]
)
SINGLE = SAID + b"ValueError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
FLOODS = {"requests": REQUEST, "lines": SINGLE}
DIES = b"(EngineCore pid=3) ERROR 11-30 05:00:00 [core.py:99] "
DEATH = [
    DIES + line
    for line in (
        b"EngineCore encountered a fatal error.\n",
        b"Traceback (most recent call last):\n",
        b'  File "core.py", line 3, in run_engine_core\n',
        b"    engine_core.run_busy_loop()\n",
        b"torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n",
    )
]
STARTS = b"(APIServer pid=1) INFO:     Application startup complete.\n"
ALLOWANCE = 4096
# More than any window.
LONG = 1500


@pytest.fixture(autouse=True)
def _shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanner, "_DEATH_AFTER", 400)


def tired(chunks: Iterable[bytes], diagnoser: Diagnoser) -> Iterator[Line]:
    """As a file is read, with less patience."""
    reader = SparseReader(lambda: SCANNER, opened(diagnoser), plain=0, small=0, allowance=lambda: ALLOWANCE)
    for chunk in chunks:
        yield from reader.feed(chunk)
    yield from reader.close()


def flood(unit: bytes, lines: int) -> bytes:
    return unit * (lines // unit.count(b"\n"))


def drowned(log: bytes, unit: bytes) -> list[bytes]:
    """A log with a flood before and after it and others' lines within, cut anywhere."""
    chance = random.Random(len(log))
    others = iter((unit * len(log)).splitlines(keepends=True))
    inside = [each for line in log.splitlines(keepends=True) for each in (line, next(others))]
    data = flood(unit, LONG) + b"".join(inside) + b"\n" + flood(unit, LONG)
    edges = sorted({chance.randrange(len(data)) for _ in range(9)} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(edges)]


def differ(path: Path, unit: bytes) -> bool:
    chunks = drowned(path.read_bytes(), unit)
    wanted, found = (run(path.parent.name, chunks, how)[0] for how in (every, tired))
    facts = [(each.text, each.line, each.signature, each.process, each.phase) for each in (wanted, found)]
    return facts[0] != facts[1]


@pytest.mark.parametrize("unit", FLOODS.values(), ids=FLOODS)
@pytest.mark.parametrize(
    "path", [each for each in LOGS[::6] if each.stat().st_size < 20_000], ids=lambda p: p.parent.name
)
def test_the_cause_is_the_same(path: Path, unit: bytes) -> None:
    assert not differ(path, unit)


def dying(unit: bytes) -> list[bytes]:
    """A server that is up, drowns in errors, and dies in the middle of them: its words are far apart."""
    own = b"".join(flood(unit, 20) + line for line in DEATH)
    data = STARTS + flood(unit, 2 * LONG) + own + flood(unit, 3 * LONG)
    return [data[at : at + 100_000] for at in range(0, len(data), 100_000)]


@pytest.mark.parametrize("unit", FLOODS.values(), ids=FLOODS)
def test_a_death_in_a_flood_is_named_when_it_is_said(unit: bytes) -> None:
    whole, fatal, count = run("vllm", dying(unit), every)
    found, told, delivered = run("vllm", dying(unit), tired)
    assert whole.signature == "cuda-illegal-address"
    assert (found, told) == (whole, fatal)
    assert delivered < count * 3 // 4


@pytest.mark.parametrize("unit", FLOODS.values(), ids=FLOODS)
def test_without_the_wide_windows_it_would_not_be(unit: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_WIDE_BEFORE", "_WIDE_AFTER", "_DEATH_BEFORE", "_DEATH_AFTER", "_PATIENCE"):
        monkeypatch.setattr(scanner, name, 0)
    assert run("vllm", dying(unit), every)[0] != run("vllm", dying(unit), tired)[0]


def test_without_clean_seams_a_failed_request_would_be_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanner, "clean_start", lambda data, start, end: start)
    lines = flood(REQUEST, 3 * LONG).splitlines(keepends=True)
    data = [STARTS + b"".join([*lines[: 3 * LONG - part], *DEATH]) for part in range(1, 4)]
    assert any(run("vllm", [each], every)[1] != run("vllm", [each], tired)[1] for each in data)


def test_the_worst_is_still_passed_over() -> None:
    data = flood(REQUEST, 20_000)
    lines = list(tired([data[at : at + 50_000] for at in range(0, len(data), 50_000)], Diagnoser(SignatureSet())))
    assert len(lines) < 4000
    assert lines[-1].number == 20_000


def test_numbers_are_those_of_the_whole_log() -> None:
    chunks = dying(REQUEST)
    reader = LineReader()
    whole = {line.number: line for chunk in chunks for line in reader.feed(chunk)}
    lines = list(tired(chunks, Diagnoser(SignatureSet())))
    assert all(whole[line.number] == line for line in lines)
    assert [line.number for line in lines] == sorted({line.number for line in lines})
    assert lines[-1].number == len(whole)


@given(st.lists(BITS, max_size=30).map(b"".join), st.lists(st.integers(0, 900), max_size=6), st.booleans())
def test_what_is_held_back_is_delivered_as_it_is(data: bytes, cuts: list[int], busy: bool) -> None:
    whole = LineReader()
    wanted = {line.number: line for line in [*whole.feed(data), *whole.close()]}
    edges = sorted({min(each, len(data)) for each in cuts} | {0, len(data)})
    reader = SparseReader(lambda: SCANNER, lambda: busy, plain=0, small=0, allowance=lambda: 0)
    lines = [line for start, end in pairwise(edges) for line in reader.feed(data[start:end])] + reader.close()
    assert all(wanted[line.number] == line for line in lines)
    assert [line.number for line in lines] == sorted({line.number for line in lines})
    assert [line.number for line in lines][-1:] == list(wanted)[-1:]


def test_every_line_is_delivered_while_nobody_is_behind() -> None:
    reader = SparseReader(lambda: SCANNER, lambda: False, plain=0, small=0, allowance=lambda: None)
    assert len([line for _ in range(20) for line in reader.feed(SINGLE * 500)]) == 10_000


def test_who_has_caught_up_reads_all_again() -> None:
    behind = True
    reader = SparseReader(
        lambda: SCANNER, lambda: False, plain=0, small=0, allowance=lambda: ALLOWANCE if behind else None
    )
    passed = sum(len(list(reader.feed(SINGLE * 1000))) for _ in range(10))
    behind = False
    # What was held back comes first.
    assert passed < 3000
    assert len(list(reader.feed(SINGLE * 1000))) >= 1000
    assert len(list(reader.feed(SINGLE * 1000))) == 1000


def test_lines_that_are_only_counted_count() -> None:
    reader = SparseReader(lambda: SCANNER, lambda: False, plain=0, small=0, allowance=lambda: ALLOWANCE)
    for _ in range(5):
        list(reader.feed(SINGLE * 1000 + b"and the beg"))
        reader.pass_over(b"inning\nanother\n")
    (last,) = [line for line in reader.feed(b"x\n") if line.text == "x"]
    assert last.number == 5 * 1002 + 1


def test_a_line_without_end_is_not_kept() -> None:
    reader = SparseReader(lambda: SCANNER, lambda: False, plain=0, small=0, allowance=lambda: ALLOWANCE)
    list(reader.feed(SINGLE * 1000))
    for _ in range(5):
        list(reader.feed(b"x" * 100_000))
    assert sum(len(each) for each in (reader._held, reader._begun)) < 200_000
    lines = [*reader.feed(b"\nend\n"), *reader.close()]
    assert [(line.number, line.text) for line in lines][-1] == (1002, "end")


def test_noise_is_listened_to_again_in_the_next_stretch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tolerance, "_STRETCH", 1_000_000)
    known = tolerance.Tolerance()
    known.go_on(1, 1000)
    known.charge("a", 1001)
    assert known.tired
    known.go_on(1_000_000, 1000)
    assert not known.tired
    known.charge("b", 1000)
    assert not known.tired, "what is no noise has its allowance"
    known.charge("a", 1)
    assert known.ignored == {"a"}


HEAD, OPEN, FRAME, CODE, RAISED, LINK = (
    b"head\n",
    b"Traceback (most recent call last):\n",
    b'  File "a.py", line 3, in f\n',
    b"    f()\n",
    b"ValueError: no\n",
    b"\nThe above exception was the direct cause of the following exception:\n\n",
)
BLOCK = OPEN + FRAME + CODE + RAISED


@pytest.mark.parametrize(
    ("left_over", "rest"),
    [
        (b"", HEAD + BLOCK),
        (b"", b"a\nb\n"),
        (FRAME + CODE + RAISED, HEAD + BLOCK),
        (FRAME + CODE + FRAME + CODE + RAISED, HEAD + BLOCK),
        (FRAME + CODE + RAISED + LINK + BLOCK, HEAD + BLOCK),
        (FRAME + CODE + RAISED, HEAD),
        (FRAME + CODE, OPEN),
    ],
)
def test_what_is_left_of_a_report_is_passed_over(left_over: bytes, rest: bytes) -> None:
    data = left_over + rest + b"hit\n"
    assert data[clean_start(data, 0, len(left_over + rest)) :] == rest + b"hit\n"
