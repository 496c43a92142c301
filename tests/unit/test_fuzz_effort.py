"""Hostile logs cost no more than others: what is held does not grow with a log, and effort grows with it, not faster."""

from __future__ import annotations

import importlib
import pkgutil
import re
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass

import pytest

from supervise import diagnosis
from supervise.diagnosis.whole import UNKNOWN_END, explain
from supervise.profiles.load import load_all
from supervise.profiles.signatures import available_sets, load_signatures

PROFILES = load_all()
SIGNATURES = load_signatures(available_sets())


def read(chunks: Iterable[bytes]) -> None:
    explain(chunks, UNKNOWN_END, SIGNATURES, PROFILES)


def stream(make: Callable[[int], bytes], size: int) -> Iterator[bytes]:
    """So many bytes of a log, or a bit more."""
    done, number = 0, 0
    while done < size:
        chunk = b""
        while len(chunk) < 16_384:
            chunk, number = chunk + make(number), number + 1
        done += len(chunk)
        yield chunk


SMILE = "\U0001f600".encode()
OPENER = b"Traceback (most recent call last):\n"
FRAME = b'  File "x.py", line 3, in f\n'
REPORT = OPENER + FRAME + b"ValueError: 1\n"
QUOTED = (OPENER + FRAME * 9 + b"ValueError: 1").replace(b'"', b'\\"').replace(b"\n", b"\\n")


def process(number: int) -> bytes:
    return b"(W%d pid=%d) " % (number, number)


HOSTILE: dict[str, Callable[[int], bytes]] = {
    "one line": lambda i: b"a" * 4096,
    "one record": lambda i: (b"" if i else b'{"message":"') + b"a" * 4096,
    "carriage returns": lambda i: b"%d\r" % i * 400,
    "garbage": lambda i: bytes(range(256)) * 16,
    "blanks": lambda i: b" " * 9000 + b"\n",
    "brackets": lambda i: b"([{" * 3000 + b"\n",
    "half a prefix": lambda i: b"(a pid=" * 1000 + b"\n",
    "colons": lambda i: b": " * 4000 + b"\n",
    "processes": lambda i: process(i) + OPENER,
    "long names": lambda i: b"(" + b"W" * 4000 + b"%d pid=%d) " % (i, i) + OPENER,
    "open reports": lambda i: process(i // 8) + (OPENER if i % 8 == 0 else b"  " + SMILE + b"x" * 16_000 + b"\n"),
    "reports": lambda i: OPENER + FRAME + b"ValueError: %d\n" % i,
    "openers": lambda i: OPENER,
    "chain": lambda i: REPORT + b"\nDuring handling of the above exception, another exception occurred:\n\n",
    "echoes": lambda i: process(i % 8) + b"ERROR 11-30 05:00:00 [core.py:9] EngineCore encountered a fatal error.\n",
    "crashes": lambda i: process(i) + b"Fatal Python error: Aborted\n" + process(i) + FRAME,
    "boxes": lambda i: "╭─ Error ─╮\n│ x{}y\n".format(" " * 8000).encode(),
    "records without end": lambda i: b'{"message":"' + SMILE + b"x" * 30_000 + b"\n",
    "records": lambda i: b'{"message":"%s","level":"ERROR","processName":"W","process":%d,"a":"%s"}\n'
    % (QUOTED, i, b"x" * 60_000),
    "attempts": lambda i: b"Killed\nvLLM API server version 1\n" + OPENER + FRAME + b"ValueError: " + b"x" * 9000 + b"\n",
}  # fmt: skip

# --- memory -----------------------------------------------------------------------------------------------------------

SHORT, LONG = 150_000, 600_000
# Of each process a few lines are held, shortened, and of some two hundred processes: what is held grows until then, but
# by less than what is read.
GROWS_AT_MOST = 0.5


def peak(work: Callable[[Iterable[bytes]], object], make: Callable[[int], bytes], size: int) -> int:
    """Bytes that reading so much of a log takes at most."""
    tracemalloc.start()
    try:
        work(stream(make, size))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def growth(work: Callable[[Iterable[bytes]], object], make: Callable[[int], bytes]) -> float:
    """Bytes held for each further byte of the log."""
    peak(work, make, 1)  # what is loaded and compiled but once
    return (peak(work, make, LONG) - peak(work, make, SHORT)) / (LONG - SHORT)


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_held_does_not_grow_with_the_log(name: str) -> None:
    assert growth(read, HOSTILE[name]) < GROWS_AT_MOST


def test_whoever_holds_a_log_would_be_found() -> None:
    assert growth(list, HOSTILE["reports"]) > GROWS_AT_MOST


# --- time -------------------------------------------------------------------------------------------------------------


def seconds(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


def is_slow(work: Callable[[int], object], size: int, least: float) -> bool:
    """Whether four times as much takes much more than four times as long, or than `least` seconds.

    What seems to be so is measured again, because anything may have come in between.
    """
    return all(
        (long := seconds(lambda: work(4 * size))) > least and long > 8 * seconds(lambda: work(size)) for _ in range(5)
    )


@pytest.mark.parametrize("name", HOSTILE)
def test_effort_grows_with_the_log_and_not_faster(name: str) -> None:
    read(stream(HOSTILE[name], 1))
    assert not is_slow(lambda size: read(stream(HOSTILE[name], size)), 30_000, 0.02)


def patterns() -> dict[str, re.Pattern[str]]:
    """All patterns of the diagnosis and of the profiles but those of signatures, which prove themselves."""
    found: dict[str, re.Pattern[str]] = {}
    for module in pkgutil.iter_modules(diagnosis.__path__):
        held = vars(importlib.import_module(f"{diagnosis.__name__}.{module.name}"))
        for name, value in held.items():
            if not name.startswith("__"):
                found.update({f"{module.name}.{name} {each.pattern}": each for each in within(value)})
    for profile in PROFILES.values():
        held = (profile.phases, profile.percents, profile.ready)
        found.update({f"{profile.name} {each.pattern}": each for each in within(held)})
    return {name: each for name, each in found.items() if isinstance(each.pattern, str)}


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
LONGEST = 16_384


def words(pattern: re.Pattern[str]) -> list[str]:
    """The plain pieces of a pattern: what it begins with, and what may be repeated to mislead it."""
    plain = re.sub(r"\\(?P<char>.)", lambda found: found[1] if not found[1].isalnum() else "\n", pattern.pattern)
    return sorted(set(re.findall(r"[A-Za-z_ ]{3,}[:=('\"/]?", plain)), key=len)[-4:]


def hostile(pattern: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    own = words(pattern)
    yield from ((head, unit) for head in ("", *own[-2:]) for unit in (*UNITS, *own))


def misleads(pattern: re.Pattern[str], head: str, unit: str) -> bool:
    def work(size: int) -> None:
        pattern.search(head + unit * (size // len(unit)) + "!")

    return is_slow(work, LONGEST // 4, 0.005)


def test_no_pattern_is_slow_on_a_long_line() -> None:
    found = patterns()
    assert len(found) > 150
    # Essences are taken of far shorter texts, once for each diagnosis.
    assert not [
        (name, head, unit)
        for name, pattern in found.items()
        if not name.startswith("essence.")
        for head, unit in hostile(pattern)
        if misleads(pattern, head, unit)
    ]


@pytest.mark.parametrize(("source", "head", "unit"), [(r"x (\S.*?) *[|]$", "x a", " "), (r"a.*b", "", "a")])
def test_a_slow_pattern_would_be_found(source: str, head: str, unit: str) -> None:
    assert misleads(re.compile(source), head, unit)
