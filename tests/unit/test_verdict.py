"""The first cause, by name: on whole logs, on interleavings of them, and where nobody printed one."""

from __future__ import annotations

import json
import random
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervise.diagnosis.lines import LineReader
from supervise.diagnosis.prefixes import parse
from supervise.diagnosis.progress import ProgressTracker
from supervise.diagnosis.verdict import EVIDENCE, Diagnoser
from supervise.model.diagnosis import Diagnosis, End, FailureClass, Fatal, Line
from supervise.model.profile import ReadyRule
from supervise.profiles.signatures import available_sets, load_signatures

CORPUS = Path(__file__).parent.parent / "corpus"
# Those that say what is told while the server runs; tests/unit/test_corpus.py has them all.
CASES = sorted(path.parent.name for path in CORPUS.glob("*/expect.json") if "live" in json.loads(path.read_text()))
SIGNATURES = load_signatures(available_sets())
READY = ReadyRule(
    (re.compile(r"Application startup complete\."), re.compile("The server is fired up and ready to roll!"))
)


def expectation(name: str) -> dict[str, Any]:
    expected: dict[str, Any] = json.loads((CORPUS / name / "expect.json").read_text())
    return expected


def lines_of(name: str) -> list[Line]:
    reader = LineReader()
    return [*reader.feed((CORPUS / name / "log.txt").read_bytes()), *reader.close()]


def run(lines: list[Line], end: End) -> tuple[Diagnosis, Fatal | None]:
    tracker = ProgressTracker((), (), READY)
    diagnoser = Diagnoser(SIGNATURES, tracker)
    fatal: Fatal | None = None
    for line in lines:
        tracker.feed(line)
        fatal = diagnoser.feed(line) or fatal
    return diagnoser.conclude(end), fatal


def end_of(expected: dict[str, Any]) -> End:
    end = expected["end"]
    return End(end["code"], end["signal"], end["requested"], tuple(end["sent"]))


def said(*texts: str) -> list[Line]:
    return [parse(text, number) for number, text in enumerate(texts, 1)]


def conclude(*texts: str, end: End = End(code=1)) -> Diagnosis:  # noqa: B008
    return run(said(*texts), end)[0]


@pytest.mark.parametrize("name", CASES)
def test_the_first_cause_of_a_whole_log(name: str) -> None:
    expected = expectation(name)
    diagnosis, fatal = run(lines_of(name), end_of(expected))
    assert (diagnosis.line, diagnosis.process) == (expected["line"], expected["process"]), diagnosis
    if expected["text"] is None:
        assert diagnosis.text is None
    else:
        assert diagnosis.text is not None
        assert diagnosis.text.startswith(expected["text"])
    assert (diagnosis.signature, str(diagnosis.failure)) == (expected["signature"], expected["class"])
    assert diagnosis.meaning
    assert len(diagnosis.evidence) <= EVIDENCE
    if diagnosis.line is not None:
        assert diagnosis.line in [line.number for line in diagnosis.evidence]
    if expected.get("live") is not None:
        assert (fatal is not None) == expected["live"], fatal


def test_there_is_a_corpus() -> None:
    assert len(CASES) >= 20


@pytest.mark.parametrize("name", [name for name in CASES if expectation(name)["signature"] and "coloured" not in name])
def test_interleaving_by_process_does_not_change_the_verdict(name: str) -> None:
    expected = expectation(name)
    queues: dict[object, list[Line]] = defaultdict(list)
    for line in lines_of(name):
        queues[line.pid].append(line)
    order = [pid for pid, queue in queues.items() for _ in queue]
    random.Random(7).shuffle(order)
    shuffled = [queues[pid].pop(0) for pid in order]
    renumbered = [parse(line.raw, number) for number, line in enumerate(shuffled, 1)]
    diagnosis, _ = run(renumbered, end_of(expected))
    assert diagnosis.text is not None
    assert diagnosis.text.startswith(expected["text"])
    assert (diagnosis.signature, diagnosis.process) == (expected["signature"], expected["process"])


def test_fatal_comes_at_the_line_that_names_the_cause() -> None:
    expected = expectation("vllm-missing-norm-weight")
    _, fatal = run(lines_of("vllm-missing-norm-weight"), End(code=1))
    assert fatal is not None
    assert (fatal.line.number, fatal.signature) == (expected["line"], expected["signature"])
    assert fatal.text.startswith("ValueError: Following weights")


def test_fatal_waits_for_the_cause_where_ranks_announce_their_death_in_turn() -> None:
    name = "vllm-four-ranks-one-out-of-memory"
    _, fatal = run(lines_of(name), End(code=1))
    assert fatal is not None
    assert (fatal.line.number, fatal.signature) == (expectation(name)["line"], "cuda-out-of-memory")


def test_fatal_without_a_cause_comes_at_the_second_report_of_the_same_process() -> None:
    _, fatal = run(lines_of("vllm-worker-killed"), End(code=0))
    assert fatal is not None
    assert fatal.text == "EngineCore encountered a fatal error."
    assert fatal.signature is None


def test_fatal_is_said_once() -> None:
    tracker = ProgressTracker((), (), READY)
    diagnoser = Diagnoser(SIGNATURES, tracker)
    fatals = [fatal for line in lines_of("vllm-truncated-weights") if (fatal := diagnoser.feed(line))]
    assert len(fatals) == 1


ENGINE = "(EngineCore pid=3) ERROR 11-30 05:00:00 [core.py:99] "
TRACEBACK = ("Traceback (most recent call last):", '  File "x.py", line 3, in step', "    boom()")


def engine(*texts: str) -> list[str]:
    return [ENGINE + text for text in texts]


READY_LINE = "INFO:     Application startup complete."


def test_an_error_that_an_engine_logs_and_survives_is_not_fatal() -> None:
    lines = said(READY_LINE, *engine("Failed to add a request", *TRACEBACK, "RuntimeError: odd request"))
    assert run(lines, End())[1] is None


def test_an_old_error_is_not_the_cause_of_a_late_death() -> None:
    life = [f"(APIServer pid=1) INFO 11-30 05:00:00 [loggers.py:1] Engine 000: step {i}" for i in range(2000)]
    diagnosis = conclude(
        READY_LINE, *engine("Failed to add", *TRACEBACK, "RuntimeError: odd request"), *life,
        *engine("EngineCore encountered a fatal error.", *TRACEBACK, "RuntimeError: the real one"),
    )  # fmt: skip
    assert diagnosis.text == "RuntimeError: the real one"


def test_errors_before_readiness_are_not_the_cause_of_a_death_after_it() -> None:
    diagnosis = conclude(*engine("optional part", *TRACEBACK, "RuntimeError: optional"), READY_LINE, end=End(signal=11))
    assert diagnosis.text is None
    assert "SIGSEGV" in diagnosis.meaning


def test_of_a_chain_the_first_block_is_the_cause() -> None:
    for link in ("The above exception was the direct cause of the following exception:",
                 "During handling of the above exception, another exception occurred:"):  # fmt: skip
        diagnosis = conclude(*TRACEBACK, "LookupError: first", "", link, "", *TRACEBACK, "ValueError: second")
        assert diagnosis.text == "LookupError: first"


def test_of_a_chain_a_known_failure_is_preferred_to_an_unknown_one() -> None:
    diagnosis = conclude(
        *TRACEBACK, "LookupError: first", "", "During handling of the above exception, another exception occurred:", "",
        *TRACEBACK, "OSError: You are trying to access a gated repo.", "Make sure to have access to it",
    )  # fmt: skip
    assert diagnosis.signature == "hub-gated"


def test_two_tracebacks_that_are_no_chain_are_two_failures() -> None:
    diagnosis = conclude(*TRACEBACK, "BrokenPipeError: [Errno 32] Broken pipe", "", *TRACEBACK, "LookupError: second")
    assert diagnosis.text == "LookupError: second"


def test_an_unknown_failure_is_named_from_its_traceback() -> None:
    diagnosis = conclude(*engine(*TRACEBACK, "my.own.Error: went wrong"))
    assert diagnosis.text == "my.own.Error: went wrong"
    assert diagnosis.process == "EngineCore"
    assert diagnosis.failure is FailureClass.UNKNOWN
    assert "Error in step (x.py:3)" in diagnosis.meaning


def test_source_lines_in_a_traceback_are_not_taken_for_messages() -> None:
    body = (
        "Traceback (most recent call last):",
        '  File "x.py", line 3, in f',
        "    Value error, No available memory for the cache blocks.",
    )
    assert conclude(*body, "LookupError: x").signature is None


def test_a_start_up_failure_seen_after_readiness_came_with_the_requests() -> None:
    lines = engine("EngineCore encountered a fatal error.", *TRACEBACK, "TypeError: bad operand")
    assert conclude(*lines).failure is FailureClass.DETERMINISTIC
    assert conclude(READY_LINE, *lines).failure is FailureClass.LOAD


def test_a_quoted_cause_is_used_where_the_cause_itself_is_missing() -> None:
    wrapper = "RuntimeError: Worker failed with error 'boom', please check the stack trace above for the root cause"
    lines = engine("EngineCore encountered a fatal error.", *TRACEBACK, wrapper)
    assert conclude(*lines).signature == "vllm-worker-error-quoted"
    assert "boom" in conclude(*lines).meaning
    worker = [f"(Worker pid=4) ERROR 11-30 05:00:00 [m.py:9] {text}" for text in (*TRACEBACK, "RuntimeError: boom")]
    assert conclude(*lines, *worker).text == "RuntimeError: boom"


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (End(code=0), ("status 0", "before it was ready")),
        (End(code=0, ready=True), ("status 0", "after it had been ready")),
        (End(code=0, phase="weights"), ("phase weights",)),
        (End(code=3), ("exited with 3",)),
        (End(code=137), ("137", "SIGKILL", "OOM killer")),
        (End(signal=9), ("SIGKILL", "not sent by us", "OOM killer", "operator", "engine itself")),
        (End(signal=9, sent=(15, 9)), ("SIGKILL", "sent by us")),
        (End(signal=15), ("SIGTERM", "Somebody asked")),
        (End(signal=7), ("SIGBUS", "/dev/shm")),
        (End(signal=6), ("SIGABRT",)),
        (End(signal=64), ("SIGRTMAX",)),
        (End(signal=99), ("signal 99",)),
        (End(), ("has not ended",)),
    ],
)
def test_where_nothing_was_printed_the_end_is_told(end: End, words: tuple[str, ...]) -> None:
    diagnosis = conclude("hello", end=end)
    assert diagnosis.text is None
    assert diagnosis.line is None
    for word in words:
        assert word in diagnosis.meaning


def test_our_own_kill_is_not_blamed_on_the_kernel() -> None:
    assert "OOM" not in conclude("hello", end=End(signal=9, sent=(9,))).meaning


def test_a_dead_child_is_named_with_its_signal() -> None:
    diagnosis, _ = run(lines_of("vllm-worker-killed"), End(code=0))
    assert "VllmWorker-0 was killed by SIGKILL" in diagnosis.meaning
    assert diagnosis.evidence


def test_sglang_killing_itself_is_not_taken_for_the_oom_killer() -> None:
    diagnosis = conclude(
        "[2026-11-30 05:00:00] Received sigquit from a child process. It usually means the child failed.",
        end=End(signal=9),
    )
    assert "launcher kills itself" in diagnosis.meaning


def test_after_a_stop_that_was_asked_for_nothing_is_a_crash() -> None:
    diagnosis, _ = run(lines_of("vllm-crash-while-serving"), End(code=0, requested=True, sent=(15,)))
    assert (diagnosis.text, diagnosis.line, diagnosis.signature) == (None, None, None)
    assert diagnosis.meaning == "Stopped as asked."


@pytest.mark.parametrize("ready", [False, True])
def test_memory_is_bounded_and_the_cause_is_kept(ready: bool) -> None:
    noise = [line for i in range(2000) for line in engine(*TRACEBACK, f"LookupError: {i}")]
    lines = said(
        *([READY_LINE] if ready else []),
        *noise,
        *engine("EngineCore encountered a fatal error.", *TRACEBACK, "LookupError: last"),
    )
    diagnosis, _ = run(lines, End(code=1))
    assert diagnosis.text == "LookupError: last"


@given(
    st.lists(st.sampled_from([line.raw for name in CASES[:8] for line in lines_of(name)][::7]), max_size=60),
    st.integers(-3, 300),
)
def test_any_mixture_of_lines_gives_a_diagnosis(raws: list[str], code: int) -> None:
    diagnosis = conclude(*raws, end=End(code=code))
    assert diagnosis.meaning
    assert len(diagnosis.evidence) <= EVIDENCE


@pytest.mark.parametrize(
    "end", [End(code=0), End(code=143), End(code=130), End(signal=15), End(signal=2), End(signal=1)]
)
def test_a_stop_in_order_stays_one_however_its_status_is_spelled(end: End) -> None:
    asked = "(APIServer pid=1) INFO 11-30 05:00:00 [launcher.py:254] [shutdown] API server: shutdown triggered"
    for said in (asked, "INFO:     Application shutdown complete.", "KeyboardInterrupt: terminated"):
        assert not conclude(READY_LINE, said, end=end).fatal
    assert conclude(READY_LINE, asked, end=End(signal=9)).fatal
    assert conclude(READY_LINE, "(APIServer pid=1) INFO 11-30 05:00:00 [a.py:1] hello", end=end).fatal
