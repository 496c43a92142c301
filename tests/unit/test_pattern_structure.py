"""What the structure of a pattern tells of the effort that it can take, before anything is searched with it."""

from __future__ import annotations

import re

import pytest

from supervise.profiles.signatures import available_sets, load_signatures
from supervise.profiles.structure import trouble


@pytest.mark.parametrize(
    "pattern",
    [
        r"^((\w+\s?)*)*ACME fault (?P<n>\d+)",
        r"^(?:a|a)*(?:\w|\w)*(?:\w|\w)*ACME fault (?P<n>\d+)",
        r"^ACME fault (?P<n>\d+)((.|\w|\s)+)+ in x",
        r"^ACME fault (?P<n>\d+)(?: in (?:[a-z]+ ?)*end$)?",
        r"^ACME fault (?P<n>\d+) in x((x+)+y)?",
        r"^(?:\d{1,3}\.?)+x",
        r"^(?:(?:a?|b?)c)*d",
        r"^(a*b*)*c",
        r"^(?:a|aa){5,40}$",
        r"^(?:sub\.|[\w.]+: )*x",
        r"^x(?=(a+)+b)",
    ],
)
def test_a_repeat_that_reads_the_same_text_in_two_ways_is_found(pattern: str) -> None:
    assert "exponential" in (trouble(re.compile(pattern)) or "")


@pytest.mark.parametrize(
    "pattern",
    [
        r"^ACME fault (?P<n>\d+)(?: [a-z]*[a-y]*[b-z]*[a-z]*Q)?",
        r"^.*foo.*bar",
        r"a+b",
        r"foo.*bar",
        r"^(?:\w+ )*(?:\w+ )*x",
        r"^.{0,600}a.{0,600}a.{0,600}b",
    ],
)
def test_repeats_that_share_a_text_are_found(pattern: str) -> None:
    assert "share the same text" in (trouble(re.compile(pattern)) or "")


@pytest.mark.parametrize(
    "pattern",
    [
        r"^a+b",
        r"foo(?P<x>.*)",
        r"^foo .+$",
        r"^(?:\w+ )*x",
        r"^(?:[\w.]+: ){0,6}.{0,120}y",
        r"^[a-z]*[0-9]*!",
        r"^(?:[^\"\\]|\\.)*\"",
        r"^\S+ \d+ (?:on|in) \S+$",
        r"x{40}y{0,60}z",
    ],
)
def test_what_is_separated_or_bounded_is_left_alone(pattern: str) -> None:
    assert trouble(re.compile(pattern)) is None


def test_a_pattern_beyond_measure_is_refused() -> None:
    assert trouble(re.compile("(?:" * 4 + "abcdefgh" * 12 + "){4}" * 4)) == "the pattern is too large"


def test_all_that_comes_along_is_safe() -> None:
    known = load_signatures(available_sets())
    faults = [(entry.id, trouble(entry.pattern)) for entry in (*known.signatures, *known.traps)]
    assert [each for each in faults if each[1]] == []
