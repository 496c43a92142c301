"""Every prefix is told from its line, whatever wraps it; what only looks like one stays text."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervise.diagnosis.prefixes import parse, parse_all
from tests.support.effort import is_slow

WORKER = "(Worker_TP0 pid=77) ERROR 11-30 05:27:01 [multiproc_executor.py:953] "
GLOG = "E1130 05:00:00.123456 77 torch/distributed/run.py:792] "
STAMP = "2025-06-27 12:57:51,690"

# raw -> text, process, pid, rank, level, source, time, record
PREFIXES = {
    # vLLM
    WORKER + "  File": ("  File", "Worker_TP0", 77, 0, "ERROR", "multiproc_executor.py:953", "11-30 05:27:01", True),
    WORKER[:-1]: ("", "Worker_TP0", 77, 0, "ERROR", "multiproc_executor.py:953", "11-30 05:27:01", True),
    "ERROR 09-01 12:00:00 [core.py:586] x": ("x", None, None, None, "ERROR", "core.py:586", "09-01 12:00:00", True),
    "INFO 08-02 03:11:22 a.py:219] x": ("x", None, None, None, "INFO", "a.py:219", "08-02 03:11:22", True),
    "INFO 08-02 03:11:22 [v1/engine/core.py:9] x": (
        "x", None, None, None, "INFO", "v1/engine/core.py:9", "08-02 03:11:22", True,
    ),
    "(APIServer pid=5) Traceback": ("Traceback", "APIServer", 5, None, None, None, None, False),
    "(APIServer pid=5)   File": ("  File", "APIServer", 5, None, None, None, None, False),
    "(APIServer pid=5) INFO:     Started": ("Started", "APIServer", 5, None, "INFO", None, None, True),
    "(VllmWorker rank=3 pid=9) x": ("x", "VllmWorker", 9, 3, None, None, None, False),
    "(VllmWorker TP1 pid=9) x": ("x", "VllmWorker", 9, 1, None, None, None, False),
    "(VllmWorkerProcess pid=9) x": ("x", "VllmWorkerProcess", 9, None, None, None, None, False),
    "(Worker_DP0_TP3 pid=9) x": ("x", "Worker_DP0_TP3", 9, 3, None, None, None, False),
    "(EngineCore_DP1 pid=9) x": ("x", "EngineCore_DP1", 9, None, None, None, None, False),
    # VLLM_LOGGING_PREFIX, a bar without an end, a margin
    "[blue] INFO 11-30 05:00:00 [a.py:1] x": ("x", None, None, None, "INFO", "a.py:1", "11-30 05:00:00", True),
    "Loading: 50% | 1/2 [00:01<00:01, 1.5s/it](Worker pid=7) INFO 11-30 05:00:00 [a.py:1] x": (
        "x", "Worker", 7, None, "INFO", "a.py:1", "11-30 05:00:00", True,
    ),
    "    " + WORKER + "x": ("x", "Worker_TP0", 77, 0, "ERROR", "multiproc_executor.py:953", "11-30 05:27:01", True),
    # SGLang
    "[2026-11-30 05:00:00 TP0] x": ("x", "TP0", None, 0, None, None, "2026-11-30 05:00:00", True),
    "[2026-11-30 05:00:00 DP1 TP2 EP2] x": ("x", "DP1 TP2 EP2", None, 2, None, None, "2026-11-30 05:00:00", True),
    "[2026-11-30 05:00:00.12] x": ("x", None, None, None, None, None, "2026-11-30 05:00:00.12", True),
    "[2026-11-30 05:00:00] Decode": ("Decode", None, None, None, None, None, "2026-11-30 05:00:00", True),
    "[05:00:00 TP1] x": ("x", "TP1", None, 1, None, None, "05:00:00", True),
    "[gpu=2] x": ("x", "gpu=2", None, 2, None, None, None, False),
    "[2026-11-30 05:00:00] INFO:     Started": (
        "Started", None, None, None, "INFO", None, "2026-11-30 05:00:00", True,
    ),
    "[2026-11-30 05:00:00] WARNING server_args.py:8: x": (
        "x", None, None, None, "WARNING", "server_args.py:8", "2026-11-30 05:00:00", True,
    ),
    # uvicorn, gunicorn, Python
    "INFO:     Application": ("Application", None, None, None, "INFO", None, None, True),
    "ERROR:    [Errno 98]": ("[Errno 98]", None, None, None, "ERROR", None, None, True),
    "ERROR:   File": ("  File", None, None, None, "ERROR", None, None, True),
    "INFO:uvicorn.error:x": ("x", None, None, None, "INFO", "uvicorn.error", None, True),
    "ERROR:root:  x": ("  x", None, None, None, "ERROR", "root", None, True),
    "[2026-11-30 05:00:00 +0000] [12] [INFO] x": (
        "x", None, None, None, "INFO", None, "2026-11-30 05:00:00 +0000", True,
    ),
    "[2026-11-30 05:00:00,123] [WARNING] [a.py:20:f] x": (
        "x", None, None, None, "WARNING", "a.py:20:f", "2026-11-30 05:00:00,123", True,
    ),
    f"{STAMP} - app.x - ERROR - x": ("x", None, None, None, "ERROR", "app.x", STAMP, True),
    f"{STAMP} - lmdeploy - ERROR - a.py:1 - x": ("x", None, None, None, "ERROR", "lmdeploy", STAMP, True),
    f"{STAMP} - WARNING - x": ("x", None, None, None, "WARNING", None, STAMP, True),
    f"{STAMP}\tINFO worker.py:18 -- x": ("x", None, None, None, "INFO", "worker.py:18", STAMP, True),
    f"{STAMP} INFO  x": (" x", None, None, None, None, None, STAMP, True),
    f"{STAMP} ERROR    x": ("x", None, None, None, "ERROR", None, STAMP, True),
    f"{STAMP} ERROR torch.OutOfMemoryError: x": (
        "torch.OutOfMemoryError: x", None, None, None, "ERROR", None, STAMP, True,
    ),
    f"{STAMP} | ERROR    | a.b:f:12 - x": ("x", None, None, None, "ERROR", "a.b:f:12", STAMP, True),
    "2026-11-30T05:00:00.1Z  WARN router::core: x": (
        "x", None, None, None, "WARNING", "router::core", "2026-11-30T05:00:00.1Z", True,
    ),
    f"[{STAMP}] torch.distributed.run: [WARNING] x": (
        "x", None, None, None, "WARNING", "torch.distributed.run", STAMP, True,
    ),
    # an inner prefix says more than the relay's, whose indentation is kept
    f"{STAMP} - __main__ - INFO - {WORKER}x": (
        "x", "Worker_TP0", 77, 0, "ERROR", "multiproc_executor.py:953", "11-30 05:27:01", True,
    ),
    f'{STAMP} - __main__ - INFO -   File "x.py"': ('  File "x.py"', None, None, None, None, "__main__", STAMP, True),
    f"{STAMP} - __main__ - INFO - RuntimeError: x": (
        "RuntimeError: x", None, None, None, None, "__main__", STAMP, True,
    ),
    f"{STAMP} - __main__ - INFO - prompt: RuntimeError: x": (
        "prompt: RuntimeError: x", None, None, None, "INFO", "__main__", STAMP, True,
    ),
    # torch, glog, NCCL, XLA, llama.cpp
    "[rank1]: Traceback": ("Traceback", "rank1", None, 1, None, None, None, False),
    "[rank1]:   File": ("  File", "rank1", None, 1, None, None, None, False),
    "[rank0]:[E1130 05:00:00.1 a.cpp:6] x": ("x", "rank0", None, 0, "ERROR", "a.cpp:6", "1130 05:00:00.1", True),
    "(Worker_TP1 pid=9) [rank1]:[E1130 05:00:00.1 a.cpp:6] x": (
        "x", "Worker_TP1", 9, 1, "ERROR", "a.cpp:6", "1130 05:00:00.1", True,
    ),
    "[default3]:  File": ("  File", "default3", None, 3, None, None, None, False),
    "[default3]:[rank3]: x": ("x", "default3", None, 3, None, None, None, False),
    GLOG + "x": ("x", None, None, None, "ERROR", "torch/distributed/run.py:792", "1130 05:00:00.123456", True),
    "E0000 00:00:1751030271.601234    77 cuda_fft.cc:4] x": (
        "x", None, None, None, "ERROR", "cuda_fft.cc:4", "0000 00:00:1751030271.601234", True,
    ),
    f"{STAMP}: E external/xla/a.cc:477] x": ("x", None, None, None, "ERROR", "external/xla/a.cc:477", STAMP, True),
    "node-1:12:345 [3] NCCL WARN x": ("NCCL WARN x", None, None, 3, "WARNING", "NCCL", None, True),
    "node-1:12:345 [0] include/alloc.h:1 NCCL WARN x": (
        "include/alloc.h:1 NCCL WARN x", None, None, 0, "WARNING", "NCCL", None, True,
    ),
    "[2026-11-30 05:00:00] n:12:345 [3] NCCL INFO x": (
        "NCCL INFO x", None, None, 3, "INFO", "NCCL", "2026-11-30 05:00:00", True,
    ),
    "0.00.123.456 E x": ("x", None, None, None, "ERROR", None, "0.00.123.456", True),
    # Ray
    "(RayWorkerWrapper pid=9, ip=10.0.0.2) x": ("x", "RayWorkerWrapper", 9, None, None, None, None, False),
    "(RayWorkerWrapper pid=9)   File [repeated 3x across cluster]": (
        "  File", "RayWorkerWrapper", 9, None, None, None, None, False,
    ),
    "(EngineCore pid=1) (RayWorkerWrapper pid=9) x": ("x", "RayWorkerWrapper", 9, None, None, None, None, False),
    "(pid=9, ip=10.0.0.2) x": ("x", None, None, None, None, None, None, False),
    "(raylet, ip=10.0.0.2) x": ("x", "raylet", None, None, None, None, None, False),
    "(Engine pid=9) [2026-11-30 05:00:00 TP1] x": ("x", "Engine", 9, 1, None, None, "2026-11-30 05:00:00", True),
}  # fmt: skip


@pytest.mark.parametrize("raw", PREFIXES)
def test_prefixes(raw: str) -> None:
    line = parse(raw, 7)
    said = (line.text, line.process, line.pid, line.rank, line.level, line.source, line.time, line.record)
    assert said == PREFIXES[raw]
    assert (line.number, line.raw) == (7, raw)


MOMENT = "2026-11-30T05:27:01.123456789Z"
ENVELOPES = {
    "vllm-1  | ": None,
    "web_1 | ": None,
    "vllm  | ": None,
    f"{MOMENT} stderr F ": MOMENT,
    f"{MOMENT} ": MOMENT,
    "2026-11-30T05:27:01+00:00 ": "2026-11-30T05:27:01+00:00",
    "2026-11-30 05:27:01 ": "2026-11-30 05:27:01",
    "[pod/vllm-x-1/vllm] ": None,
    "vllm-7d9f8b6c5-x2x4z vllm ": None,
    "Nov 30 05:27:01 host vllm[123]: ": "Nov 30 05:27:01",
    "Nov  3 05:27:01 host python3.12[123]: ": "Nov  3 05:27:01",
    "2026-11-30T05:27:01+0000 host vllm[12]: ": "2026-11-30T05:27:01+0000",
    "[1,0]<stderr>:": None,
    "> ": None,
    "[pod/a-1/b] vllm-1  | ": None,
    f"{MOMENT} stdout F > ": MOMENT,
}


@pytest.mark.parametrize("envelope", ENVELOPES)
@pytest.mark.parametrize("inner", [WORKER + "x", "[2026-11-30 05:00:00 TP3] x", "INFO:     x", "plain  text"])
def test_an_envelope_changes_nothing_about_what_it_wraps(envelope: str, inner: str) -> None:
    bare, line = parse(inner, 1), parse(envelope + inner, 1)
    assert (line.text, line.process, line.pid, line.level, line.source, line.record) == (
        bare.text, bare.process, bare.pid, bare.level, bare.source, bare.record,
    )  # fmt: skip
    assert line.time == (bare.time or ENVELOPES[envelope])


@pytest.mark.parametrize("envelope", ENVELOPES)
def test_an_envelope_takes_one_blank_only(envelope: str) -> None:
    assert parse(envelope + '  File "a.py", line 1, in f', 1).text == '  File "a.py", line 1, in f'
    assert parse(envelope + "    raise x", 1).text == "    raise x"
    assert parse(envelope.rstrip(), 1).text in ("", envelope.rstrip())


@pytest.mark.parametrize(
    ("raw", "text", "rank"),
    [
        (f"3: {WORKER}x", "x", 0),
        ("3: Traceback (most recent call last):", "Traceback (most recent call last):", 3),
        ('3:   File "a.py", line 1', '  File "a.py", line 1', 3),
        ("3:     raise x", "    raise x", 3),
        ("3: torch.OutOfMemoryError: CUDA", "torch.OutOfMemoryError: CUDA", 3),
        ("3: vllm serve: error: x", "vllm serve: error: x", 3),
        ("3: not a label", "3: not a label", None),
        ("vllm-0 vllm Traceback (most recent call last):", "Traceback (most recent call last):", None),
        ("vllm-0 vllm is up", "vllm-0 vllm is up", None),
    ],
)
def test_what_may_be_text_is_an_envelope_only_before_what_is_certain(raw: str, text: str, rank: int | None) -> None:
    line = parse(raw, 1)
    assert (line.text, line.rank) == (text, rank)


@pytest.mark.parametrize(
    ("raw", "process", "text"),
    [
        ("Nov 30 05:27:01 h systemd[1]: vllm.service: Main", "systemd", "vllm.service: Main"),
        ("Nov 30 05:27:01 h kernel: Out of memory", "kernel", "Out of memory"),
        ("[12345.678901] Out of memory", "kernel", "Out of memory"),
        ("[Mon Nov 30 05:27:01 2026] Out of memory", "kernel", "Out of memory"),
    ],
)
def test_the_kernel_and_systemd_speak_for_themselves(raw: str, process: str, text: str) -> None:
    line = parse(raw, 1)
    assert (line.process, line.text) == (process, text)


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "Error: x",
        "(not a process) x",
        "(see pid 3) x",
        "[not a date] x",
        "[1, 2] and [3]",
        "[2026] x",
        ">>> import vllm",
        "fine-tuned weights loaded",
        "gpt-oss-120b model loaded",
        "a | b | c",
        "1: x",
        "12:30 is a time",
        "127.0.0.1:8000 - x",
        '{"id": "cmpl-1", "choices": [{"text": "CUDA out of memory"}]}',
        '{"object": "error", "message": "RuntimeError: x", "code": 400}',
        '{"level": "ERROR"}',
        '{"message": "x", "level": "ERROR"',
        "{'message': 'x', 'level': 'ERROR'}",
        "INFORMATION: x",
        "INFO is a word",
        "prompt: 'ERROR 11-30 05:27:01 [core.py:1] CUDA out of memory'",
        'asked "[2026-11-30 05:00:00 TP0] Scheduler hit an exception"',
        "rate(x[5m]) is 10m",
        "Nov 30 is a day",
        "Worker (pid=3) exited",
    ],
)
def test_what_only_looks_like_a_prefix_stays(raw: str) -> None:
    line = parse(raw, 1)
    assert line.text == raw
    assert (line.process, line.level, line.time, line.record) == (None, None, None, False)


@pytest.mark.parametrize(
    "raw",
    [
        "\x1b[0;36m(EngineCore pid=3)\x1b[0;0m \x1b[31mERROR\x1b[0m 11-30 05:00:00 [core.py:1510] no\x1b]0;t\x07",
        "[0;36m(EngineCore pid=3)[0;0m ERROR 11-30 05:00:00 [core.py:1510] no",
        "^[[1;36m(EngineCore pid=3)^[[0;0m ERROR 11-30 05:00:00 [core.py:1510] no",
        "Nov 30 05:00:00 h v[1]: #033[1;36m(EngineCore pid=3)#033[0;0m ERROR 11-30 05:00:00 [core.py:1510] no",
        "\ufffd[1;36m(EngineCore pid=3)\ufffd[0;0m ERROR 11-30 05:00:00 [core.py:1510] no",
    ],
)
def test_colour_is_taken_off_before_the_prefix_is_read_also_where_its_escape_got_lost(raw: str) -> None:
    line = parse(raw, 1)
    assert (line.process, line.pid, line.level, line.text) == ("EngineCore", 3, "ERROR", "no")


# --- records in JSON --------------------------------------------------------------------------------------------------


def test_a_record_in_json_is_read_by_the_usual_names() -> None:
    raw = json.dumps(
        {"asctime": "then", "levelname": "ERROR", "name": "vllm.core", "processName": "EngineCore", "process": 9}
        | {"message": "x"}
    )
    line = parse("vllm-1  | " + raw, 3)
    assert (line.text, line.process, line.pid, line.level, line.source, line.time) == (
        "x", "EngineCore", 9, "ERROR", "vllm.core", "then",
    )  # fmt: skip
    assert line.record


@pytest.mark.parametrize(
    ("record", "level"),
    [
        ({"msg": "x", "level": "warn", "time": 1.5}, "WARNING"),
        ({"event": "x", "level": "error", "timestamp": "t"}, "ERROR"),
        ({"textPayload": "x", "severity": "ERROR"}, "ERROR"),
        ({"jsonPayload": {"message": "x"}, "severity": "CRITICAL"}, "CRITICAL"),
        ({"text": "t | x", "record": {"message": "x", "level": {"name": "DEBUG", "no": 10}}}, "DEBUG"),
        ({"fields": {"message": "x"}, "level": "INFO", "timestamp": "t"}, "INFO"),
    ],
)
def test_other_dialects_of_json(record: dict[str, object], level: str) -> None:
    line = parse(json.dumps(record), 1)
    assert (line.text, line.level) == ("x", level)


def test_docker_keeps_lines_in_json() -> None:
    raw = json.dumps({"log": WORKER + "  File\n", "stream": "stderr", "time": MOMENT})
    (line,) = parse_all(raw, 4)
    assert (line.text, line.process, line.level, line.number, line.raw) == ("  File", "Worker_TP0", "ERROR", 4, raw)


TRACE = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    g()\nRuntimeError: x'


@pytest.mark.parametrize(
    "record",
    [
        {"message": "died.\n" + TRACE, "level": "ERROR"},
        {"message": "died.", "level": "ERROR", "exc_info": TRACE},
        {"msg": "died.", "severity": "ERROR", "name": "n", "traceback": TRACE.splitlines(keepends=True)},
    ],
)
def test_a_traceback_in_one_record_becomes_its_lines(record: dict[str, object]) -> None:
    lines = parse_all(json.dumps(record), 9)
    assert [line.text for line in lines] == ["died.", *TRACE.split("\n")]
    assert {(line.number, line.level, line.record) for line in lines} == {(9, "ERROR", True)}
    assert None not in {line.source for line in lines}
    assert parse(json.dumps(record), 9) == lines[0]


def test_a_pager_pads_and_its_blanks_are_no_text() -> None:
    assert parse("Nov 30 05:27:01 h v[1]: RuntimeError: x     ", 1).text == "RuntimeError: x"
    assert parse("RuntimeError: x     ", 1).text == "RuntimeError: x"
    assert parse("    ", 1).text == ""


def test_a_record_that_was_cut_off_is_read_as_far_as_it_goes() -> None:
    raw = json.dumps({"level": "ERROR", "message": TRACE + "\n" + "y" * 4000})[:3000]
    lines = parse_all(raw, 1)
    assert [line.text for line in lines[:4]] == TRACE.split("\n")
    assert lines[3].level == "ERROR"


def test_information_that_quotes_an_error_stays_information_in_all_its_lines() -> None:
    quoting = parse_all(json.dumps({"level": "INFO", "message": "asked: \n" + TRACE}), 1)
    assert {line.level for line in quoting} == {"INFO"}
    relaying = parse_all(json.dumps({"level": "INFO", "message": TRACE}), 1)
    assert {line.level for line in relaying} == {None}


# --- cost -------------------------------------------------------------------------------------------------------------

PIECES = st.sampled_from(
    [*(each[: len(each) // 2] for each in PREFIXES), *PREFIXES, *ENVELOPES, " ", "x", "(", "[", "{", "é", '{"log":"a"}']
)


@given(st.one_of(st.text(max_size=80), st.lists(PIECES, max_size=6).map("".join)))
def test_it_never_raises_and_takes_text_from_the_line(raw: str) -> None:
    line = parse(raw, 1)
    assert line in parse_all(raw, 1)
    assert line.text in line.raw or "{" in line.raw
    assert not any(char < " " and char != "\t" for char in line.text)


GARBAGE = [
    *("a", "a.", "a-", "-b", "1", "1:", " ", "(", "(a", "[", "[1", "> ", '{"', '{"a":"'),
    *("\\", "| ", "INFO ", "[20", ".py:"),
    *("INFO 11-30 05:27:01 ", "a pid=", "(a pid=1 ", "2026-11-30 05:27:01 ", "a::", "[0m", "\x1b[", "[repeated "),
    *("Aa.", f"{STAMP} - a - INFO - "),
]


@pytest.mark.parametrize("unit", GARBAGE)
def test_long_garbage_takes_no_longer_than_its_length(unit: str) -> None:
    heads = ("", "(W pid=1) ", f"{STAMP} - a - INFO - ", "[20.py:", '{"message":"')
    for head in heads:
        assert not is_slow(lambda size: parse_all(head + unit * (size // len(unit)), 1), 4_096), head  # noqa: B023


@pytest.mark.parametrize(
    "wrapped",
    [
        "    17\t{}",
        "17\t{}",
        "serve\tRun server\t2026-11-30T05:00:00.1234567Z {}",
        '{{"labels": {{"pod": "v-0"}}, "line": "{}", "timestamp": "2026-11-30T05:00:00Z"}}',
        "{}^M",
    ],
)
def test_wrapped_by_a_viewer(wrapped: str) -> None:
    line = parse(wrapped.format("(EngineCore pid=3) ERROR 11-30 05:00:00 [core.py:15] KeyError: 4"), 1)
    assert (line.process, line.level, line.text) == ("EngineCore", "ERROR", "KeyError: 4")


def test_numbers_that_number_no_line_stay() -> None:
    for text in ("17 KeyError: 4", "  17 tokens", "a\tb\tc"):
        assert parse(text, 1).text == text
