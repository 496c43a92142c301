"""When it should be ready, told from earlier attempts: which of them count, and what follows from them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervise.attempts.eta import UNKNOWN, Eta, essence, history, remaining
from supervise.attempts.store import Run
from supervise.profiles.load import load

VLLM = load("vllm")
PAST = {"start": 10.0, "weights": 100.0, "graphs": 20.0}


@pytest.mark.parametrize(
    ("so_far", "percent", "expected"),
    [
        ({"start": 4.0}, None, Eta(6 + 120.0)),
        ({"start": 10.0, "weights": 30.0}, None, Eta(70 + 20.0)),
        ({"start": 10.0, "weights": 30.0}, 25, Eta(90 + 20.0)),
        ({"start": 10.0, "weights": 30.0}, 3, Eta(70 + 20.0)),
        ({"start": 10.0, "weights": 130.0}, 100, Eta(20.0)),
        ({"start": 10.0, "weights": 180.0, "graphs": 25.0}, None, Eta(0.0)),
        ({"start": 10.0, "weights": 251.0}, None, Eta(None, overdue=True)),
        ({"start": 10.0, "compile": 1.0}, None, UNKNOWN),
        ({}, None, UNKNOWN),
    ],
)
def test_the_rest_of_this_phase_and_the_later_ones(so_far, percent, expected):
    assert remaining([PAST], so_far, percent) == expected


def test_the_middle_one_of_several_counts():
    others = [{"start": 10.0, "weights": seconds} for seconds in (100.0, 60.0, 5000.0)]
    assert remaining(others, {"start": 10.0}) == Eta(100.0)


def test_without_a_past_nobody_knows():
    assert remaining([], {"start": 1.0}) == UNKNOWN


PHASES = st.dictionaries(st.sampled_from("abcd"), st.floats(0, 1e5), min_size=1)


@given(st.lists(PHASES, max_size=5), PHASES, st.none() | st.floats(0, 100))
def test_it_is_never_negative(before, so_far, percent):
    seconds = remaining(before, so_far, percent).seconds
    assert seconds is None or seconds >= 0


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("vllm serve m --port 8000", "vllm serve m --port=9000"),
        ("/venv/bin/vllm serve m", "vllm serve m"),
        ("vllm serve m --served-model-name a b --tensor-parallel-size 2", "vllm serve m --tensor-parallel-size 2"),
        ("vllm serve m --served_model_name a", "vllm serve m"),
        ("vllm serve m --host 0.0.0.0 --api-key a b", "vllm serve m"),
    ],
)
def test_where_it_answers_does_not_matter(one, other):
    assert essence(one.split(), VLLM) == essence(other.split(), VLLM)


@pytest.mark.parametrize(
    "words", ["vllm serve other", "vllm serve m --enforce-eager", "vllm serve m -tp 2", "vllm x m"]
)
def test_anything_else_does(words):
    assert essence(words.split(), VLLM) != essence(["vllm", "serve", "m"], VLLM)


def attempt(run: Run, argv: str = "vllm serve m", *, ready_s: float | None = 130.0, **said):
    opened = run.open_attempt()
    opened.write("attempt", {"profile": "vllm", "model": "m", "argv": argv.split(), **said})
    run.close_attempt(opened, {"failed": False, "outcome": "asked", "ready_s": ready_s, "phases": PAST})
    return opened


@pytest.fixture
def run(tmp_path) -> Run:
    (made := Run(str(tmp_path), "r")).create()
    return made


def present(run: Run):
    opened = run.open_attempt()
    opened.write("attempt", {"profile": "vllm", "model": "m", "argv": ["vllm", "serve", "m", "--port", "1"]})
    return opened


def test_only_the_same_launch_that_became_ready_counts(run):
    attempt(run)
    attempt(run, ready_s=None)
    attempt(run, "vllm serve m --enforce-eager")
    attempt(run, model="other")
    attempt(run, "vllm serve m --port 9")
    assert history(present(run), VLLM) == [PAST, PAST]


def test_no_more_than_the_last_twenty_are_read(run):
    attempt(run)
    for _ in range(20):
        attempt(run, "vllm serve other")
    assert history(present(run), VLLM) == []


@pytest.mark.parametrize("phases", [[1], {"weights": "1"}, {"weights": float("inf")}, {"weights": -1.0}])
def test_an_outcome_that_none_of_us_writes_is_not_believed(run, phases):
    told = attempt(run)
    told.write("outcome", {"ready_s": 1.0, "phases": phases})
    assert history(present(run), VLLM) == []


@pytest.mark.parametrize(
    ("eta", "spent_s", "told"),
    [
        (UNKNOWN, 3.0, ""),
        (Eta(0.4), 0.3, ""),
        (Eta(4.9), 30.0, ""),
        (Eta(5.0), 30.0, "ETA 5 s"),
        (Eta(None, overdue=True), 9.9, ""),
        (Eta(None, overdue=True), 10.0, "overdue"),
    ],
)
def test_of_a_few_seconds_nothing_is_told(eta: Eta, spent_s: float, told: str) -> None:
    assert eta.told(spent_s) == told
