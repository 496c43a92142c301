"""A terminal that is not ours alone, has another encoding, no name, or stands still when we leave."""

from __future__ import annotations

import os
import termios
import threading
from dataclasses import replace

import pytest

from supervise.report.console import Console, for_stream
from supervise.report.live import Terminal
from supervise.report.present import Present
from supervise.report.scene import Scene
from tests.support.pty import Pty

SCENE = Scene("X", 1, "starting", elapsed_s=1, log=("loads",))


@pytest.mark.parametrize("other", [Terminal, Present])
def test_nothing_is_drawn_where_another_one_writes_and_no_line_is_lost(pty: Pty, other: type[Present]) -> None:
    assert pty.console.show(SCENE)
    second = other(pty.stream)
    second.line("note", "of the other one")
    assert not pty.console.show(replace(SCENE, elapsed_s=2))
    pty.console.line("note", "of this one")
    second.line("note", "more of it")
    pty.read()
    assert pty.shown.all.endswith("  loads\nnote     of the other one\n\nnote     of this one\nnote     more of it")
    second.suspend()
    assert pty.console.show(SCENE)
    second.line("note", "it goes on")
    second.close()
    assert pty.console.show(replace(SCENE, elapsed_s=3)), "it is over"


def test_on_another_terminal_anybody_may_write(pty: Pty) -> None:
    elsewhere = Pty()
    elsewhere.console.line("note", "there")
    assert elsewhere.console.show(SCENE)
    assert pty.console.show(SCENE)
    elsewhere.close()


def test_what_the_encoding_does_not_have_is_shown_by_what_looks_alike(pty: Pty) -> None:
    with open(os.dup(pty.stream.fileno()), "w", encoding="latin-1") as stream:
        console = Terminal(stream)
        console.line("note", "a \u00b7 b \u2026 \u4e2d")
        console.show(replace(SCENE, log=("\u4e2d \u00e9",)))
        written = pty.read_raw()
        assert b"note     a \xb7 b ~ \\u4e2d\r\n" in written
        assert b"-" * 79 in written
        assert b"?? \xe9" in written
        console.close()


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, "…"),
        ({"LANG": "C.UTF-8"}, "…"),
        ({"LANG": "C"}, "~"),
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, "~"),
        ({"LANG": "C", "LC_CTYPE": "de_DE.UTF-8"}, "…"),
        ({"LANG": "de_DE.UTF-8", "LC_ALL": "POSIX"}, "~"),
        ({"LANG": "C", "LC_ALL": "C.UTF-8"}, "…"),
    ],
)
def test_who_asks_for_the_c_locale_gets_ascii(
    pty: Pty, monkeypatch: pytest.MonkeyPatch, env: dict[str, str], expected: str
) -> None:
    for name in ("LANG", "LC_CTYPE", "LC_ALL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    Console(pty.stream).line("note", "…")
    assert pty.read().decode().split() == ["note", expected]


@pytest.mark.parametrize(("term", "views"), [("xterm", True), ("", False), ("dumb", False), (None, False)])
def test_a_view_needs_a_terminal_with_a_name(
    pty: Pty, monkeypatch: pytest.MonkeyPatch, term: str | None, views: bool
) -> None:
    monkeypatch.delenv("TERM")
    if term is not None:
        monkeypatch.setenv("TERM", term)
    assert for_stream(pty.stream).views is views


@pytest.mark.parametrize("goes_on", [True, False])
def test_whoever_has_stopped_the_terminal_has_a_moment_for_the_last_lines(pty: Pty, goes_on: bool) -> None:
    fd = pty.stream.fileno()
    pty.console.show(SCENE)
    pty.read()
    termios.tcflow(fd, termios.TCOOFF)
    pty.console.line("exit", "0")
    later = threading.Timer(0.3, termios.tcflow, (fd, termios.TCOON))
    if goes_on:
        later.start()
    pty.console.close()
    assert (b"exit     0" in pty.read()) is goes_on
    later.cancel()
    termios.tcflow(fd, termios.TCOON)
