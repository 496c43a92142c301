"""Hostile logs cost no more than others: memory does not grow with a log, and effort grows with it, not faster.

With FUZZ_ROUNDS set, as for test_fuzz, memory is watched for all of them.
"""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import re
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from itertools import chain
from typing import NamedTuple

import pytest

from supervise import diagnosis
from supervise.diagnosis.lines import LineReader
from supervise.diagnosis.whole import UNKNOWN_END, explain
from supervise.profiles.load import load_all
from supervise.profiles.signatures import available_sets, load_signatures
from tests.support.effort import is_slow

PROFILES = load_all()
SIGNATURES = load_signatures(available_sets())


def read(chunks: Iterable[bytes]) -> None:
    explain(chunks, UNKNOWN_END, SIGNATURES, PROFILES)


def stream(make: Callable[[int], bytes], size: int) -> Iterator[bytes]:
    """So many bytes of a log, or a bit more."""
    done, number = 0, 0
    while done < size:
        chunk = b""
        while len(chunk) < 8192:
            chunk, number = chunk + make(number), number + 1
        done += len(chunk)
        yield chunk


SMILE = "\U0001f600".encode()
OPENER = b"Traceback (most recent call last):\n"
FRAME = b'  File "' + b"x" * 300 + b'.py", line 3, in f\n'
REPORT = OPENER + FRAME + b"ValueError: 1\n"
QUOTED = (OPENER + FRAME * 9 + b"ValueError: 1").replace(b'"', b'\\"').replace(b"\n", b"\\n")


def process(number: int) -> bytes:
    return b"(W%d pid=%d) " % (number, number)


HOSTILE: dict[str, Callable[[int], bytes]] = {
    "one line": lambda i: b"a" * 4096,
    "one record": lambda i: (b"" if i else b'{"message":"') + b"a" * 4096,
    "carriage returns": lambda i: b"%d " % i * 60 + b"\r",
    "garbage": lambda i: bytes(each for each in range(256) if each not in b"\r\n") * 16 + b"\r\n",
    "blanks": lambda i: b" " * 9000 + b"\n",
    "brackets": lambda i: b"([{" * 3000 + b"\n",
    "half a prefix": lambda i: b"(a pid=" * 1000 + b"\n",
    "colons": lambda i: b": " * 4000 + b"\n",
    "processes": lambda i: process(i) + OPENER[:-1] + b"x" * 200 + b"\n",
    "long names": lambda i: b"(" + b"W" * 4000 + b"%d pid=%d) " % (i, i) + OPENER,
    "open reports": lambda i: process(i // 8) + (OPENER if i % 8 == 0 else b"  " + SMILE + b"x" * 16_000 + b"\n"),
    "reports": lambda i: OPENER + FRAME + b"ValueError: %d\n" % i,
    "openers": lambda i: OPENER[:-1] + b"x" * 200 + b"\n",
    "chains": lambda i: REPORT + b"\nDuring handling of the above exception, another exception occurred:\n\n",
    "echoes": lambda i: (
        process(i % 8) + b"ERROR 11-30 05:00:00 [core.py:9] EngineCore encountered a fatal error." + b"x" * 200 + b"\n"
    ),
    "crashes": lambda i: process(i) + b"Fatal Python error: Aborted\n" + process(i) + FRAME,
    "boxes": lambda i: "╭─ Error ─╮\n│ x{}y\n".format(" " * 8000).encode(),
    "records without end": lambda i: b'{"message":"' + SMILE + b"x" * 30_000 + b"\n",
    "records": lambda i: b'{"message":"%s","level":"ERROR","processName":"W","process":%d,"a":"%s"}\n'
    % (QUOTED, i % 4, b"x" * 60_000),
    "attempts": lambda i: b"Killed\nvLLM API server version 1\n" + REPORT[:-2] + b"x" * 9000 + b"\n",
}  # fmt: skip

FEW_LINES = ("one record", "brackets", "long names", "open reports", "records without end", "records")

# --- memory -----------------------------------------------------------------------------------------------------------

SHORT, LONG = 400_000, 1_600_000
# Of each process a few lines are held, shortened, and of some two hundred processes: what is held grows until then, but
# by less than what is read.
GROWS_AT_MOST = 1.0
# Whatever allocates is slow while allocations are watched: few long lines always, the rest in long runs.
WATCHED = [name for name in HOSTILE if name in FEW_LINES or "FUZZ_ROUNDS" in os.environ]


def peak(work: Callable[[Iterable[bytes]], object], make: Callable[[int], bytes], size: int) -> int:
    """Bytes that reading so much of a log takes at most."""
    tracemalloc.start()
    try:
        work(chain([b"a\n" * 1000], stream(make, size)))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def growth(work: Callable[[Iterable[bytes]], object], make: Callable[[int], bytes]) -> float:
    """Bytes held for each further byte of the log."""
    peak(work, make, 1)  # what is loaded and compiled but once
    return (peak(work, make, LONG) - peak(work, make, SHORT)) / (LONG - SHORT)


@pytest.mark.parametrize("name", WATCHED)
def test_what_is_held_does_not_grow_with_the_log(name: str) -> None:
    assert growth(read, HOSTILE[name]) < GROWS_AT_MOST


def test_whoever_holds_a_log_would_be_found() -> None:
    def hold(chunks: Iterable[bytes]) -> object:
        reader = LineReader()
        return [reader.feed(chunk) for chunk in chunks]

    assert growth(hold, HOSTILE["brackets"]) > GROWS_AT_MOST


# --- time -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HOSTILE)
def test_effort_grows_with_the_log_and_not_faster(name: str) -> None:
    read(stream(HOSTILE[name], 1))
    assert not is_slow(lambda size: read(stream(HOSTILE[name], size)), 12_000, 0.03)


class Search(NamedTuple):
    source: str
    run: Callable[[str], object]


# Those of tables, whose names stand in no call.
SEARCHED = ("episodes._BANNERS", "episodes._ENDED", "facts._MEASURES", "profile")


def patterns() -> dict[str, Search]:
    """All patterns of the diagnosis and of the profiles but those of signatures, which prove themselves.

    Essences are taken of far shorter texts, once for each diagnosis; bars are looked for in the first characters only.
    """
    found: dict[str, Search] = {}
    for info in pkgutil.iter_modules(diagnosis.__path__):
        module = importlib.import_module(f"{diagnosis.__name__}.{info.name}")
        source = inspect.getsource(module)
        for name, value in vars(module).items():
            if not name.startswith("__") and info.name != "essence":
                calls = re.search(rf"\b{name}\.(?:search|sub|finditer|findall)\b", source) is not None
                found |= searches(f"{info.name}.{name}", value, anywhere=calls)
    for profile in PROFILES.values():
        found |= searches("profile", (profile.phases, profile.ready), anywhere=True)
    return found


def searches(name: str, value: object, *, anywhere: bool) -> dict[str, Search]:
    anywhere = anywhere or name in SEARCHED
    return {
        f"{name} {each.pattern}": Search(each.pattern, each.search if anywhere else each.match)
        for each in within(value)
        if isinstance(each.pattern, str)
    }


def within(value: object, depth: int = 5) -> Iterator[re.Pattern[str]]:
    if isinstance(value, re.Pattern):
        yield value
    elif depth and not isinstance(value, (type, str, bytes)):
        yield from (each for inner in parts(value) for each in within(inner, depth - 1))


def parts(value: object) -> Iterable[object]:
    if isinstance(value, Mapping):
        return value.values()
    if isinstance(value, (list, tuple, set, frozenset)):
        return value
    return [getattr(value, each.name) for each in fields(value)] if is_dataclass(value) else ()


UNITS = (
    "a", " ", "1", "A", "-", "/", ":", "(", "[", "'", "a ", "a.", "a/", "a-", "a:", "A1 ", ": ", "1 ", "1.", "1;", "1:",
    "a=a ", "│ x ", "x│", "%", "a: ", "^", "~ ", "\x1b[", "'a', ", "#, ", "/a ", "\\", '"',
)  # fmt: skip
LONGEST = 8192


def words(source: str) -> list[str]:
    """The plain pieces of a pattern: what it begins with, and what may be repeated to mislead it."""
    plain = re.sub(r"\\(.)", lambda found: "\n" if found[1].isalnum() else found[1], source)
    return sorted(set(re.findall(r"[A-Za-z_ ]{3,}[:=('\"/]?", plain)), key=len)[-3:]


def hostile(source: str) -> Iterator[tuple[str, str]]:
    own = words(source)
    yield from ((head, unit) for head in ("", *own[-1:]) for unit in (*UNITS, *own))


def misleads(run: Callable[[str], object], head: str, unit: str) -> bool:
    return is_slow(lambda size: run(head + unit * (size // len(unit)) + "!"), LONGEST // 4, 0.003)


def test_no_pattern_is_slow_on_a_long_line() -> None:
    found = patterns()
    assert len(found) > 150
    assert not [
        (name, head, unit)
        for name, each in found.items()
        for head, unit in hostile(each.source)
        if misleads(each.run, head, unit)
    ]


@pytest.mark.parametrize(("source", "head", "unit"), [(r"x (\S.*?) *[|]$", "x a", " "), (r"a.*b", "", "a")])
def test_a_slow_pattern_would_be_found(source: str, head: str, unit: str) -> None:
    # A pause while the short line is measured hides it.
    assert any(misleads(re.compile(source).search, head, unit) for _ in range(5))
