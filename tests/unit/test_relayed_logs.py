"""Logs that somebody passed on in his own way: what was put before each line, and what was lost on the way."""

from __future__ import annotations

import pytest

from supervise.diagnosis.prefixes import parse
from supervise.diagnosis.whole import UNKNOWN_END, explain
from supervise.model.diagnosis import Diagnosis
from supervise.profiles.load import load_all
from supervise.profiles.signatures import available_sets, load_signatures

ENGINE = "(EngineCore pid=77) ERROR 11-30 05:27:01 [core.py:1132] "
SHELL = "[2026-01-22 20:05:33] [/bin/sh]: "
SITE = "/usr/local/lib/python3.12/dist-packages/vllm/v1/"


def told(*lines: str) -> Diagnosis:
    log = "".join(line + "\n" for line in lines).encode()
    return explain([log], UNKNOWN_END, load_signatures(available_sets()), load_all()).diagnosis


@pytest.mark.parametrize(
    ("raw", "process", "pid", "text"),
    [
        (SHELL + "[EngineCore_DP0][pid=1242] ERROR 01-22 12:05:33.129 [core.py:1302] x", "EngineCore_DP0", 1242, "x"),
        (SHELL + "plain", None, None, "plain"),
        ("[06:51:09]    [vllm] (EngineCore pid=9) ERROR 09-09 06:51:09 [core.py:4]   File", "EngineCore", 9, "  File"),
        ("(vllm-test, pid=2150) (APIServer pid=3945)   File", "APIServer", 3945, "  File"),
        ("(head, rank=0, pid=2150) plain", None, None, "plain"),
        ("36m(EngineCore_DP0 pid=820)0m ERROR 01-08 09:17:07 [core.py:708] x", "EngineCore_DP0", 820, "x"),
        ("(Worker_TP0 pid=9) ERROR [multiproc_executor.py:912] x", "Worker_TP0", 9, "x"),
        # None of them: SGLang's own, a list, a sentence.
        ("[06:51:09] [vllm] is a name in brackets", None, None, "[vllm] is a name in brackets"),
        ("[a][pid=x] y", None, None, "[a][pid=x] y"),
        ("36m wide", None, None, "36m wide"),
    ],
)  # fmt: skip
def test_prefixes(raw: str, process: str | None, pid: int | None, text: str) -> None:
    line = parse(raw, 1)
    assert (line.process, line.pid, line.text) == (process, pid, text)


def test_frames_that_lost_their_indentation() -> None:
    lines = (
        ENGINE + "EngineCore failed to start.",
        ENGINE + "Traceback (most recent call last):",
        ENGINE + f'File "{SITE}worker/gpu_worker.py", line 9, in load_model',
        ENGINE + "self.model_runner.load_model()",
        ENGINE + "acme.errors.KernelError: no kernel for this",
    )
    diagnosis = told(*lines)
    assert (diagnosis.line, diagnosis.process, diagnosis.phase) == (5, "EngineCore", "weights")


def test_of_a_log_without_its_beginning_frames_tell_the_phase_and_the_class() -> None:
    lines = (
        ENGINE + "EngineCore encountered a fatal error.",
        ENGINE + "Traceback (most recent call last):",
        ENGINE + f'  File "{SITE}engine/core.py", line 9, in run_busy_loop',
        ENGINE + "    self._process_engine_step()",
    )
    quoted = "RuntimeError: Worker failed with error '{}', please check the stack trace above for the root cause"
    memory = told(*lines, ENGINE + quoted.format("NPU out of memory. Tried to allocate 326.00 MiB"))
    assert (memory.signature, memory.failure, memory.phase) == ("cuda-out-of-memory", "load", "run")
    other = told(*lines, ENGINE + quoted.format("something unheard of"))
    assert (other.signature, other.failure, other.phase) == ("vllm-worker-error-quoted", "unknown", "run")


def test_native_code_that_repeats_what_python_raised_is_no_cause() -> None:
    native = ("terminate called after throwing an instance of 'c10::AcceleratorError'", "  what():  CUDA error: {}", "")
    python = (
        "(EngineCore pid=104) Traceback (most recent call last):",
        f'(EngineCore pid=104)   File "{SITE}engine/core.py", line 9, in run_busy_loop',
        "(EngineCore pid=104) torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
    )
    same = [line.format("an illegal memory access was encountered") for line in native]
    assert told(*python, *same).line == 3
    # What native code says first, and what says something else, is a cause.
    assert told(*same, *python).line == 2
    assert told(*python, *(line.format("something else entirely") for line in native)).line == 5


def test_a_probe_that_ends_the_container() -> None:
    killed = "48s    Normal    Killing     pod/a-0   Container vllm failed liveness probe, will be restarted"
    assert told(killed).signature == "killed-by-probe"
    assert not told("48s    Warning   Unhealthy   pod/a-0   Readiness probe failed: HTTP probe failed").fatal


def test_a_ticket_that_quotes_an_old_failure_in_prose() -> None:
    up = "(APIServer pid=1) INFO:     Application startup complete."
    assert not told(
        "It died with", "`RuntimeError: Engine core initialization failed. See root cause above.`, now:", up
    ).fatal
    assert told("RuntimeError: Engine core initialization failed. See root cause above.").fatal
