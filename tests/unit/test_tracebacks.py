"""Tracebacks are put together whatever stands between their lines."""

from __future__ import annotations

from hypothesis import given
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
