"""Damaged, hostile and shuffled logs: nothing raises, all is printable, and the order among processes is no matter.

FUZZ_ROUNDS is how many damaged logs are tried; each is made from its number alone, so that a failure can be repeated.
"""

from __future__ import annotations

import io
import json
import os
import random
import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervise.diagnosis.engines import EngineGuess, Startup
from supervise.diagnosis.episodes import Episodes
from supervise.diagnosis.essence import essence
from supervise.diagnosis.facts import Facts
from supervise.diagnosis.lines import LineReader
from supervise.diagnosis.scanner import Scanner, SparseReader
from supervise.diagnosis.verdict import EVIDENCE, Diagnoser
from supervise.diagnosis.whole import UNKNOWN_END, Explained, explain
from supervise.model.diagnosis import Diagnosis, End
from supervise.profiles.load import load_all
from supervise.profiles.signatures import available_sets, load_signatures
from supervise.report.page import Page
from supervise.verbs.explain import as_data
from tests.unit.test_corpus import CORPUS, end_of

ROUNDS = int(os.environ.get("FUZZ_ROUNDS", "20"))
SEEDS = int(os.environ.get("FUZZ_SEEDS", "1"))
PROFILES = load_all()
SIGNATURES = load_signatures(available_sets())
SCANNER = Scanner.of(SIGNATURES, PROFILES.values())
OOM = "Out of memory: Killed process 7 (VLLM::EngineCor)"
ENDS = (
    UNKNOWN_END, End(), End(code=0), End(code=1), End(code=137), End(code=-5), End(code=2**70), End(signal=9),
    End(signal=-1), End(signal=9, sent=(15, 9)), End(signal=11, phase="weights"), End(code=0, requested=True),
    End(code=1, ready=True, phase="run"), End(signal=9, oom_kills=1), End(signal=9, kernel=(OOM,)), End(kernel=("",)),
)  # fmt: skip
# Marks that turn text around on a terminal.
REORDERS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
JUNK = (
    b"\0", b"\r", b"\n", b"\r\n", b"\x1b[31m", b"\x1b]0;", b"\xff\xfe", b"\xed\xa0\x80", b'{"', b'{"message":"', b'"}',
    b'","level":"ERROR"}', b"\\ud800", b"\\u202e", b"\\u0000", b"(", b"(EngineCore pid=7) ", b"(a pid=", b"[rank1]: ",
    b"Traceback (most recent call last):\n", b'  File "x.py", line 3, in f\n', b"ValueError: no\n", b": : :", b"%|",
    b"Fatal Python error: Aborted\n", b"\xf0\x9f\x98\x80", b"\xe2\x80\xae", b"9" * 400, b" " * 400, b"usage: a\n",
    b"\nDuring handling of the above exception, another exception occurred:\n\n", b"Killed\n", b"\xc3", b"a" * 20_000,
)  # fmt: skip


def explained(chunks: Iterable[bytes], end: End = UNKNOWN_END) -> Explained:
    return explain(chunks, end, SIGNATURES, PROFILES)


def cut(data: bytes, rng: random.Random) -> Iterator[bytes]:
    size = rng.choice((1, 7, 100, 4096, 1 << 20)) if len(data) < 5000 else rng.choice((997, 4096, 70_000))
    for at in range(0, len(data), size):
        yield data[at : at + size]


# --- damage -----------------------------------------------------------------------------------------------------------


@cache
def materials() -> tuple[bytes, ...]:
    logs = [path.read_bytes() for path in sorted(CORPUS.glob("*/log.txt"))]
    entries = chain(SIGNATURES.signatures, SIGNATURES.traps)
    samples = [sample.encode() for entry in entries for sample in (*entry.match, *entry.nomatch)]
    return (*logs, *(b"\n".join(samples[at : at + 20]) for at in range(0, len(samples), 20)))


def damaged(number: int) -> bytes:
    """A log, or several, with what editors, terminals, full disks and bad luck do to them."""
    rng = random.Random(number)
    data = piece(rng)
    for _ in range(rng.randint(1, 8)):
        at, other = sorted(rng.randrange(len(data) + 1) for _ in range(2))
        match rng.randrange(8):
            case 0:
                data = data[:at] + data[other:]
            case 1:
                data = data[:other] + data[at:]
            case 2:
                data = data[:at] + piece(rng) + data[at:]
            case 3:
                data = interleaved([data.splitlines(keepends=True), piece(rng).splitlines(keepends=True)], rng)
            case 4:
                data = data[:at] + bytes(rng.randrange(256) for _ in range(rng.randrange(40))) + data[at:]
            case 5:
                data = data[:at] + rng.choice(JUNK) * rng.choice((1, 1, 3, 40)) + data[at:]
            case 6:
                data = json.dumps({"message": data.decode("utf-8", "replace"), "level": "ERROR"}).encode() + data[at:]
            case _:
                data = bytes(rng.randrange(256) if rng.random() < 0.01 else byte for byte in data)
        data = data[:30_000]
    return data


def piece(rng: random.Random) -> bytes:
    data = rng.choice(materials())
    begin = rng.randrange(len(data) + 1)
    return data[begin : begin + 6000]


def interleaved(parts: list[list[bytes]], rng: random.Random) -> bytes:
    order = [index for index, part in enumerate(parts) for _ in part]
    rng.shuffle(order)
    return b"".join(parts[index].pop(0) for index in order)


def is_printable(text: str) -> bool:
    return not any(
        unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") and char != "\t" for char in text
    ) and not any(mark in text for mark in REORDERS)


def check(diagnosis: Diagnosis) -> None:
    quoted = [
        text for line in diagnosis.evidence for text in (line.raw, line.text, line.process, line.source, line.time)
    ]
    said = [diagnosis.text, diagnosis.process, diagnosis.meaning, diagnosis.phase, *diagnosis.advice, *quoted]
    assert all(map(is_printable, filter(None, said)))
    assert diagnosis.meaning
    assert len(diagnosis.evidence) <= EVIDENCE
    assert diagnosis.line is None or diagnosis.line in {line.number for line in diagnosis.evidence}


def check_whole(data: bytes, rng: random.Random) -> None:
    told = explained(cut(data, rng), rng.choice(ENDS))
    for tried in (told.named, *told.others):
        check(tried.diagnosis)
    json.loads(json.dumps(as_data("log", told), ensure_ascii=False).encode())
    shown = io.StringIO()
    Page(shown).explained("log", told, [])
    assert is_printable(shown.getvalue().replace("\n", ""))
    shown.getvalue().encode()


def check_live(data: bytes, rng: random.Random) -> None:
    reader = SparseReader(
        lambda: SCANNER, lambda: diagnoser.open, plain=rng.choice((0, 2000)), small=rng.choice((0, 500))
    )
    guess, episodes, facts = EngineGuess(), Episodes(), Facts()
    startup = Startup(PROFILES, guess)
    diagnoser = Diagnoser(SIGNATURES, startup)
    for line in chain(chain.from_iterable(reader.feed(chunk) for chunk in cut(data, rng)), reader.close()):
        guess.feed(line)
        episodes.feed(line)
        facts.feed(line)
        startup.feed(line)
        fatal = diagnoser.feed(line)
        assert fatal is None or is_printable(fatal.text + fatal.meaning)
    for end in ENDS:
        check(diagnoser.conclude(end))


@pytest.mark.parametrize("tenth", range(10))
def test_a_damaged_log_is_explained(tenth: int) -> None:
    for number in range(tenth, ROUNDS, 10):
        data = damaged(number)
        check_whole(data, random.Random(number))
        check_live(data, random.Random(number))


@settings(max_examples=15, deadline=None)
@given(st.lists(st.one_of(st.binary(max_size=40), st.sampled_from(JUNK)), max_size=30), st.integers(0, 2**32))
def test_any_bytes_are_explained(pieces: list[bytes], seed: int) -> None:
    data = b"".join(pieces)
    check_whole(data, random.Random(seed))
    check_live(data, random.Random(seed))


@pytest.mark.parametrize("bad", ["\\ud800", "\\udfff", "\\u2028", "\\u061c", "\\u001b[31m", "\\u0007", "\\u0000"])
def test_what_only_json_can_spell_is_safe_to_print(bad: str) -> None:
    fields = ("message", "processName", "levelname", "name", "filename", "timestamp")
    record = dict.fromkeys(fields, f"ValueError: a{bad}b")
    text = json.dumps(
        {**record, "process": 7, "exc_info": f'Traceback (most recent call last):\n  File "{bad}", line 1'}
    )
    check_whole(text.replace("\\\\", "\\").encode(), random.Random(0))


def test_what_cannot_be_printed_would_be_found() -> None:
    assert [is_printable(text) for text in ("é\t█", "a\x1b", "\ud800", "\u2028", "\u202e")] == [True, *[False] * 4]


# --- order among processes --------------------------------------------------------------------------------------------

# A terminal broke their lines, and the rest of a line has no prefix to tell whose it is.
BROKEN = ("wrapped",)


@cache
def of_several_processes() -> list[Path]:
    """The logs whose lines name their process."""
    logs = [path for path in sorted(CORPUS.glob("*/log.txt")) if path.with_name("expect.json").exists()]
    return [
        log for log in logs
        if len({owner for _, owner in owned(log)}) > 2 and not any(word in log.parent.name for word in BROKEN)
    ]  # fmt: skip


@cache
def owned(log: Path) -> list[tuple[bytes, object]]:
    """Its lines, each with the process that it names."""
    raws = re.split(rb"\r\n|\r|\n", log.read_bytes())
    lines = {line.number: line for line in LineReader().feed(b"\n".join(raws) + b"\n")}
    return [(raws[number - 1], (line.process, line.pid)) for number, line in sorted(lines.items())]


def shuffled(lines: list[tuple[bytes, object]], rng: random.Random, late: float) -> bytes:
    """Let every line come late by so many lines at most.

    Each process keeps its own order. A process begins after what was printed before it began, and what was printed
    after its end comes after its end: what one process causes in another has its order.
    """
    last = {owner: index for index, (_, owner) in enumerate(lines)}
    when: dict[object, float] = {}
    floor = 0.0
    order: list[tuple[float, int]] = []
    for index, (_, owner) in enumerate(lines):
        floor = floor if owner in when else max(floor, *when.values(), 0)
        when[owner] = max(when.get(owner, 0), floor, index + rng.uniform(0, late))
        floor = when[owner] if last[owner] == index else floor
        order.append((when[owner], index))
    return b"\n".join(lines[index][0] for _, index in sorted(order)) + b"\n"


def verdict(found: Diagnosis) -> tuple[object, ...]:
    """What must not change. Of ranks that fail alike each may be the first: GPU, sizes and number are left out."""
    process = re.sub(r"\d+", "#", found.process or "")
    return found.fatal, essence(found.text or ""), found.signature, process, found.failure


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_order_among_processes_does_not_change_the_verdict(seed: int) -> None:
    changed = []
    for log in of_several_processes()[seed if SEEDS == 1 else 0 :: 24 if SEEDS == 1 else 1]:
        end = end_of(json.loads(log.with_name("expect.json").read_text()))
        plain = explained([log.read_bytes()], end).diagnosis
        if plain.fatal and plain.process is None:
            # Printed without a prefix, or by nobody: its place among the lines of others is all that tells.
            continue
        told = explained([shuffled(owned(log), random.Random(seed), 60)], end)
        if verdict(told.diagnosis) != verdict(plain):
            changed.append((log.parent.name, verdict(told.diagnosis)))
    assert not changed
