"""What only follows from a first cause is not taken for it, and what came before by itself is."""

from __future__ import annotations

import pytest

from supervise.diagnosis.prefixes import parse
from supervise.diagnosis.unwrap import unwrapped
from supervise.diagnosis.whole import UNKNOWN_END, explain
from supervise.model.diagnosis import Diagnosis
from supervise.profiles.load import load_all
from supervise.profiles.signatures import available_sets, load_signatures

HEADLINE = "[2026-11-30 05:27:01 TP{rank}] Scheduler hit an exception: Traceback (most recent call last):"
FRAME = '  File "/opt/sglang/srt/managers/scheduler.py", line 7, in event_loop_overlap'
RAISED = "RuntimeError: HIP error: invalid device function"
SEGFAULT = "!!!!!!! Segfault encountered !!!!!!!"
ILLEGAL = "CUDA error: an illegal memory access was encountered"
WATCHDOG = (
    "[rank2]:[E1130 05:27:00.828983440 ProcessGroupNCCL.cpp:1595] [PG ID 2 PG GUID 3 Rank 2] Process group watchdog "
    f"thread terminated with exception: {ILLEGAL}"
)
TERMINATE = "terminate called after throwing an instance of 'c10::DistBackendError'"


def told(*lines: str) -> Diagnosis:
    log = "\n".join(lines).encode() + b"\n"
    return explain([log], UNKNOWN_END, load_signatures(available_sets()), load_all()).diagnosis


def scheduler(rank: int, *, raised: str = RAISED) -> list[str]:
    return [HEADLINE.format(rank=rank), FRAME, raised, ""]


def test_headlines_that_are_all_as_long_are_no_edge() -> None:
    lines = [line for rank in range(8) for line in scheduler(rank)]
    read = [line.raw for line in unwrapped(parse(raw, number) for number, raw in enumerate(lines, 1))]
    assert read == lines
    assert told(*lines).process == "TP0"


@pytest.mark.parametrize("before", [True, False])
def test_a_crash_after_an_engine_said_what_it_dies_of_follows_from_it(*, before: bool) -> None:
    engine = [each.replace(" TP0]", "]") for each in scheduler(0)]
    lines = [SEGFAULT, "", *engine] if before else [*engine, SEGFAULT]
    assert told(*lines).text == (SEGFAULT if before else RAISED)


def test_a_watchdog_that_quotes_the_fault_comes_before_the_end_that_it_brings() -> None:
    assert told(WATCHDOG, TERMINATE, *scheduler(3, raised=f"RuntimeError: {ILLEGAL}")).process == "rank2"
    # What another process printed before is no echo.
    assert told(*scheduler(3, raised=f"RuntimeError: {ILLEGAL}"), WATCHDOG, TERMINATE).process == "TP3"
    # Nor is a failure of another kind.
    assert told(WATCHDOG, *scheduler(3, raised="ValueError: seven is no power of two")).process == "TP3"


@pytest.mark.parametrize(
    ("raised", "failure"),
    [
        ("ValueError: Total available GPUs 4 is less than total desired GPUs 8", "deterministic"),
        ("ValueError: Timeout 300s waiting for workers", "unknown"),
        ("ValueError: timed out after 3 s", "unknown"),
        ("ValueError: the layout of 3 is wrong", "deterministic"),
    ],
)
def test_the_class_of_what_ray_carries_is_that_of_the_exception_inside(raised: str, failure: str) -> None:
    diagnosis = told(
        "Traceback (most recent call last):",
        '  File "/opt/trainer/main.py", line 7, in main',
        "ray.exceptions.RayTaskError(ValueError): ray::Runner.run() (pid=7, ip=10.0.0.7)",
        '  File "/opt/trainer/trainer.py", line 9, in check',
        raised,
    )
    assert (diagnosis.text, diagnosis.failure.value, diagnosis.phase) == (raised, failure, None)


def test_what_a_relayed_engine_says_has_no_level_of_its_own() -> None:
    relay = "2026-11-30 05:27:01,693 - __main__ - INFO - "
    assert parse(relay + HEADLINE.format(rank=3), 1).level is None
    assert parse(relay + "loaded", 1).level == "INFO"


def test_hydra_refuses_a_key() -> None:
    assert told("Could not override 'model.nam'.", "Key 'nam' is not in struct").failure.value == "deterministic"
    assert not told("Could not override the default of 3 workers").fatal
