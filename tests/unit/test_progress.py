"""Phases, bars and readiness; and that the cheap filter before a pattern never loses a match."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervise.diagnosis.lines import LineReader
from supervise.diagnosis.prefilter import finder, required_literals
from supervise.diagnosis.prefixes import parse
from supervise.diagnosis.progress import ProgressTracker
from supervise.model.diagnosis import Progress
from supervise.model.profile import PhaseRule, ReadyRule

LOAD = re.compile(
    r"(?P<desc>Loading (?:safetensors|pt) checkpoint shards[^:]*):\s*(?P<pct>\d{1,3})% Completed"
    r" \| (?P<n>\d+)/(?P<tot>\d+)"
)
CAPTURE = re.compile(r"(?P<desc>Capturing (?:CUDA graphs|batches)[^:|]*):\s*(?P<pct>\d{1,3})%\|")
PHASES = (
    PhaseRule("weights", re.compile("Starting to load model|Load weight begin")),
    PhaseRule("compile", re.compile("Dynamo bytecode transform")),
    PhaseRule("graphs", re.compile("Graph capturing|Capturing CUDA graphs")),
)
READY = ReadyRule((re.compile(r"Application startup complete\."),))


def tracker() -> ProgressTracker:
    return ProgressTracker(PHASES, (LOAD, CAPTURE), READY)


def feed(tracked: ProgressTracker, *raws: str) -> list[Progress | None]:
    return [tracked.feed(parse(raw, number)) for number, raw in enumerate(raws, 1)]


def shards(percent: int, done: int, prefix: str = "") -> str:
    return f"{prefix}Loading safetensors checkpoint shards: {percent:3}% Completed | {done}/7 [00:00<?, ?it/s]"


def test_phases_and_percent_are_told_on_change_only() -> None:
    tracked = tracker()
    raws = ("banner", "(Worker pid=1) Starting to load model /m...", shards(43, 3), shards(43, 3), "x")
    assert feed(tracked, *raws) == [
        None, Progress("weights"), Progress("weights", 43, 3, 7), None, None,
    ]  # fmt: skip
    assert tracked.progress == Progress("weights", 43, 3, 7)


def test_a_bar_without_counts() -> None:
    tracked = tracker()
    feed(tracked, "Graph capturing begins")
    assert feed(tracked, "Capturing CUDA graphs (decode, FULL):  40%|####") == [Progress("graphs", 40)]


def test_a_bar_before_any_phase_names_itself() -> None:
    assert feed(tracker(), shards(14, 1)) == [Progress("Loading safetensors checkpoint shards", 14, 1, 7)]


def test_ranks_that_lag_behind_do_not_turn_phases_back() -> None:
    tracked = tracker()
    feed(tracked, "(W pid=1) Starting to load model", "(W pid=1) Dynamo bytecode transform time: 3 s")
    assert feed(tracked, "(W pid=2) Starting to load model", "(W pid=2) Dynamo bytecode transform time: 3 s") == [
        None,
        None,
    ]
    assert tracked.phase == "compile"


def test_of_several_processes_the_slowest_bar_counts() -> None:
    tracked = tracker()
    feed(tracked, "Starting to load model")
    told = feed(
        tracked,
        shards(14, 1, "(A pid=1) "),
        shards(0, 0, "(B pid=2) "),
        shards(100, 7, "(A pid=1) "),
        shards(57, 4, "(B pid=2) "),
    )
    assert [each.percent if each else None for each in told] == [14, 0, None, 57]


def test_the_ready_line_is_kept_and_ends_it() -> None:
    tracked = tracker()
    assert tracked.expects_ready_line
    assert not tracked.ready
    assert feed(tracked, "Starting to load model", "INFO:     Application startup complete.", shards(1, 0)) == [
        Progress("weights"),
        None,
        None,
    ]
    assert tracked.ready
    assert tracked.ready_line is not None
    assert tracked.ready_line.number == 2


def test_carriage_returns_draw_one_bar_after_the_other() -> None:
    tracked = tracker()
    stream = "\r".join(shards(percent, done) for percent, done in ((0, 0), (14, 1), (100, 7))).encode() + b"\n"
    told = [each.percent for line in LineReader().feed(stream) if (each := tracked.feed(line))]
    assert told == [0, 14, 100]


@pytest.mark.parametrize(
    ("pattern", "literals"),
    [
        (r"Application startup complete\.", ("Application startup complete.",)),
        (r"Loading weights took \d+ s", ("Loading weights took ",)),
        (r"^(?:optional )?Starting(?: up)* now", ("Starting",)),
        (r"abc?def", ("def",)),
        (r"ab{0,3}cdef", ("cdef",)),
        (r"abcx*yz", ("abc",)),
        (r"abc+d", ("abc",)),
        (r"one|two", ("one", "two")),
        (r"(?:one|two) three", (" three",)),
        (r"[abc|(] hello", (" hello",)),
        (r"[]x] hello", (" hello",)),
        (r"\d+\s+\w", None),
        (r"(?i:x)hello", ("hello",)),
        (r"\[x\]\(y\) z", ("[x](y) z",)),
        (r"one|a|two", None),
        (r"one\|two|three(?:|x)", ("one|two", "three")),
    ],
)
def test_the_literals_of_which_every_match_holds_one(pattern: str, literals: tuple[str, ...] | None) -> None:
    assert required_literals(re.compile(pattern)) == literals


def test_no_literal_where_case_is_ignored() -> None:
    assert required_literals(re.compile("hello", re.IGNORECASE)) is None
    assert required_literals(re.compile("(?i)hello")) is None


ATOMS = st.sampled_from(
    ["a", "b", "abc", r"\.", r"\d", ".", "[ab]", "[^a]", "(?:ab|c)", "(a)", "(?P<n>ab)?", "^", "$", "abc|"]
)
PATTERNS = st.lists(
    st.tuples(ATOMS, st.sampled_from(["", "", "", "?", "*", "+", "{2}", "{0,1}", "??"])), min_size=1, max_size=6
)


@given(PATTERNS, st.text("abc.1", max_size=12))
def test_the_filter_never_loses_a_match(parts: list[tuple[str, str]], text: str) -> None:
    source = ""
    for named, (atom, count) in enumerate(parts):
        source += atom.replace("<n>", f"<n{named}>") + ("" if atom in "^$" or atom[-1] in "?|" else count)
    pattern = re.compile(source)
    assert bool(finder(pattern)(text)) == bool(pattern.search(text))
