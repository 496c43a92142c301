"""The termination message: what a kubelet may read, and nothing that nobody may."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from supervise.model.news import BecameReady, Ended, News, Over, Relaunching, Swept
from supervise.model.slate import Finding, Ownership, SlateResult
from supervise.report.console import Console
from supervise.report.termination import MOST_BYTES, TerminationMessage, default_path

ENDED = Ended(
    attempt=7,
    exit_status=93,
    outcome="died",
    cause="ValueError: no such file, token=hf_abcdefgh12345678 in /home/jane/model",
    failure="deterministic",
    signature="model-missing",
    fingerprint="f00",
    ready_s=None,
    phases={},
    stop_s=0.1,
    survivors=0,
    log_bytes=10,
    asked=False,
    log="/state/X/attempts/0007/server.log",
    advice=("Check the path.",),
)


def told(path: Path, *news: News) -> str:
    listener = TerminationMessage("X", str(path), Console(io.StringIO()))
    for each in news:
        listener.hear(each)
    listener.close()
    return path.read_text() if path.exists() else ""


def test_says_all_there_is_to_know(tmp_path: Path) -> None:
    text = told(tmp_path / "log", ENDED, Over(93, "a relaunch cannot help", ENDED.cause))
    assert text.splitlines() == [
        "exit status 93: it would fail the same way again",
        "a relaunch cannot help",
        "cause: ValueError: no such file, token=*** in ~/model",
        "class deterministic · signature model-missing · fingerprint f00",
        "do: Check the path.",
        "run X, attempt 7, log /state/X/attempts/0007/server.log",
    ]


def test_is_there_before_the_last_attempt(tmp_path: Path) -> None:
    """A container that is killed while it waits has told what the attempt before ended of."""
    waiting = Relaunching(7, 4.0, "once more", "it", "transient")
    text = told(tmp_path / "log", ENDED, waiting)
    assert text.startswith("exit status 93: it would fail the same way again; to be launched again: once more\n")


def test_nothing_is_written_while_it_runs(tmp_path: Path) -> None:
    assert told(tmp_path / "log", BecameReady(1, 1.0, {})) == ""


def test_what_is_in_the_way_is_named(tmp_path: Path) -> None:
    obstacle = Finding("port", "port 8000 held by nginx", Ownership.FOREIGN, ("not ours",), remedy="stop nginx")
    slate = SlateResult("X", (), (obstacle,), (), (), 0.1)
    text = told(tmp_path / "log", Swept(slate), Over(94, None, None))
    assert text.startswith("exit status 94: the slate could not be made clean")
    assert "in the way: port 8000 held by nginx (foreign, not ours)\ndo: stop nginx\n" in text


def test_whole_lines_within_the_bound(tmp_path: Path) -> None:
    long = ENDED._replace(cause="é" * 10_000, advice=tuple(f"{n} " + "ü" * 2_000 for n in range(20)))
    path = tmp_path / "log"
    path.write_bytes(b"old " * 4_000)
    told(path, long, Over(93, None, None))
    data = path.read_bytes()
    assert 1_000 < len(data) <= MOST_BYTES
    assert data.endswith(b"\n")
    assert b"old" not in data
    data.decode()


def test_control_characters_are_shown(tmp_path: Path) -> None:
    assert "\x1b" not in told(tmp_path / "log", ENDED._replace(cause="\x1b[2Jgone"))


def test_that_it_cannot_be_written_is_said_once(tmp_path: Path) -> None:
    heard = io.StringIO()
    listener = TerminationMessage("X", str(tmp_path / "no/log"), Console(heard))
    listener.hear(ENDED)
    listener.hear(Over(93, None, None))
    assert heard.getvalue().count("termination message") == 1


@pytest.mark.parametrize(
    ("env", "pid", "expected"),
    [({}, 1, True), ({}, 17, False), ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, 17, True)],
)
def test_by_default_only_where_somebody_reads_it(env: dict[str, str], pid: int, expected: bool, tmp_path: Path) -> None:
    path = tmp_path / "termination-log"
    assert default_path(env, pid, str(path)) is None
    path.touch()
    assert default_path(env, pid, str(path)) == (str(path) if expected else None)
    assert default_path(env, pid, str(tmp_path)) is None


def test_one_survivor_is_a_process(tmp_path: Path) -> None:
    assert "1 process survived" in told(tmp_path / "log", ENDED._replace(survivors=1)).splitlines()
    assert "2 processes survived" in told(tmp_path / "log", ENDED._replace(survivors=2)).splitlines()


STOPPED = ENDED._replace(exit_status=143, outcome="asked", asked=True, cause=None, failure=None, signature=None)


def first(path: Path, *news: News) -> str:
    return told(path, *news).splitlines()[0]


def test_a_stop_that_somebody_asked_for_is_called_one(tmp_path: Path) -> None:
    said = "exit status 143: stopped by SIGTERM, as asked"
    over = Over(143, None, None)
    assert first(tmp_path / "log", STOPPED) == said == first(tmp_path / "log", STOPPED, over)
    # Nobody asked for the end of one that somebody killed; who stops us while nothing runs asks.
    killed = STOPPED._replace(outcome="died", asked=False)
    assert first(tmp_path / "log", killed, over) == "exit status 143"
    waiting = (ENDED, Relaunching(7, 4.0, "once more", "it", "transient"))
    assert first(tmp_path / "log", *waiting, over) == f"{said}, while nothing ran" == first(tmp_path / "log", over)
    assert first(tmp_path / "log", *waiting, killed, over) == "exit status 143"


def test_those_that_survived_are_named(tmp_path: Path) -> None:
    named = ("pid 42 VLLM::EngineCore, state D",)
    text = told(tmp_path / "log", STOPPED._replace(exit_status=95, survivors=1, survived=named), Over(95, None, None))
    assert text.startswith("exit status 95: something survived\n")
    assert "\n1 process survived\nsurvived: pid 42 VLLM::EngineCore, state D\n" in text


def test_what_cannot_be_executed_was_found(tmp_path: Path) -> None:
    why = "/x/serve: cannot execute: its interpreter (the #! line) does not exist"
    refused = ENDED._replace(exit_status=127, outcome="not-launched", cause=why, failure=None)
    text = told(tmp_path / "log", refused, Over(127, None, None))
    assert text.splitlines()[0] == f"exit status 127: {why}"
    assert "cause" not in text
    # A shell that has not found something is a server that has ended so.
    shell = ENDED._replace(exit_status=127, cause="sh: 1: x: not found")
    assert told(tmp_path / "log", shell).startswith("exit status 127: the server's own\ncause: sh: 1: x: not found\n")
