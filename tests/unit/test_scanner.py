"""What passes over the plain stretches of a log says the same of it as who reads every line."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervise.diagnosis import scanner
from supervise.diagnosis.lines import LineReader
from supervise.diagnosis.progress import ProgressTracker
from supervise.diagnosis.scanner import Scanner, SparseReader
from supervise.diagnosis.verdict import Diagnoser
from supervise.model.diagnosis import Diagnosis, End, Fatal, Line
from supervise.model.profile import PhaseRule
from supervise.profiles.load import load
from supervise.profiles.signatures import available_sets, load_signatures

CORPUS = Path(__file__).parent.parent / "corpus"
# Every fourth: all that differ in kind are among them, and the rest takes a minute.
LOGS = sorted(CORPUS.glob("*/log.txt"))[::4]
SIGNATURES = load_signatures(available_sets())
PROFILES = {name: load(name) for name in ("vllm", "sglang")}
SCANNER = Scanner.of(SIGNATURES, PROFILES.values())
SERVED = (
    b"(APIServer pid=1) INFO 11-30 05:00:00 [loggers.py:1] Engine 000: Running: 1 reqs, GPU KV cache usage: 0.3%",
    b'(APIServer pid=1) INFO:     10.0.0.1:5000 - "POST /v1/completions HTTP/1.1" 200 OK',
    b"(EngineCore pid=93) INFO 11-30 05:00:00 [core.py:9] step",
    b"(Worker_TP1 pid=95) DEBUG 11-30 05:00:00 [core.py:9] step",
    b"[2026-11-30 05:00:00 TP0] Decode batch. #running-req: 1, #token: 9, token usage: 0.01, gen throughput: 9.0",
)
# What names no process belongs to whatever was said before it.
PLAIN = (*SERVED, b"a word", b"", b"   indented")
ENDS = (b"\n", b"\r\n", b"\r")


def every(chunks: Iterable[bytes], diagnoser: Diagnoser) -> Iterator[Line]:
    del diagnoser
    reader = LineReader()
    for chunk in chunks:
        yield from reader.feed(chunk)
    yield from reader.close()


def opened(diagnoser: Diagnoser) -> Callable[[], bool]:
    return lambda: diagnoser.open


def sparse(chunks: Iterable[bytes], diagnoser: Diagnoser) -> Iterator[Line]:
    reader = SparseReader(lambda: SCANNER, opened(diagnoser), plain=0, small=0)
    for chunk in chunks:
        yield from reader.feed(chunk)
    yield from reader.close()


How = Callable[[Iterable[bytes], Diagnoser], Iterator[Line]]


def run(name: str, chunks: Iterable[bytes], how: How) -> tuple[Diagnosis, Fatal | None, int]:
    profile = PROFILES["sglang" if name.startswith("sglang") else "vllm"]
    tracker = ProgressTracker(profile.phases, (), profile.ready)
    diagnoser = Diagnoser(SIGNATURES, tracker)
    fatal, count = None, 0
    for line in how(chunks, diagnoser):
        tracker.feed(line)
        fatal = diagnoser.feed(line) or fatal
        count += 1
    return diagnoser.conclude(End(code=1, ready=tracker.ready, phase=tracker.phase)), fatal, count


def inflated(log: bytes, chance: random.Random) -> bytes:
    """Plain lines before and after the log's own, and between them others' lines, with ends of all kinds."""
    own = log.splitlines(keepends=True)
    places = {chance.randrange(len(own) + 1) for _ in range(9)}
    out = [_stretch(PLAIN, chance)]
    for index, line in enumerate(own):
        if index in places:
            out.append(_stretch(SERVED, chance))
        out.append(line)
    return b"".join([*out, b"\n", _stretch(PLAIN, chance)])


def _stretch(lines: tuple[bytes, ...], chance: random.Random) -> bytes:
    return b"".join(chance.choice(lines) + chance.choice(ENDS) for _ in range(chance.randrange(90)))


def cut(data: bytes, chance: random.Random) -> list[bytes]:
    edges = sorted({chance.randrange(len(data) + 1) for _ in range(chance.randrange(20))} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(edges)]


def differ(name: str, log: bytes, seed: int) -> bool:
    chance = random.Random(seed)
    data = inflated(log, chance)
    return run(name, [data], every)[:2] != run(name, cut(data, chance), sparse)[:2]


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.parent.name)
def test_the_verdict_is_the_same(path: Path) -> None:
    assert not differ(path.parent.name, path.read_bytes(), seed=len(path.parent.name))


@pytest.mark.parametrize("broken", ["_BEFORE", "_AFTER"])
def test_without_its_windows_it_would_not_be(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanner, broken, 0)
    monkeypatch.setattr(scanner, "_PATIENCE", 0)
    assert any(differ(path.parent.name, path.read_bytes(), seed=1) for path in LOGS)


def picked(data: bytes, cuts: Iterable[int] = (), busy: bool = False) -> list[Line]:
    """What is delivered of a stream that is cut at these places."""
    edges = sorted({min(each, len(data)) for each in cuts} | {0, len(data)})
    reader = SparseReader(lambda: SCANNER, lambda: busy, plain=0, small=0)
    lines = [line for start, end in pairwise(edges) for line in reader.feed(data[start:end])]
    return lines + reader.close()


BITS = st.sampled_from(
    [b"\r", b"\n", b"\r\n", b"\0", b"a", b"\x1b[31m", b"\xff", b"Traceback (most recent call last):\n", b"x\n" * 40]
)


@given(st.lists(BITS, max_size=30).map(b"".join), st.lists(st.integers(0, 900), max_size=6), st.booleans())
def test_what_it_delivers_is_delivered_as_it_is(data: bytes, cuts: list[int], busy: bool) -> None:
    reader = LineReader()
    whole = {line.number: line for line in [*reader.feed(data), *reader.close()]}
    lines = picked(data, cuts, busy)
    assert all(whole[line.number] == line for line in lines)
    assert [line.number for line in lines] == sorted({line.number for line in lines})
    assert [line.number for line in lines][-1:] == list(whole)[-1:]
    said = {line.number for line in whole.values() if line.text.startswith("Traceback")}
    assert said <= {line.number for line in lines}


CAUSE = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


@pytest.mark.parametrize(
    "line",
    [
        CAUSE,
        f"(EngineCore pid=3) ERROR 11-30 05:00:00 [core.py:99] {CAUSE}",
        f'{{"log":"{CAUSE}\\n","stream":"stderr","time":"2026-11-30T05:00:00.1Z"}}',
        '{"log":"ImportError: cannot import name \\"a\\" from \\"b\\" (unknown location)\\n","stream":"stderr"}',
        f"2026-11-30T05:00:00.123456789Z stderr F {CAUSE}",
        "\x1b[1;35mtorch.OutOfMemoryError\x1b[0m: \x1b[35mCUDA out of\x1b[0m memory. Tried to allocate 2.00 GiB.",
        "usage: vllm serve [model_tag] [options]",
        "(APIServer pid=1) usage: vllm serve [model_tag] [options]",
    ],
)
@pytest.mark.parametrize("end", ENDS)
def test_a_hit_is_delivered_in_any_envelope(line: str, end: bytes) -> None:
    plain = end.join(PLAIN * 500) + end
    lines = picked(plain + line.encode() + end + plain)
    assert 500 * len(PLAIN) + 1 in [each.number for each in lines]
    assert len(lines) < 150


def test_plain_lines_are_passed_over() -> None:
    assert len(picked(b"\n".join(PLAIN * 1000))) < 30


def test_everything_is_delivered_while_a_report_is_open_but_not_for_ever() -> None:
    opened = b"x\nTraceback (most recent call last):\n" + b"  a\n" * 5000
    assert 500 < len(picked(opened, busy=True)) < 2000
    assert len(picked(opened, busy=False)) < 100


def test_small_chunks_and_the_beginning_cost_no_scanner() -> None:
    reader = SparseReader(lambda: pytest.fail("made"), lambda: False)
    assert len(list(reader.feed(b"as plain\n" * 20_000))) == 20_000
    reader = SparseReader(lambda: pytest.fail("made"), lambda: False, plain=0)
    assert len([line for _ in range(20) for line in reader.feed(b"as plain\n" * 2500)]) == 50_000


def test_a_pattern_without_a_literal_has_everything_delivered() -> None:
    odd = replace(PROFILES["vllm"], phases=(PhaseRule("weights", re.compile(r"\w+")),))
    assert Scanner.of(SIGNATURES, [odd]) is None
    reader = SparseReader(lambda: None, lambda: False, plain=0)
    assert len(list(reader.feed(b"as plain\n" * 20_000))) == 20_000
