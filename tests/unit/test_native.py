"""What native code, compilers, shells and command lines say when they give up."""

from __future__ import annotations

from time import perf_counter

import pytest

from supervise.diagnosis.builds import is_error, wraps_build
from supervise.diagnosis.prefixes import parse
from supervise.diagnosis.tracebacks import OPENERS, Place, Reading, TracebackAssembler
from supervise.model.diagnosis import Kind, Traceback


def feed(*raws: str) -> list[Reading]:
    assembler = TracebackAssembler()
    return [assembler.feed(parse(raw, number)) for number, raw in enumerate(raws, 1)]


def last(*raws: str) -> Traceback:
    """The last that is known of the only report."""
    reports = [reading.traceback for reading in feed(*raws) if reading.traceback is not None]
    assert {report.first for report in reports} == {reports[0].first}
    return reports[-1]


NATIVE = [
    "terminate called without an active exception",
    "libc++abi: terminating due to uncaught exception of type std::bad_alloc: std::bad_alloc",
    "Fatal Python error: Segmentation fault",
    "*** SIGSEGV received at time=1700000000 on cpu 3 ***",
    "[2026-11-30 05:00:00,123 E 12 34] logging.cc:440: *** SIGSEGV received at time=1700000000 on cpu 3 ***",
    "!!!!!!! Segfault encountered !!!!!!!",
    "[node-1:12   :0:34] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x10)",
    "[node-1:00012] Signal: Segmentation fault (11)",
    "/torch/aten/cuda/Indexing.cu:1553: operator(): block: [3,0,0], thread: [32,0,0] Assertion `a < b` failed.",
    "python: /src/lib/x.cpp:12: void f(int): Assertion `x > 0' failed.",
    "/src/ggml/src/ggml.c:3513: GGML_ASSERT(n > 0) failed",
    "Failed: Cuda error /workspace/csrc/custom_all_reduce.cuh:453 'an illegal memory access was encountered'",
    "CUDA error (/x/paged.cu:33): invalid argument",
    "CUDA error: out of memory",
    "Memory access fault by GPU node-1 (Agent handle: 0x1) on address 0x2. Reason: Unknown.",
    "malloc(): corrupted top size",
    "free(): invalid pointer",
    "double free or corruption (out)",
    "corrupted double-linked list",
    "munmap_chunk(): invalid pointer",
    "*** stack smashing detected ***: terminated",
    "thread '<unnamed>' panicked at 'index out of bounds', src/x.rs:4:5",
    "Killed",
    "Bus error (core dumped)",
    "/entrypoint.sh: line 3:    12 Killed                  vllm serve m",
    "[rank3]:[E1130 05:00:00.1 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective operation timeout: x",
]
USAGE = [
    "vllm serve: error: unrecognized arguments: --foo",
    "vllm: error: argument --dtype: invalid choice: 'x'",
    "api_server.py: error: the following arguments are required: --model",
    "launch_server.py: error: --tp must be positive",
    "train.py: error: argument --lr: invalid float value: 'x'",
    "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use",
    "bash: line 1: vllm: command not found",
    "sh: 1: vllm: not found",
    "/bin/bash: /opt/venv/bin/vllm: No such file or directory",
    'exec: "vllm": executable file not found in $PATH',
    "python3: can't open file '/app/serve.py': [Errno 2] No such file or directory",
    "/usr/bin/python3: No module named vllm",
    "/usr/bin/python3: Error while finding module specification for 'vllm.entrypoints.x' (ModuleNotFoundError: x)",
]
ERRORS = [
    "/x/op.cu:1:10: fatal error: cuda.h: No such file or directory",
    "main.c:3: error: expected ';'",
    "/x/y z/op.cpp:3:4: error: no member named 'f'",
    '/x/op.cu(12): error: identifier "foo" is undefined',
    '/x/op.cu(12): catastrophic error: cannot open source file "x.h"',
    "nvcc fatal   : Unsupported gpu architecture 'compute_120'",
    "ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'",
    "ptxas /tmp/x.ptx, line 12; error   : Feature '.bf16' requires .target sm_80 or higher",
    "ptxas error   : Entry function 'k' uses too much shared data",
    "cc1plus: fatal error: cuda_runtime.h: No such file or directory",
    "g++: fatal error: Killed signal terminated program cc1plus",
    "/usr/bin/ld: cannot find -lcuda: No such file or directory",
    "/usr/bin/ld: x.o: undefined reference to `f'",
    "error[E0425]: cannot find value `x` in this scope",
    "LLVM ERROR: Cannot select: t1",
    "CMake Error at CMakeLists.txt:3 (find_package):",
    "/bin/sh: 1: /usr/local/cuda/bin/nvcc: not found",
    "ninja: error: loading 'build.ninja': No such file or directory",
]
NOTHING = [
    "INFO 11-30 05:00:00 [core.py:9] Killed",
    "ERROR 11-30 05:00:00 [core.py:9] CUDA error: out of memory",
    "prompt: 'terminate called after throwing an instance of x'",
    "He was Killed",
    "*** SIGTERM received at time=1700000000 on cpu 3 ***",
    "Killed the old process",
    "Aborted request 12",
    "Error: something",
    "error: command '/usr/bin/gcc' failed with exit code 1",
    "ninja: build stopped: subcommand failed.",
    "collect2: error: ld returned 1 exit status",
    "/x/op.cu:2:3: warning: unused variable 'error'",
    "sh: 1: lsof: not found",
    "bash: line 1: nvidia-smi: command not found",
    "[rank3]:[W1130 05:00:00.1 ProcessGroupNCCL.cpp:1250] Warning: destroy_process_group() was not called: timeout",
    'INFO:     127.0.0.1:1234 - "GET /x?error: y HTTP/1.1" 404 Not Found',
    "usage: about 12 GiB",
]


@pytest.mark.parametrize("raw", NATIVE)
def test_native(raw: str) -> None:
    assert (last(raw).kind, last(raw).exception.raw) == (Kind.NATIVE, raw)


@pytest.mark.parametrize("raw", USAGE)
def test_usage(raw: str) -> None:
    assert (last(raw).kind, last(raw).exception.raw) == (Kind.USAGE, raw)


@pytest.mark.parametrize("raw", ERRORS)
def test_build(raw: str) -> None:
    assert last(raw).kind is Kind.BUILD
    assert is_error(raw)


@pytest.mark.parametrize("raw", NOTHING)
def test_nothing(raw: str) -> None:
    assert [reading.traceback for reading in feed(raw)] == [None]


@pytest.mark.parametrize("raw", [*NATIVE, *USAGE, *ERRORS])
def test_an_opener_is_in_every_line_that_opens_a_report(raw: str) -> None:
    assert any(opener in raw for opener in OPENERS)


def test_what_a_cpp_exception_says_is_the_cause() -> None:
    one = last("terminate called after throwing an instance of 'c10::Error'", "  what():  CUDA error: x")
    assert one.cause is not None
    assert one.cause.text == "  what():  CUDA error: x"
    assert last("terminate called after throwing an instance of 'int'", "INFO:     x").cause is None


def test_a_panic_says_it_in_the_next_line() -> None:
    one = last("thread 'main' panicked at src/x.rs:4:5:", "", "called `unwrap()` on a `None` value", "note: run with")
    assert one.cause is not None
    assert one.cause.text == "called `unwrap()` on a `None` value"


def test_the_thread_that_crashed() -> None:
    one = last(
        "Fatal Python error: Segmentation fault",
        "",
        "Thread 0x01 (most recent call first):",
        '  File "/usr/lib/python3.12/threading.py", line 324 in wait',
        "INFO:     somebody else",
        "Current thread 0x02 (most recent call first):",
        '  File "/code/x.py", line 3 in inner',
        '  File "/code/x.py", line 9 in outer',
        "Extension modules: numpy (total: 1)",
        '  File "/code/y.py", line 9 in not_of_it',
    )
    assert [line.text.rpartition(" ")[2] for line in one.frames] == ["inner", "outer"]


def test_frames_of_a_native_stack_are_no_traceback() -> None:
    stack = [
        "!!!!!!! Segfault encountered !!!!!!!",
        '  File "./nptl/pthread_kill.c", line 0, in raise',
        "ValueError: no",
    ]
    assert [reading.traceback.exception.text for reading in feed(*stack) if reading.place is Place.EXCEPTION
            and reading.traceback] == [stack[0]]  # fmt: skip


def test_only_the_first_in_a_row_is_no_consequence() -> None:
    lines = [
        "terminate called after throwing an instance of 'x'",
        "  what():  y",
        "Fatal Python error: Aborted",
        "Killed",
    ]
    reports = [reading.traceback for reading in feed(*lines) if reading.place is Place.EXCEPTION]
    assert [report.chain for report in reports if report] == [0, 1, 2]


def test_a_usage_error_of_any_program_after_its_usage() -> None:
    assert last("usage: tool [-h]", "            [--x X]", "tool: error: x is wrong").kind is Kind.USAGE
    assert last("Usage: tool [OPTIONS]", "Try 'tool --help' for help.", "Error: No such option: --x").kind is Kind.USAGE


def test_a_box_holds_the_error() -> None:
    one = last("╭─ Error ───────────╮", "│ No such option: x │", "╰───────────────────╯")
    assert (one.exception.text, one.exception.number) == ("No such option: x", 2)


def test_what_only_says_that_a_build_failed() -> None:
    assert wraps_build("RuntimeError: Error building extension 'x': [1/2] nvcc")
    assert wraps_build("RuntimeError: PTXAS error: Internal Triton PTX codegen error")
    assert wraps_build("torch._inductor.exc.CppCompileError: C++ compile error")
    assert wraps_build("subprocess.CalledProcessError: Command '['/usr/bin/gcc', 'x.c']' returned non-zero")
    assert not wraps_build("subprocess.CalledProcessError: Command '['/usr/bin/lscpu']' returned non-zero")


@pytest.mark.parametrize(
    "fragment",
    ["a:1: ", "x ", "/a", "error: ", "ld: ", "[", "1,", ": Assertion `", "Failed: ", "python: ", "A.", "| ", "'"],
)
def test_time_grows_with_the_length_only(fragment: str) -> None:
    def cost(size: int) -> float:
        heads = (
            "",
            "thread '",
            "terminate called",
            "Killed error: ",
            "x:1: Assertion `",
            "[E0000 ProcessGroup",
            'File "',
        )
        lines = [parse((head + fragment * size)[:size], 1) for head in heads]
        best = 9.0
        for _ in range(3):
            start = perf_counter()
            for line in lines:
                TracebackAssembler().feed(line)
            best = min(best, perf_counter() - start)
        return best

    assert cost(8_000) < 12 * cost(2_000) + 0.002
