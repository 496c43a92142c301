"""Every log of tests/corpus through `explain`: the first cause right in at least 98 %, no false alarm.

A log's `expect.json` says what must be found; only the keys that are there are asked for. `end` is how the server
ended, null if nobody knows; `line` and `text` (without prefix, its beginning is enough) are of the first cause and null
where nobody printed one; `also` are numbers of further lines that say as much and are as good an answer; `blind` is
true if without its end it cannot but look like a failure; `live` belongs to test_verdict.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from supervise.diagnosis.whole import UNKNOWN_END, Explained, explain
from supervise.model.diagnosis import End
from supervise.profiles.load import load_all
from supervise.profiles.signatures import available_sets, load_signatures

CORPUS = Path(__file__).parent.parent / "corpus"
RIGHT = 0.98
KEYS = {
    "end", "fatal", "line", "text", "process", "rank", "signature", "class", "phase", "engine", "attempts", "also",
    "blind", "live",
}  # fmt: skip
OF_ONE_LINE = ("line", "text", "process", "rank", "signature")


class Case(NamedTuple):
    name: str
    expected: dict[str, Any]
    told: Explained
    blind: Explained


def end_of(expected: dict[str, Any]) -> End:
    end = expected.get("end")
    if not end or (end["code"] is None and end["signal"] is None):
        return UNKNOWN_END
    return End(end["code"], end["signal"], end["requested"], tuple(end["sent"]))


@cache
def cases() -> tuple[Case, ...]:
    return tuple(
        case(path.parent) for path in sorted(CORPUS.glob("*/expect.json")) if path.with_name("log.txt").exists()
    )


def case(directory: Path) -> Case:
    expected = json.loads((directory / "expect.json").read_text())
    end = end_of(expected)
    told = read(directory, end)
    return Case(directory.name, expected, told, told if end is UNKNOWN_END else read(directory, UNKNOWN_END))


def read(directory: Path, end: End) -> Explained:
    profiles, signatures = load_all(), load_signatures(available_sets())
    return explain([(directory / "log.txt").read_bytes()], end, signatures, profiles)


def found(told: Explained) -> dict[str, Any]:
    diagnosis = told.diagnosis
    return {
        "fatal": diagnosis.fatal,
        "line": diagnosis.line,
        "text": diagnosis.text,
        "process": diagnosis.process,
        "rank": diagnosis.rank,
        "signature": diagnosis.signature,
        "class": diagnosis.failure.value,
        "phase": diagnosis.phase if diagnosis.fatal else None,
        "engine": told.engine,
        "attempts": told.attempts,
    }


def misses(expected: dict[str, Any], told: Explained, *, only: tuple[str, ...] = ()) -> list[str]:
    """What is not as it is expected, in words."""
    actual = found(told)
    elsewhere = actual["line"] in expected.get("also", ())
    asked = [
        key
        for key in expected
        if key in actual and (not only or key in only) and not (elsewhere and key in OF_ONE_LINE)
    ]
    return [
        f"{key} {actual[key]!r} for {expected[key]!r}" for key in asked if not same(key, expected[key], actual[key])
    ]


def same(key: str, expected: Any, actual: Any) -> bool:
    if key == "text" and expected is not None:
        return actual is not None and actual.startswith(expected)
    return bool(expected == actual)


def share(all_misses: dict[str, list[str]]) -> float:
    wrong = {name: told for name, told in all_misses.items() if told}
    for name, told in wrong.items():
        print(f"{name:<44} {'; '.join(told)}")
    right = 1 - len(wrong) / len(all_misses)
    print(f"{len(all_misses)} logs, {right:.1%} right")
    return right


def test_every_expectation_is_one_that_is_asked() -> None:
    assert {key for case in cases() for key in case.expected} <= KEYS


def test_there_is_a_corpus() -> None:
    assert len(cases()) >= 20


def test_the_first_cause() -> None:
    assert share({case.name: misses(case.expected, case.told) for case in cases()}) >= RIGHT


def test_the_first_cause_where_nobody_knows_how_it_ended() -> None:
    printed = [case for case in cases() if case.expected.get("line") is not None]
    keys = ("line", "text", "process", "signature")
    assert share({case.name: misses(case.expected, case.blind, only=keys) for case in printed}) >= RIGHT


def test_no_false_alarm() -> None:
    """Neither as it ended nor where nobody knows the end."""
    sound = [case for case in cases() if case.expected.get("fatal") is False]
    told = [(case.name, case.told) for case in sound]
    blind = [(case.name, case.blind) for case in sound if not case.expected.get("blind")]
    alarms = [f"{name}: {each.diagnosis}" for name, each in told + blind if each.diagnosis.fatal]
    assert not alarms, "\n".join(alarms)


def test_another_line_that_says_as_much_is_right_and_no_other_is() -> None:
    one = next(case for case in cases() if case.name == "vllm-truncated-weights")
    line = one.expected["line"]
    assert misses({**one.expected, "line": 1, "text": "other", "also": [2, line]}, one.told) == []
    assert misses({**one.expected, "line": 1, "also": [2, line + 1]}, one.told)


@pytest.mark.parametrize("key", ["line", "text", "signature", "class", "fatal"])
def test_what_is_not_as_expected_is_a_miss(key: str) -> None:
    one = next(case for case in cases() if case.name == "vllm-truncated-weights")
    wrong = {**one.expected, "fatal": True, key: "other"}
    assert [miss.split()[0] for miss in misses(wrong, one.told)] == [key]
