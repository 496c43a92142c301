"""What an attempt says about the code that it was made with, and what a completion must not look like."""

from __future__ import annotations

from typing import Any

import pytest

from supervise.model.exits import Exit
from supervise.model.trial import ELSEWHERE, Course, Expected, Judgement, Trial, Verdict, judge
from supervise.probes.completion import Completion, weigh
from supervise.probes.garbage import garbage
from supervise.runner.trial import verdict_of

PASS, FAIL, SKIP = Verdict.PASS, Verdict.FAIL, Verdict.SKIP


def over(outcome: str, tested: Verdict | None = None, **more: Any) -> Course:
    course = Course(attempt=1, outcome=outcome, cause="ValueError: no", **more)
    course.tested = None if tested is None else Judgement(tested, "the probe said so", 0.5)
    return course


@pytest.mark.parametrize(
    ("course", "verdict"),
    [
        (over("asked", PASS), PASS),
        (over("asked", FAIL), FAIL),
        (over("asked", SKIP), SKIP),
        (over("asked"), SKIP),
        # What a server says on its way out, asked to go there, is held against it only if it had said so before.
        (over("asked", PASS, failure="unknown"), PASS),
        (over("asked", PASS, failure="unknown", fatal=True), FAIL),
        (over("asked", FAIL, failure="transient"), FAIL),
        (over("asked", FAIL, failure="transient", fatal=True), SKIP),
        (over("died", failure="deterministic"), FAIL),
        (over("died", failure="unknown"), FAIL),
        (over("died"), FAIL),
        (over("died", PASS, failure="unknown"), FAIL),
        (over("died", failure="transient"), SKIP),
        (over("died", failure="load"), SKIP),
        (over("fatal", failure="deterministic"), FAIL),
        (over("not-ready", failure="unknown"), FAIL),
        (over("not-ready", failure="unknown", end=ELSEWHERE), SKIP),
        (over("hung", failure="transient"), FAIL),
        (over("hung", failure="transient", signature="nccl-timeout"), SKIP),
        (over("not-launched"), SKIP),
        (over("broken", PASS), SKIP),
        (over("keeper-lost", FAIL), SKIP),
        (over("asked", PASS, status=Exit.SURVIVORS), SKIP),
        (over("died", failure="deterministic", status=Exit.DETERMINISTIC), FAIL),
        (over("asked", PASS, unread="x.py: changed, and nobody has imported it"), SKIP),
        (over("died", failure="unknown", altered="x.py: changed, and nobody has imported it"), SKIP),
        (Course(status=Exit.SLATE), SKIP),
        (Course(), SKIP),
    ],
)
def test_verdict(course: Course, verdict: Verdict) -> None:
    assert judge(course).verdict is verdict


def test_a_long_reason_ends_between_words_and_says_so() -> None:
    told = judge(over("died", failure="unknown")).why
    assert told == "ValueError: no"
    course = over("died", failure="unknown")
    course.cause = "word " * 60
    why = judge(course).why
    assert why == "word " * 40 + "…"
    course.cause = "x" * 300
    assert judge(course).why == "x" * 200 + " …"


def test_reason_is_told() -> None:
    assert judge(over("died", failure="deterministic")).why == "ValueError: no"
    assert "transient" in judge(over("died", failure="transient")).why
    assert judge(Course(refusal="port 8000 is taken")).why == "port 8000 is taken"
    assert "slate" in judge(Course(status=Exit.SLATE)).why
    assert judge(over("asked", PASS)).ttft_s == 0.5


@pytest.mark.parametrize(
    ("status", "failure", "verdict"),
    [
        (0, None, PASS),
        (1, "exit status 1", FAIL),
        (2, "exit status 2", FAIL),
        (255, "exit status 255", FAIL),
        (128, "exit status 128", FAIL),
        # Whoever kills a probe, the kernel for want of memory perhaps, says nothing of the server.
        (-9, "killed by SIGKILL", SKIP),
        (-11, "killed by SIGSEGV", SKIP),
        (137, "exit status 137", SKIP),
        (125, "exit status 125", SKIP),
        (126, "exit status 126", SKIP),
        (127, "exit status 127", SKIP),
        (None, "not over after 5 s, and ended", SKIP),
        (None, "cannot be started: No such file or directory", SKIP),
        (0, "2 of its processes cannot be ended", FAIL),
        (None, None, SKIP),
    ],
)
def test_command(status: int | None, failure: str | None, verdict: Verdict) -> None:
    assert verdict_of(status, failure).verdict is verdict


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n\n",
        "!!!!!!!!!!!!!!!!",
        "Paris Paris Paris Paris Paris",
        " the the the the the the the the the",
        "Well, no no no no no no no no no no",
        "\ufffd\ufffd\ufffd",
        "Pa\ufffdris \ufffd is",
        "\x00\x01\x02abc",
        "!?!!??!?!?!!!?!?!??!!!??!?!!?!!!?!",
        "\\u0120\\u0120\\u0120\\u0120",
    ],
)
def test_garbage(text: str) -> None:
    assert garbage(text)


@pytest.mark.parametrize(
    "text",
    [
        " Paris.",
        " Paris, the capital of France, and a city of light and of culture and of",
        "ha ha",
        "no no no",
        "1",
        "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11",
        "巴黎是法国的首都。它位于塞纳河畔",
        "🗼 Paris 🇫🇷 is the 👨‍👩‍👧 city",
        # The last character takes three tokens, and there was room for two.
        "Die Hauptstadt ist Paris \ufffd",
        "def f(x):\n\treturn x + 1\n\n\ndef g(x):\n\treturn x - 1",
        "Paris is the the best of the best",
    ],
)
def test_no_garbage(text: str) -> None:
    assert garbage(text) is None


@pytest.mark.parametrize(
    ("found", "expected", "verdict"),
    [
        (Completion(" Paris.", 0.1), Expected(), PASS),
        (Completion(" Paris.", 0.1), Expected("Paris"), PASS),
        (Completion(" Rome.", 0.1), Expected("Paris"), FAIL),
        (Completion("!!!!!!!!", 0.1), Expected(), FAIL),
        (Completion("!!!!!!!!", 0.1), Expected(garbage=True), PASS),
        (Completion("!!!!!!!!", 0.1), Expected("Paris", garbage=True), FAIL),
        (Completion('{"a": 1}', 0.1), Expected(json=True), PASS),
        (Completion('Here:\n```json\n{"a": 1}\n```', 0.1), Expected(json=True), PASS),
        (Completion('{"a": 1', 0.1), Expected(json=True), FAIL),
        (Completion('{"a": NaN}', 0.1), Expected(json=True), FAIL),
        (Completion("-Infinity", 0.1), Expected(json=True), FAIL),
        (Completion(" Paris.", 0.1), Expected(pattern="P", matches=lambda text: "P" in text), PASS),
        (Completion(" Rome.", 0.1), Expected(pattern="P", matches=lambda text: "P" in text), FAIL),
        (Completion(" Paris.", 0.1), Expected(max_ttft_s=0.2), PASS),
        (Completion(" Paris.", 0.3), Expected(max_ttft_s=0.2), FAIL),
        (Completion(" Paris.", None), Expected(max_ttft_s=0.2), SKIP),
        (Completion(" Rome.", None), Expected("Paris", max_ttft_s=0.2), FAIL),
    ],
)
def test_expected(found: Completion, expected: Expected, verdict: Verdict) -> None:
    assert weigh(found, expected).verdict is verdict


def test_whoever_says_anything_of_the_completion_wants_one() -> None:
    assert not Trial().wants_completion
    assert Trial(prompt="").wants_completion
    assert Trial(max_tokens=1).wants_completion
    for expected in (Expected(""), Expected(json=True), Expected(max_ttft_s=0.0), Expected(garbage=True)):
        assert Trial(expected=expected).wants_completion
