"""The console on a terminal: lines above, the view below, and nobody who waits for a reader."""

from __future__ import annotations

import os
import signal
import termios
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from supervise.host import tty
from supervise.model.diagnosis import Progress
from supervise.model.need import Need
from supervise.report.console import Console, write_unless_stuck
from supervise.report.scene import Scene
from supervise.runner.service import Service
from tests.support.pty import Pty

SCENE = Scene("X", 1, "starting", elapsed_s=1, log=("loads",))


def test_lines_scroll_above_the_view_which_leaves_no_trace(pty: Pty) -> None:
    pty.console.line("slate", "clean")
    for second in range(40):
        assert pty.console.show(replace(SCENE, elapsed_s=second))
        pty.console.line("note", f"line {second}")
        pty.read()
        assert pty.shown.window[-1].strip() == "loads"
        assert pty.shown.window[-2].endswith(f"+{second} s")
        assert pty.shown.window[-4].endswith(f"line {second}")
    pty.console.close()
    pty.console.line("exit", "0")
    pty.read()
    expected = ["slate    clean", *(f"note     line {second}" for second in range(40)), "exit     0"]
    assert pty.shown.all.split("\n") == expected


def test_what_has_not_changed_is_not_written(pty: Pty) -> None:
    pty.console.show(SCENE)
    assert pty.read()
    assert pty.console.show(SCENE)
    assert pty.read() == b""
    pty.console.show(replace(SCENE, elapsed_s=2))
    assert pty.read()


@pytest.mark.parametrize("before", [(24, 80), (50, 200)])
def test_another_window_has_another_view(pty: Pty, before: tuple[int, int]) -> None:
    termios.tcsetwinsize(pty.master, before)
    pty.console.show(SCENE)
    pty.read()
    termios.tcsetwinsize(pty.master, (24, 60))
    pty.console.show(SCENE)
    assert "─" * 59 in pty.read().decode()
    assert "─" * 60 not in pty.shown.window[-3]


def test_lines_that_a_narrower_window_has_broken_are_all_taken_away(pty: Pty) -> None:
    pty.console.show(SCENE)
    pty.read()
    termios.tcsetwinsize(pty.master, (24, 40))
    pty.console.show(None)
    # The rule had 79 columns, and takes two lines of 40 now.
    assert pty.read() == b"\r\x1b[3A\x1b[K\r\n\x1b[J\x1b[A"


def test_no_room_is_no_view_and_progress_are_lines_again(pty: Pty) -> None:
    termios.tcsetwinsize(pty.master, (2, 80))
    assert not pty.console.show(SCENE)
    pty.console.progress(Progress("weights"), 1.0, new=True)
    assert pty.read() == b"loading  weights  +1.0 s\r\n"


def test_in_the_background_nothing_is_drawn(pty: Pty, monkeypatch: pytest.MonkeyPatch) -> None:
    pty.console.show(SCENE)
    pty.read()
    monkeypatch.setattr(tty, "in_foreground", lambda _: False)
    assert not pty.console.show(replace(SCENE, elapsed_s=2))
    pty.console.progress(Progress("weights"), 1.0, new=True)
    pty.console.line("note", "here")
    assert pty.read() == b"loading  weights  +1.0 s\r\nnote     here\r\n"


def test_a_view_shows_the_phases_in_place_of_lines(pty: Pty) -> None:
    pty.console.show(SCENE)
    pty.read()
    pty.console.progress(Progress("weights"), 1.0, new=True)
    assert pty.read() == b""


def test_another_size_is_heard_of_and_nothing_while_nobody_listens(pty: Pty) -> None:
    heard: list[int] = []
    service = SimpleNamespace(_console=pty.console, _acting=None)
    Service.signal(cast(Service, service), signal.SIGWINCH)
    pty.console.on_resize = lambda: heard.append(1)
    Service.signal(cast(Service, service), signal.SIGUSR1)
    assert not heard
    Service.signal(cast(Service, service), signal.SIGWINCH)
    assert heard


def test_phases_before_the_view_begins_are_no_lines_either(pty: Pty) -> None:
    pty.console.progress(Progress("weights"), 1.0, new=True)
    assert pty.read() == b""


def test_ready_takes_what_was_shown_of_the_start_up_away_for_good(pty: Pty) -> None:
    pty.console.show(SCENE)
    pty.read()
    pty.console.ready(41.0, {"weights": 30.0}, Need(profile="vllm", run="X", argv=(), program="vllm"))
    assert b"loads" not in pty.read()
    assert pty.shown.all == "ready    in 41 s (weights 30)"


@pytest.mark.parametrize("columns", [19, 20])
def test_in_less_than_twenty_columns_there_is_no_view(pty: Pty, columns: int) -> None:
    termios.tcsetwinsize(pty.master, (24, columns))
    assert pty.console.show(SCENE) is (columns == 20)
    pty.console.progress(Progress("weights"), 1.0, new=True)
    assert (b"loading  weights" in pty.read()) is (columns == 19)


def test_a_stopped_terminal_costs_a_moment_once_and_no_line(pty: Pty) -> None:
    pty.console.show(SCENE)
    pty.read()
    termios.tcflow(pty.stream.fileno(), termios.TCOOFF)
    began = time.monotonic()
    for number in range(100):
        pty.console.line("note", f"line {number} {'x' * 50}")
        assert not pty.console.show(replace(SCENE, elapsed_s=number))
    # A plain line alone waits as long as all of them together: 100 of them would take 20 s.
    waited_s = time.monotonic() - began
    plain = Console(pty.stream)
    began = time.monotonic()
    for _ in range(4):
        plain.line("note", "dropped")
    assert waited_s < time.monotonic() - began
    assert pty.read() == b""

    termios.tcflow(pty.stream.fileno(), termios.TCOON)
    while not pty.console.show(SCENE):
        pty.read()
    pty.console.close()
    pty.read()
    assert pty.shown.all.split("\n") == [f"note     line {number} {'x' * 50}" for number in range(100)]


def test_a_reader_who_stands_still_is_never_waited_for(pty: Pty) -> None:
    """A terminal that takes but a part of what it is given blocks whoever writes more; our description does not."""
    pty.console.show(SCENE)
    for number in range(6_000):
        pty.console.line("note", f"line {number} {'x' * 60}")
    pty.console.close()


def test_a_terminal_that_is_gone_is_written_to_no_more(pty: Pty) -> None:
    pty.console.show(SCENE)
    os.close(pty.master)
    pty.console.line("note", "to nobody")
    assert not pty.console.show(replace(SCENE, elapsed_s=2))
    pty.console.close()
    pty.console.line("exit", "1")
    pty.master = os.open("/dev/null", os.O_RDONLY)


def test_colours_are_not_forced_upon_anybody(pty: Pty, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    pty.console.show(SCENE)
    assert b"36m" not in pty.read()


def test_with_colours_they_are_there(pty: Pty, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    pty.console.show(SCENE)
    assert b"36m" in pty.read()


def test_a_plain_line_is_written_as_ever(pty: Pty) -> None:
    write_unless_stuck(pty.stream, "plain\n")
    assert pty.read() == b"plain\r\n"
