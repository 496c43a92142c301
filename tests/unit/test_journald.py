"""Lines for the journal: a priority in front of each, and only where the stream really is the journal."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest

from supervise.report.console import Console, for_stream
from supervise.report.journald import Journal, is_journal
from supervise.report.live import Terminal
from supervise.report.present import Present


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[TextIO]:
    with (tmp_path / "journal").open("w", encoding="utf-8") as opened:
        yield opened


def _named(stream: TextIO) -> str:
    found = os.fstat(stream.fileno())
    return f"{found.st_dev}:{found.st_ino}"


class TestWhetherItIs:
    def test_the_very_stream(self, stream: TextIO, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("JOURNAL_STREAM", _named(stream))
        assert is_journal(stream, os.environ)
        assert type(for_stream(stream)) is Journal

    def test_inherited_from_a_service_whose_stream_it_was(
        self, stream: TextIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("JOURNAL_STREAM", _named(stream))
        with (tmp_path / "other").open("w", encoding="utf-8") as other:
            assert not is_journal(other, os.environ)
            assert type(for_stream(other)) is Console

    def test_a_terminal_of_a_desktop_that_is_a_service(self, monkeypatch: pytest.MonkeyPatch) -> None:
        ours, theirs = os.openpty()
        with open(theirs, "w", encoding="utf-8") as terminal:
            monkeypatch.setenv("JOURNAL_STREAM", _named(terminal))
            monkeypatch.setenv("TERM", "xterm")
            assert type(for_stream(terminal)) is Terminal
            monkeypatch.delenv("JOURNAL_STREAM")
            assert type(for_stream(terminal)) is Terminal
            assert type(for_stream(terminal, plain=True)) is Present
        os.close(ours)

    @pytest.mark.parametrize("told", ["", ":", "1", "1:", ":1", "x:y", "1:2:3", "-1:2"])
    def test_what_names_none(self, stream: TextIO, told: str) -> None:
        assert not is_journal(stream, {"JOURNAL_STREAM": told})

    def test_a_stream_without_a_descriptor(self) -> None:
        assert not is_journal(io.StringIO(), {"JOURNAL_STREAM": "1:2"})


class TestPriorities:
    @pytest.mark.parametrize(
        ("label", "text", "expected"),
        [
            ("slate", "clean", 6),
            ("ready", "in 4 s", 5),
            ("warning", "the guard was killed", 4),
            ("stalled", "no progress", 4),
            ("cause", "CUDA out of memory", 3),
            ("NOT CLEAN", "1 process left", 3),
        ],
    )
    def test_by_the_subject(self, label: str, text: str, expected: int) -> None:
        told = io.StringIO()
        Journal(told).line(label, text)
        assert told.getvalue().startswith(f"<{expected}>{label}")
        assert told.getvalue().count("\n") == 1

    def test_a_further_line_has_that_of_its_subject_unless_it_is_worse(self) -> None:
        told = io.StringIO()
        journal = Journal(told)
        journal.line("cause", "it broke")
        journal.note("in line 3")
        journal.line("slate", "2 findings")
        journal.note("killed  1234")
        journal.note("BLOCKED run X is live")
        journal.note("        supervise stop X")
        journal.line("try", "something else")
        assert [line[1] for line in told.getvalue().splitlines()] == [*"3366336"]
