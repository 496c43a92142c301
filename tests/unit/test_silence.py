"""What is said of an end that nobody explained: once, of one piece, and the same for ends of the same kind."""

from __future__ import annotations

import re

import pytest

from supervise.diagnosis.matching import Match
from supervise.diagnosis.silence import explain
from supervise.model.diagnosis import End, FailureClass, Role, Signature

SIGNATURE = Signature(
    "engine-died",
    Role.CASCADE,
    (),
    re.compile(""),
    FailureClass.UNKNOWN,
    True,
    None,
    "The engine process died.",
    ("Read its log.",),
    (),
    (),
)


def echo(**groups: str) -> Match:
    return Match(SIGNATURE, groups)


ECHO = echo()


@pytest.mark.parametrize(
    "end",
    [End(code=0), End(code=1), End(code=137), End(code=130), End(code=155), End(signal=9), End(signal=9, sent=(9,)),
     End()],
)  # fmt: skip
def test_that_there_is_no_cause_is_said_once(end: End) -> None:
    with_echo = explain(end, [ECHO]).meaning
    assert with_echo.startswith("No process printed a cause. The engine process died. The server ")
    assert "no cause" not in with_echo.partition("died.")[2]
    assert with_echo == with_echo.strip()


def test_without_an_echo_it_is_said_too() -> None:
    assert explain(End(code=4), []).meaning == "The server exited with 4 and its log names no cause."
    assert "Its log has no cause." in explain(End(code=0), []).meaning


@pytest.mark.parametrize("code", [0, 4])
def test_what_the_log_called_ready_is_not_told_of_as_if_it_had_not_been(code: int) -> None:
    end = End(code=code, phase="server")
    assert "in phase server" in explain(end, []).meaning
    assert "in phase server" not in explain(end, [], ready=True).meaning


@pytest.mark.parametrize(
    ("end", "echoes", "kind"),
    [
        (End(code=4), [], "exited with 4"),
        (End(code=0, ready=True), [], "exited with 0"),
        (End(signal=9), [], "killed by SIGKILL"),
        (End(signal=9, oom_kills=2), [], "ended by the OOM killer"),
        (End(code=1), [ECHO], "exited with 1"),
        (End(code=1), [echo(who="VllmWorker-3", code="-9")], "VllmWorker killed by SIGKILL"),
        (End(code=1), [echo(who="scheduler_0", signal="11")], "scheduler killed by SIGSEGV"),
        (End(known=False), [], None),
        (End(), [], None),
    ],
)
def test_the_kind_of_an_end(end: End, echoes: list[Match], kind: str | None) -> None:
    assert explain(end, echoes).kind == kind


def test_the_counter_is_named_as_both_versions_of_cgroups_have_it() -> None:
    said = explain(End(signal=9, oom_kills=1), []).meaning
    assert "oom_kill of its cgroup" in said
    assert "memory.events" not in said
