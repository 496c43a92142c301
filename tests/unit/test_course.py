"""A server that goes on after an error lives; who says it first is quoted; frames and bars tell the phase."""

from __future__ import annotations

import pytest

from supervise.diagnosis.prefixes import parse
from supervise.diagnosis.stages import stage_of
from supervise.diagnosis.whole import UNKNOWN_END, explain
from supervise.model.diagnosis import Diagnosis
from supervise.profiles.load import load_all
from supervise.profiles.signatures import available_sets, load_signatures

SIGNATURES = load_signatures(available_sets())
PROFILES = load_all()

UP = "INFO:     Application startup complete."
ANSWERED = 'INFO:     10.0.0.1:1 - "POST /v1/completions HTTP/1.1" 200 OK'
REFUSED = 'INFO:     10.0.0.1:1 - "POST /v1/completions HTTP/1.1" 500 Internal Server Error'
REQUEST = (
    "Traceback (most recent call last):",
    '  File "/srv/app.py", line 3, in answer',
    "    raise ValueError(kind)",
    "ValueError: no such kind",
)
ENGINE = "ERROR 07-04 08:11:17 [core.py:515] "
REASON = "ValueError: No available memory for the cache blocks."
LOGGED = tuple(
    ENGINE + text
    for text in (
        "EngineCore failed to start.",
        "Traceback (most recent call last):",
        '  File "/x/vllm/v1/engine/core.py", line 506, in run_engine_core',
        REASON,
    )
)
PRINTED = (
    "Process EngineCore_0:",
    "Traceback (most recent call last):",
    '  File "/usr/lib/python3.12/multiprocessing/process.py", line 314, in _bootstrap',
)


def told(*lines: str) -> Diagnosis:
    return explain(["\n".join(lines).encode()], UNKNOWN_END, SIGNATURES, PROFILES).diagnosis


def test_a_server_that_answers_after_an_error_lives() -> None:
    assert not told(UP, *REQUEST, ANSWERED).fatal


def test_one_that_answers_no_more_does_not() -> None:
    assert told(UP, ANSWERED, *REQUEST, REFUSED).fatal


def test_an_answer_does_not_bring_an_engine_back() -> None:
    died = told(UP, *(line.replace("failed to start", "encountered a fatal error") for line in LOGGED), ANSWERED)
    assert died.fatal
    assert died.line == 5


def test_the_first_who_says_it_is_quoted() -> None:
    """The engine logs its exception without naming itself; Python prints it again and names the process."""
    assert told(*LOGGED, *PRINTED, REASON).line == 4


def test_but_only_for_the_same_words() -> None:
    other = told(*LOGGED, *PRINTED, "ValueError: max_num_seqs is too large")
    assert (other.line, other.process) == (8, "EngineCore_0")


RUN, LOAD, PROFILE = (
    f'  File "/x/vllm/worker.py", line 1, in {name}' for name in ("execute_model", "load_model", "profile_run")
)


@pytest.mark.parametrize(
    ("frames", "phase"),
    [
        ((RUN,), "run"),
        ((PROFILE, RUN), "profile"),
        ((LOAD,), "weights"),
        ((RUN, LOAD), "run"),
        (("    return self.execute_model(batch)",), None),
    ],
)
def test_a_batch_is_run_for_a_request_unless_something_else_wanted_it(
    frames: tuple[str, ...], phase: str | None
) -> None:
    stage = None
    for frame in frames:
        stage = stage_of(frame, stage)
    assert stage == phase


@pytest.mark.parametrize(
    ("bar", "phase"),
    [("Processed prompts", "run"), ("Loading safetensors checkpoint shards", "weights"), ("Epoch", None)],
)
def test_a_bar_is_no_phase(bar: str, phase: str | None) -> None:
    """vLLM is told by the mark in the traceback; of a head that is cut off only a bar is left."""
    failed = told(f"{bar}:  25% Completed | 1/4 [00:01<00:03]", *(f"(Worker pid=3) {line}" for line in REQUEST))
    assert failed.fatal
    assert failed.phase == phase


def test_time_stamps_of_a_container_do_not_hide_the_engines_prefix() -> None:
    line = parse("2025-04-06T07:55:21.108632509Z ERROR 04-06 00:55:21 [engine.py:448] ValueError: x", 1)
    assert (line.text, line.level, line.source) == ("ValueError: x", "ERROR", "engine.py:448")
    plain = parse("2025-04-06T07:55:21Z ERROR 04-06 is a bad day", 1)
    assert (plain.text, plain.level) == ("04-06 is a bad day", "ERROR")


def test_a_time_before_every_line_is_not_sglangs() -> None:
    """moreutils' `ts`, and many a launcher, write what SGLang does."""
    line = parse("[2025-04-06 07:00:00] (Worker_TP1 pid=7) ERROR 04-06 00:55:21 [engine.py:448] ValueError: x", 1)
    assert (line.text, line.process, line.source) == ("ValueError: x", "Worker_TP1", "engine.py:448")
    own = parse("[2025-04-06 07:00:00 TP1] (not a process) x", 1)
    assert (own.text, own.process) == ("(not a process) x", "TP1")


ENDED = "INFO 07-04 08:30:00 [launcher.py:110] Shutting down FastAPI HTTP server."
GONE = "ERROR 07-04 08:30:01 [multiproc_executor.py:135] Worker proc VllmWorker-0 died unexpectedly, shutting down."


def test_a_worker_that_goes_while_its_server_ends_in_order_is_no_failure() -> None:
    assert not told(UP, ANSWERED, ENDED, GONE).fatal


def test_a_server_that_ends_because_a_worker_is_gone_failed() -> None:
    assert told(UP, ANSWERED, GONE, ENDED).fatal


def test_a_name_that_does_not_resolve_means_what_who_wanted_it_says() -> None:
    first = ("Traceback (most recent call last):", '  File "/x/socket.py", line 9, in getaddrinfo')
    name = "socket.gaierror: [Errno -2] Name or service not known"
    then = (
        "",
        "The above exception was the direct cause of the following exception:",
        "",
        "Traceback (most recent call last):",
        '  File "/x/hub.py", line 3, in cached_file',
        "OSError: We couldn't connect to 'https://huggingface.co' to load the files",
    )
    hub, alone = told(*first, name, *then), told(*first, name)
    assert (hub.line, hub.failure.value, hub.phase) == (3, "transient", "config")
    assert (alone.line, alone.failure.value) == (3, "deterministic")


def test_a_cut_off_report_is_the_first_of_two_that_say_the_same() -> None:
    cut = told(*LOGGED[2:], *PRINTED, REASON)
    assert cut.line == 2
    other = told(*LOGGED[2:], *PRINTED, "ValueError: No room for the other thing.")
    assert other.line == 6


def test_a_report_that_lost_head_and_blanks_is_read_in_a_record_only() -> None:
    flat = ('File "/x/vllm/v1/engine/core.py", line 506, in run_engine_core', "engine_core.run_busy_loop()")
    raised = "RuntimeError: no such kind"
    died = "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue."
    assert told(*(ENGINE + text for text in (*flat, raised)), ENGINE + died).line == 3
    assert told(*flat, raised, ENGINE + died).line is None


CAUGHT = ("item 3 failed: Traceback (most recent call last):", *REQUEST[1:])


@pytest.mark.parametrize(
    "step",
    ["item {} is done", "{}0%|{}   | {}/5 [00:0{}<00:04,  1.0s/it]", " {}0%|##   | {}/5 [00:0{}<00:04,  1.0s/it]"],
)
def test_a_script_that_prints_an_error_and_goes_on_with_its_steps_lives(step: str) -> None:
    one, two = step.replace("{}", "1"), step.replace("{}", "4")
    assert not told(one, *CAUGHT, two).fatal
    assert told(one, two, *CAUGHT, "giving up").fatal
    assert told(*CAUGHT, two).fatal


def test_it_fails_if_it_did_not_catch_the_error_or_another_one_came() -> None:
    assert told("item 2 is done", *REQUEST, "item 4 is done").fatal
    assert told("item 2 is done", *CAUGHT, "item 4 is done", *CAUGHT).fatal


def test_a_traceback_right_after_a_bar_is_one() -> None:
    bar = "Processed: 20%|##   | 1/5 [00:01<00:04, 1.0 toks/s]"
    assert told(bar + REQUEST[0], *REQUEST[1:], bar).line == 4
    assert not told(f"it says '{REQUEST[0]}", *REQUEST[1:]).fatal


def test_what_a_handler_of_requests_reports_without_a_headline_cost_one_request() -> None:
    handler, other = (f"ERROR 07-04 08:11:17 [{file}:193] " for file in ("serving_chat.py", "launcher.py"))
    assert not told(UP, *(handler + text for text in REQUEST), REFUSED).fatal
    assert told(UP, *(other + text for text in REQUEST), REFUSED).fatal


LOST = (
    "ERROR 07-04 08:30:02 [async_llm.py:480] AsyncLLM output_handler failed.",
    "ERROR 07-04 08:30:02 [async_llm.py:480] Traceback (most recent call last):",
    '  File "/x/vllm/v1/engine/core_client.py", line 846, in get_output_async',
    "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.",
)


def test_an_engine_missed_after_an_end_in_order_is_no_failure_though_the_head_is_cut_off() -> None:
    assert not told(ANSWERED, ENDED, *LOST).fatal
    assert told(ANSWERED, *LOST, ENDED).fatal
    assert told(ENDED, *LOST).fatal


def test_an_engine_inside_of_the_front_end_says_it_before_native_code_dies_of_it() -> None:
    said = "RuntimeError: CUDA error: an illegal memory access was encountered"
    record = "ERROR 07-04 08:11:17 async_llm_engine.py:63] "
    frame = '  File "/x/vllm/worker/model_runner.py", line 1499, in execute_model'
    engine = (record + "Engine background task failed", record + REQUEST[0], record + frame, record + said)
    watchdog = (
        "[rank0]:[E704 08:11:18.11 ProcessGroupNCCL.cpp:1515] [PG 3 Rank 0] Process group watchdog thread terminated "
        "with exception: CUDA error: an illegal memory access was encountered"
    )
    died = "terminate called after throwing an instance of 'c10::DistBackendError'"
    assert told(UP, *engine, watchdog, died).line == 5
    assert told(UP, watchdog, died).line == 2


# --- what lived on ----------------------------------------------------------------------------------------------------

QUOTED = ("The log that you sent says:", "RuntimeError: CUDA error: an illegal memory access was encountered", *LOGGED)
KILLED = "kernel: Out of memory: Killed process 99 (jupyter-lab) total-vm:1kB, anon-rss:1kB"
ENDING = "INFO:     Shutting down"


def pulse(minute: int, speed: str = "44.0") -> str:
    return (
        f"INFO 07-04 08:{minute}:00 [loggers.py:1] Engine 000: Avg prompt throughput: 9.0 tokens/s, "
        f"Avg generation throughput: {speed} tokens/s, Running: 2 reqs, GPU KV cache usage: 1.0%"
    )


PULSES = tuple(map(pulse, (20, 21, 22)))
NO_PULSES = tuple(pulse(minute, "0.0") for minute in (20, 21, 22))


@pytest.mark.parametrize(
    ("log", "fatal"),
    [
        ((UP, *QUOTED, *PULSES), False),
        ((UP, *QUOTED, *PULSES[:2]), True),
        ((UP, *QUOTED, *NO_PULSES), True),
        ((UP, *QUOTED, PULSES[0], PULSES[0], PULSES[0]), True),
        ((UP, *QUOTED, ENDING, *PULSES), True),
        ((UP, *QUOTED, *PULSES, *REQUEST), True),
        (tuple(f"a-1  | {text}" for text in (UP, *QUOTED, *PULSES)), False),
        ((*(f"a-1  | {text}" for text in (UP, *QUOTED)), *(f"b-1  | {text}" for text in PULSES)), True),
        ((UP, KILLED, *PULSES), False),
        ((UP, KILLED), True),
    ],
)
def test_who_goes_on_generating_has_not_died(log: tuple[str, ...], fatal: bool) -> None:
    assert told(*log).fatal is fatal


MISSED = (
    "2026-05-01 10:00:00,100 - app - WARNING - no flashinfer",
    *REQUEST[:3],
    "ModuleNotFoundError: No module named 'x'",
)
STAGES = (
    "INFO 07-04 08:11:17 [core.py:77] Initializing a V1 LLM engine (v0.11.0) with config: model=/m",
    "INFO 07-04 08:11:18 [gpu_model_runner.py:2602] Starting to load model /m...",
    "Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:01<00:01,  1.0s/it]",
)


@pytest.mark.parametrize(("stages", "fatal"), [(STAGES, False), (STAGES[:1], True), ((), True)])
def test_who_starts_up_had_caught_it(stages: tuple[str, ...], fatal: bool) -> None:
    assert told(*MISSED, *stages).fatal is fatal


STEPS = ("{'loss': 2.1, 'epoch': 0.5}", "{'loss': 1.1, 'epoch': 1.0}")
SUMMARY = "{'train_runtime': 600.1, 'train_loss': 1.4, 'epoch': 1.0}"
RAYLET = (
    "(raylet) node_manager.cc:3193: 2 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed"
)


@pytest.mark.parametrize(
    ("log", "fatal"),
    [
        ((STEPS[0], *REQUEST, STEPS[1], SUMMARY), False),
        ((STEPS[0], STEPS[1], SUMMARY, *REQUEST), True),
        (("(T pid=7) step:1 - loss:0.1", RAYLET, "(T pid=7) step:2 - loss:0.1"), False),
        (("(T pid=7) step:1 - loss:0.1", RAYLET), True),
        ((f"item 1: {REQUEST[0]}", *REQUEST[1:], "done: 100%|███| 9/9 [00:09<00:00]"), False),
        ((f"item 1: {REQUEST[0]}", *REQUEST[1:], "done:  88%|███| 8/9 [00:09<00:00]"), True),
    ],
)
def test_a_script_that_came_through_had_caught_it(log: tuple[str, ...], fatal: bool) -> None:
    assert told(*log).fatal is fatal


OUT_OF_TIME = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-02T13:10:02 DUE TO {} ***"


@pytest.mark.parametrize(
    ("log", "fatal"),
    [
        ((UP, OUT_OF_TIME.format("TIME LIMIT")), False),
        ((UP, OUT_OF_TIME.format("NODE FAILURE")), True),
        ((OUT_OF_TIME.format("TIME LIMIT"),), True),
    ],
)
def test_a_server_may_run_out_of_its_time(log: tuple[str, ...], fatal: bool) -> None:
    assert told(*log).fatal is fatal


@pytest.mark.parametrize(
    ("answer", "fatal"),
    [
        ("INFO 2026-03-13 15:22:16,011 app_LLM j28b -- POST /generate 200 411.1ms", False),
        (
            "2025-03-13T08:41:00.1Z  INFO chat{}: text_generation_router::server: router/src/server.rs:625: Success",
            False,
        ),
        ("INFO 2026-03-13 15:22:16,011 app_LLM j28b -- POST /generate 500 411.1ms", True),
    ],
)
def test_answers_of_other_servers(answer: str, fatal: bool) -> None:
    assert told(UP, *REQUEST, answer).fatal is fatal
