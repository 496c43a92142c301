"""A log that is indented as a whole is read as if it were not; what is indented within a log stays what it is."""

from __future__ import annotations

import pytest

from supervise.diagnosis.margins import Margins
from supervise.diagnosis.prefixes import parse

REPORT = (
    "Traceback (most recent call last):",
    '  File "/srv/app.py", line 3, in start',
    "    raise ValueError(kind)",
    "ValueError: no such kind",
)
LOGGED = "INFO 11-30 05:27:01 [core.py:77] Received request x: prompt: 'Why this?"


def texts(*raws: str) -> list[str]:
    margins = Margins()
    return [margins.feed(parse(raw, number)).text for number, raw in enumerate(raws, 1)]


@pytest.mark.parametrize("margin", ["    ", "\t", "   ", " "])
def test_the_margin_of_a_block_is_taken_off(margin: str) -> None:
    assert texts("It fails:", "", *(margin + line for line in REPORT)) == ["It fails:", "", *REPORT]


def test_it_ends_with_the_block() -> None:
    indented = tuple("    " + line for line in REPORT)
    assert texts(*indented, "Any idea?", "    my own words") == [*REPORT, "Any idea?", "    my own words"]


def test_empty_lines_do_not_end_it() -> None:
    assert texts("    " + REPORT[0], "", "    " + REPORT[1]) == [REPORT[0], "", REPORT[1]]


def test_what_a_log_quotes_keeps_its_margin() -> None:
    """A prompt of several lines, in a log that itself has no margin."""
    quoted = tuple("    " + line for line in REPORT)
    assert texts(LOGGED, *quoted)[1:] == list(quoted)


def test_the_frames_of_a_traceback_whose_head_is_cut_off_keep_theirs() -> None:
    assert texts(*REPORT[1:]) == list(REPORT[1:])


def test_the_whole_line_is_still_known() -> None:
    line = Margins().feed(parse("    INFO 11-30 05:27:01 [core.py:77] x", 7))
    assert (line.raw, line.text, line.number) == ("    INFO 11-30 05:27:01 [core.py:77] x", "x", 7)
