"""Tracebacks are put together whatever stands between their lines."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from supervise.diagnosis.prefixes import parse
from supervise.diagnosis.tracebacks import Place, Reading, TracebackAssembler
from supervise.model.diagnosis import Traceback

BODY = ["Traceback (most recent call last):", '  File "x.py", line 3, in f', "    g()", "    ^^^"]


def feed(*raws: str) -> list[Reading]:
    assembler = TracebackAssembler()
    return [assembler.feed(parse(raw, number)) for number, raw in enumerate(raws, 1)]


def found(*raws: str) -> list[Traceback]:
    return [
        reading.traceback
        for reading in feed(*raws)
        if reading.place is Place.EXCEPTION and reading.traceback is not None
    ]


def logged(process: str, *texts: str) -> list[str]:
    return [f"({process}) ERROR 11-30 05:00:00 [core.py:9] {text}" for text in texts]


def test_a_plain_one() -> None:
    (one,) = found("hello", *BODY, "ValueError: no")
    assert (one.first, one.exception.number, one.exception.text) == (2, 6, "ValueError: no")
    assert one.header is not None
    assert one.header.text == "hello"
    assert [line.text for line in one.frames] == BODY[1:]
    assert (one.process, one.pid, one.chain) == (None, None, 0)


def test_prefixed_line_by_line_with_its_headline() -> None:
    (one,) = found(*logged("Worker pid=9", "WorkerProc failed to start.", *BODY, "KeyError: 'w'"))
    assert (one.process, one.pid) == ("Worker", 9)
    assert one.header is not None
    assert one.header.text == "WorkerProc failed to start."


def test_two_interleaved() -> None:
    left = logged("Worker_TP0 pid=9", *BODY, "ValueError: left")
    right = logged("Worker_TP1 pid=8", *BODY, "ValueError: right")
    mixed = [line for pair in zip(left, right, strict=True) for line in pair]
    assert [(one.process, one.exception.text) for one in found(*mixed)] == [
        ("Worker_TP0", "ValueError: left"),
        ("Worker_TP1", "ValueError: right"),
    ]


def test_other_processes_and_loggers_in_between_do_not_end_it() -> None:
    noise = [
        "INFO:     127.0.0.1:1 - GET",
        "[2026-11-30 05:00:00 TP1] Decode batch",
        "/usr/x.py:3: UserWarning: y",
        "nanobind: leaked",
    ]
    lines = [piece for line in [*BODY, "ValueError: no"] for piece in (line, *noise)]
    assert [one.exception.text for one in found(*lines)] == ["ValueError: no"]


def test_sglang_headline_on_the_same_line() -> None:
    (one,) = found(
        "[2026-11-30 05:00:00 TP1] Scheduler hit an exception: Traceback (most recent call last):",
        *BODY[1:],
        "ValueError: no",
    )
    assert one.process == "TP1"
    assert one.header is not None
    assert one.header.text.startswith("Scheduler hit")


def test_multiprocessing_names_the_child() -> None:
    (one,) = found("Process EngineCore:", *BODY, "ValueError: no")
    assert one.process == "EngineCore"


def test_chains_count_their_blocks_and_keep_the_headline() -> None:
    during = "During handling of the above exception, another exception occurred:"
    direct = "The above exception was the direct cause of the following exception:"
    first, second, third = [*BODY, "KeyError: 1", ""], [*BODY, "KeyError: 2", ""], [*BODY, "ValueError: 3"]
    chain = found("Exception in ASGI application", *first, during, "", *second, direct, "", *third)
    assert [one.chain for one in chain] == [0, 1, 2]
    assert {one.header.text for one in chain if one.header} == {"Exception in ASGI application"}


def test_the_next_traceback_without_a_link_is_no_chain() -> None:
    assert [one.chain for one in found(*BODY, "KeyError: 1", "", *BODY, "KeyError: 2")] == [0, 0]


def test_torch_rank_prefix() -> None:
    (one,) = found(*(f"[rank1]: {line}" for line in [*BODY, "RuntimeError: no"]))
    assert one.process == "rank1"


def test_exceptions_with_and_without_message() -> None:
    for text in (
        "KeyError",
        "KeyError: 'x'",
        "torch.OutOfMemoryError: CUDA",
        "zmq.error.ZMQError: x",
        "socket.timeout",
        "AssertionError:",
    ):
        assert [one.exception.text for one in found(*BODY, text)] == [text]


def test_a_message_of_several_lines_belongs_to_it() -> None:
    readings = feed(
        *BODY, "RuntimeError: CUDA error: x", "CUDA kernel errors might be", "For debugging", "", "next thing"
    )
    assert [reading.place for reading in readings[4:]] == [
        Place.EXCEPTION, Place.MESSAGE, Place.MESSAGE, Place.MESSAGE, Place.OUTSIDE,
    ]  # fmt: skip


def test_the_message_ends_where_another_record_begins() -> None:
    readings = feed(*logged("E pid=3", *BODY, "ValueError: no"), "(E pid=3) INFO 11-30 05:00:01 [core.py:10] next")
    assert readings[-1].place is Place.OUTSIDE


def test_a_block_that_is_cut_off_is_none() -> None:
    assert found(*BODY) == []
    assert found(*BODY[:1], "ValueError: without frames") == []


def test_a_block_waits_only_so_long_for_its_end() -> None:
    assert found(*BODY, *["/usr/x: stray"] * 500, "ValueError: much later") == []


def test_served_text_that_mentions_a_traceback_opens_none() -> None:
    assert found("prompt: 'Traceback (most recent call last): x'", *BODY[1:], "ValueError: no") == []


@given(
    st.lists(
        st.sampled_from([*BODY, "", "ValueError: x", "text", "  indented", *logged("W pid=1", *BODY, "E: x")]),
        max_size=80,
    )
)
def test_any_order_of_lines_is_read(raws: list[str]) -> None:
    assert len(feed(*raws)) == len(raws)


def test_many_processes_do_not_grow_memory() -> None:
    assembler = TracebackAssembler()
    for pid in range(5_000):
        assembler.feed(parse(f"(Worker pid={pid}) {BODY[0]}", pid))
    assert len(assembler._streams) <= 256


# --- other styles -----------------------------------------------------------------------------------------------------

GROUP = [
    "  + Exception Group Traceback (most recent call last):",
    '  |   File "x.py", line 3, in f',
    '  |     raise ExceptionGroup("many", found)',
    "  | ExceptionGroup: many (2 sub-exceptions)",
    "  +-+---------------- 1 ----------------",
    "    | Traceback (most recent call last):",
    '    |   File "x.py", line 9, in g',
    "    |     raise ValueError",
    "    | ValueError: first",
    "    +---------------- 2 ----------------",
    "    | KeyError: 'second'",
    "    +------------------------------------",
]
RAY = [
    *BODY,
    "ray.exceptions.RayTaskError(RuntimeError): ray::Worker.execute() (pid=12, ip=10.0.0.2)",
    '  File "/w.py", line 7, in execute',
    "    run()",
    "ValueError: innermost",
    "",
    "The above exception was the direct cause of the following exception:",
    "",
    "ray::Worker.execute() (pid=12, ip=10.0.0.2)",
    '  File "/w.py", line 9, in execute',
    "RuntimeError: outer",
]
PYDANTIC = [
    *BODY,
    "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig",
    "  Value error, the model type `x` is unknown [type=value_error, input_value=ArgsKwargs(())]",
    "    For further information visit https://errors.pydantic.dev/2.12/v/value_error",
]
BUILD = [
    *BODY,
    "subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1.",
    "",
    "The above exception was the direct cause of the following exception:",
    "",
    *BODY,
    "RuntimeError: Error building extension 'op': [1/2] /usr/local/cuda/bin/nvcc -c op.cu -o op.o",
    "/x/op.cu:2:3: warning: unused variable 'error'",
    "FAILED: op.o",
    '/x/op.cu(12): error: identifier "foo" is undefined',
    '1 error detected in the compilation of "op.cu".',
    "ninja: build stopped: subcommand failed.",
]


def causes(*raws: str) -> list[tuple[str, str, str, int]]:
    """Exception, cause, kind and chain at each line that tells a cause."""
    return [
        (reading.traceback.exception.text, reading.traceback.cause.text, str(reading.traceback.kind),
         reading.traceback.chain)
        for reading in feed(*raws)
        if reading.place is Place.CAUSE and reading.traceback is not None and reading.traceback.cause is not None
    ]  # fmt: skip


def test_a_group_names_itself_and_then_its_first_exception() -> None:
    (one,) = found("said", *GROUP)
    assert (one.exception.text, one.exception.number) == ("ExceptionGroup: many (2 sub-exceptions)", 5)
    assert one.header is not None
    assert one.header.text == "said"
    assert causes(*GROUP) == [("ExceptionGroup: many (2 sub-exceptions)", "ValueError: first", "python", 0)]


def test_a_group_in_a_chain_and_prefixed() -> None:
    during = "During handling of the above exception, another exception occurred:"
    raws = logged("Worker pid=1", *GROUP, "", during, "", *BODY, "RuntimeError: later")
    assert [(one.exception.text, one.chain) for one in found(*raws)] == [
        ("ExceptionGroup: many (2 sub-exceptions)", 0),
        ("RuntimeError: later", 1),
    ]
    assert [cause for _, cause, _, _ in causes(*raws)] == ["ValueError: first"]


def test_a_nested_group_is_not_the_cause() -> None:
    inner = [*GROUP[:5], "    | ExceptionGroup: inner (1 sub-exception)", "    +-+---------------- 1 ----------------",
             "      | OSError: deep", "      +------------------------------------"]  # fmt: skip
    assert [cause for _, cause, _, _ in causes(*inner)] == ["OSError: deep"]


def test_ray_quotes_the_exception_that_it_carries() -> None:
    assert [cause for _, cause, _, _ in causes(*RAY)] == ["ValueError: innermost"]
    refined = [reading.traceback for reading in feed(*RAY) if reading.place is Place.CAUSE]
    assert refined[0] is not None
    assert refined[0].frames[0].text == '  File "/w.py", line 7, in execute'


def test_pydantic_says_what_is_wrong_in_the_next_line() -> None:
    (only,) = causes(*logged("APIServer pid=1", *PYDANTIC))
    assert only[1].startswith("  Value error, the model type")
    field_named = ["ValidationError: 1 validation error for EngineArgs", "max_len",
                   "  Input should be a valid integer [type=int_parsing, input_value='x', input_type=str]"]  # fmt: skip
    assert causes(*BODY, *field_named)[0][1].startswith("  Input should be")


def test_an_ordinary_message_has_no_more_exact_cause() -> None:
    assert causes(*BODY, "ValueError: no", "  Value error, quoted [type=value_error]", "KeyError: 1") == []


def test_the_compilers_first_error_is_the_cause_of_the_whole_chain() -> None:
    (only,) = causes(*BUILD)
    assert only == (
        "subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1.",
        '/x/op.cu(12): error: identifier "foo" is undefined', "build", 0,
    )  # fmt: skip


def test_a_build_that_printed_its_error_itself() -> None:
    raws = ["/x/op.cu:1:10: fatal error: cuda.h: No such file or directory", "compilation terminated.", *BODY]
    python = found(*raws, "subprocess.CalledProcessError: Command '['ninja']' returned non-zero exit status 1.")[-1]
    assert python.cause is not None
    assert (python.cause.number, str(python.kind)) == (1, "build")
    assert found(*raws, "ValueError: of somebody else")[-1].cause is None


def test_triton_says_what_is_wrong_after_the_caret() -> None:
    raws = [*BODY, "triton.compiler.errors.CompilationError: at 12:8:", "def kernel(x):", "    y = foo(x)", "        ^",
            "NameError('foo is not defined')"]  # fmt: skip
    assert [cause for _, cause, _, _ in causes(*raws)] == ["NameError('foo is not defined')"]


def test_dynamo_quotes_what_its_backend_raised_and_that_what_the_compiler_said() -> None:
    raws = [*BODY, "torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:",
            "CppCompileError: C++ compile error", "", "Output:",
            "/tmp/x/main.cpp:4:10: fatal error: Python.h: No such file or directory"]  # fmt: skip
    assert [cause for _, cause, _, _ in causes(*raws)] == ["CppCompileError: C++ compile error", raws[-1]]


def test_rich() -> None:
    (one,) = found(
        "╭──────────────── Traceback (most recent call last) ────────────────╮",
        "│ /code/x.py:3 in f                                                 │",
        "│ ❱ 3     g()                                                       │",
        "╰───────────────────────────────────────────────────────────────────╯",
        "ValueError: no",
    )
    assert one.exception.text == "ValueError: no"


def test_notebook() -> None:
    (one,) = found(
        "---------------------------------------------------------------------------",
        "RuntimeError                              Traceback (most recent call last)",
        "Cell In[3], line 1",
        "----> 1 f()",
        "",
        "File ~/code/x.py:12, in f(a)",
        "     11 def f(a):",
        "---> 12     raise RuntimeError",
        "",
        "ValueError: of somebody else",
        "RuntimeError: no",
    )
    assert one.exception.text == "RuntimeError: no"
    assert len(one.frames) == 5


def test_a_log_that_was_cut_inside_of_a_traceback() -> None:
    (one,) = found(*BODY[1:], "torch.OutOfMemoryError: CUDA out of memory.")
    assert (one.first, one.exception.number) == (1, 4)


def test_a_syntax_error_has_no_head() -> None:
    (one,) = found('  File "/x.py", line 3', "    foo bar", "        ^^^", "SyntaxError: invalid syntax")
    assert one.exception.text == "SyntaxError: invalid syntax"


def test_a_stack_that_nothing_was_raised_from() -> None:
    assert found("Call stack:", *BODY[1:], "Message: 'x'", "ValueError: later") == []
    assert found("Stack (most recent call last):", *BODY[1:], "ValueError: later") == []
    assert found(*BODY[1:], "Message: 'x'", "Arguments: ()") == []


def test_what_a_pool_quotes_is_the_first_of_the_chain() -> None:
    raws = [
        "it said",
        "multiprocessing.pool.RemoteTraceback: ",
        '"""',
        *BODY,
        "ValueError: remote",
        '"""',
        "",
        "The above exception was the direct cause of the following exception:",
        "",
        *BODY,
        "ValueError: remote",
    ]
    chain = found(*raws)
    assert [one.chain for one in chain] == [0, 1]
    assert {one.header.text for one in chain if one.header} == {"it said"}


def test_an_exception_without_a_traceback_of_its_own_begins_a_chain() -> None:
    direct = "The above exception was the direct cause of the following exception:"
    raws = ["said", "httpx.HTTPStatusError: 429", "For more", "", direct, "", "hub.HubError: 429", "", direct, ""]
    one, two = found(
        *raws, *BODY, "OSError: no", "", direct, "", "hub.X.SomeError: bare", "", direct, "", *BODY, "E: x"
    )
    assert one.cause is not None
    assert (one.cause.text, one.chain) == ("httpx.HTTPStatusError: 429", 0)
    assert one.header is not None
    assert one.header.text == "said"
    assert (two.cause, two.chain) == (None, 1)
    assert found("ValueError: of somebody else", *BODY, "OSError: no")[0].cause is None


def test_somebodys_logger_passes_it_on_line_by_line() -> None:
    raws = [f"[2026-11-30 05:00:00] {text}" for text in [*BODY, "ValueError: no"]]
    assert [one.exception.text for one in found(*raws)] == ["ValueError: no"]
    other = [*(f"[2026-11-30 05:00:00] {text}" for text in BODY[:1]), *BODY[1:], "[2026-11-30 05:00:00] Retry: later"]
    assert found(*other) == []


def test_it_is_open_as_long_as_more_may_come() -> None:
    assembler = TracebackAssembler()
    for number, raw in enumerate(["INFO:     hello", *BODY, "ValueError: no"], 1):
        assembler.feed(parse(raw, number))
        assert assembler.open == (number > 1)
    assembler.feed(parse("INFO:     hello", 5_000))
    assert not assembler.open


SAID = {
    "plain": [*BODY, "ValueError: plain"],
    "group": GROUP,
    "ray": RAY,
    "pydantic": PYDANTIC,
    "build": BUILD,
    "native": ["terminate called after throwing an instance of 'c10::Error'", "  what():  no memory"],
    "fault": ["Fatal Python error: Aborted", "", "Current thread 0x01 (most recent call first):",
              '  File "x.py", line 3 in f'],
}  # fmt: skip


def told(raws: list[str]) -> dict[str | None, list[tuple[str, str | None, int]]]:
    """The reports of each process, with the last that is known of each."""
    reports: dict[tuple[str | None, int, int], Traceback] = {}
    assembler = TracebackAssembler()
    for number, raw in enumerate(raws, 1):
        reading = assembler.feed(parse(raw, number))
        if reading.traceback is not None:
            one = reading.traceback
            reports[(one.process, one.first, one.chain)] = one
    by_process: dict[str | None, list[tuple[str, str | None, int]]] = {}
    for one in reports.values():
        cause = one.cause.text if one.cause else None
        by_process.setdefault(one.process, []).append((one.exception.text, cause, len(one.frames)))
    return by_process


@settings(max_examples=30)
@given(st.lists(st.sampled_from(sorted(SAID)), min_size=2, max_size=5), st.randoms(use_true_random=False))
def test_interleaving_changes_no_traceback(names: list[str], random: Random) -> None:
    queues = [[f"(Worker_{index} pid={index}) {text}" for text in SAID[name]] for index, name in enumerate(names)]
    order = [index for index, queue in enumerate(queues) for _ in queue]
    one_by_one = told([line for queue in queues for line in queue])
    random.shuffle(order)
    rest = [list(queue) for queue in queues]
    assert told([rest[index].pop(0) for index in order]) == one_by_one
    assert len(one_by_one) == len(names)


def test_any_mixture_of_reports_is_read() -> None:
    pool = [text for texts in SAID.values() for text in texts] + ["", "x" * 9_000, "│", "  |", '  File "', "usage: x"]

    @settings(max_examples=50)
    @given(st.lists(st.sampled_from(pool), max_size=120))
    def check(raws: list[str]) -> None:
        assert len(feed(*raws)) == len(raws)

    check()
