"""Numbers for advice, and the facts of a launch that they are computed from: right, or not there at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervise.diagnosis.facts import LITERALS, Facts
from supervise.diagnosis.figures import CALCULATORS, compute, gib
from supervise.diagnosis.prefixes import parse
from supervise.profiles.signatures import FIGURES


def facts(*lines: str) -> dict[str, float]:
    reader = Facts()
    for number, line in enumerate(lines, 1):
        reader.feed(parse(line, number))
    return dict(reader.values)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("254.00 MiB", 254 / 1024),
        ("2.00 GiB", 2.0),
        ("7.5", 7.5),
        ("1 TiB", 1024.0),
        ("512 KiB", 2**-11),
        ("3 GB", 3.0),
    ],
)
def test_sizes_are_read_as_gib(text: str, size: float) -> None:
    assert gib(text) == pytest.approx(size)


@pytest.mark.parametrize("text", [None, "", "many", "1.2.3 GiB", "-1 GiB", "9" * 400])
def test_what_is_no_size_is_none(text: str | None) -> None:
    assert gib(text) is None


GROUPS = {"total": "95.00 GiB", "free": "254.00 MiB", "wanted": "512.00 MiB"}


@pytest.mark.parametrize(
    ("field", "groups", "known", "value"),
    [
        ("lower_fraction", GROUPS, {"mem_fraction_static": 0.95}, "0.88"),
        ("fraction_left", GROUPS, {"mem_fraction_static": 0.95}, "4.8 GiB"),
        ("fraction_flag", GROUPS, {"mem_fraction_static": 0.95}, "--mem-fraction-static"),
        ("fraction_flag", GROUPS, {"gpu_memory_utilization": 0.95}, "--gpu-memory-utilization"),
        ("lower_fraction", {}, {"mem_fraction_static": 0.8, "total_gib": 80}, "0.76"),
        ("lower_fraction", GROUPS | {"wanted": "12.00 GiB"}, {"gpu_memory_utilization": 0.9}, "0.76"),
        (
            "utilisation",
            {"needed": "8.0", "available": "4.0"},
            {"gpu_memory_utilization": 0.8, "total_gib": 80},
            "0.85",
        ),
        ("free_utilisation", {"free": "70.0", "total": "80.0"}, {}, "0.86"),
        ("free_share", {"free": "12.31", "total": "79.1"}, {}, "0.15"),
        ("held_gib", {"free": "10.0", "total": "80.0"}, {}, "70.0 GiB"),
        ("short_by", {"wanted": "2.00 GiB", "free": "0.50 GiB"}, {}, "1.50 GiB"),
        ("short_by", {"wanted": "20.00 MiB", "free_old": "17.00 MiB"}, {}, "3 MiB"),
        ("fitting_length", {"estimate": "12288"}, {}, "12288"),
        ("fitting_length", {"length": "32768", "needed": "8.0", "available": "3.0"}, {}, "12288"),
        ("fitting_length", {"needed": "8.0", "available": "3.0"}, {"max_model_len": 32768}, "12288"),
        ("possible_tp", {"heads": "12"}, {}, "1, 2, 3, 4, 6, 12"),
        ("lora_rank", {"rank": "48"}, {}, "64"),
        ("gpus_needed", {"total": "80.0"}, {"checkpoint_gib": 141, "tensor_parallel_size": 1}, "4"),
        ("half_seqs", {}, {"max_num_seqs": 256}, "128"),
        ("wanted_size", {"bytes": "33030532"}, {}, "32 MiB"),
    ],
)
def test_a_figure_is_computed(field: str, groups: dict[str, str | None], known: dict[str, float], value: str) -> None:
    assert compute([field], groups, known)[field] == value


@pytest.mark.parametrize(
    ("field", "groups", "known"),
    [
        ("lower_fraction", GROUPS, {}),
        ("lower_fraction", {}, {"mem_fraction_static": 0.9}),
        ("lower_fraction", GROUPS, {"mem_fraction_static": 0.51}),
        ("utilisation", {"needed": "80", "available": "1"}, {"gpu_memory_utilization": 0.9, "total_gib": 80}),
        ("utilisation", {"needed": "1", "available": "2"}, {"gpu_memory_utilization": 0.9, "total_gib": 80}),
        ("free_utilisation", {"free": "10.0", "total": "80.0"}, {}),
        ("free_share", {"free": "0.5", "total": "80.0"}, {}),
        ("short_by", {"wanted": "1.0", "free": "2.0"}, {}),
        ("fitting_length", {"estimate": "3"}, {}),
        ("possible_tp", {"heads": "none"}, {}),
        ("lora_rank", {"rank": "4096"}, {}),
        ("gpus_needed", {"total": "80.0"}, {"checkpoint_gib": 15}),
        ("nobody_computes_this", {}, {}),
    ],
)
def test_a_figure_that_cannot_be_known_or_is_of_no_use_is_not_there(
    field: str, groups: dict[str, str | None], known: dict[str, float]
) -> None:
    assert field not in compute([field], groups, known)


def test_what_the_pattern_captured_is_not_computed() -> None:
    assert compute(["lower_fraction"], GROUPS | {"lower_fraction": "0.5"}, {"mem_fraction_static": 0.95}) == {}


def test_the_loader_knows_exactly_the_calculators_there_are() -> None:
    assert set(FIGURES) == set(CALCULATORS)
    given = [name for names in FIGURES.values() for name in names]
    assert len(given) == len(set(given))


@given(
    st.sampled_from(sorted(CALCULATORS)),
    st.dictionaries(
        st.sampled_from(
            ["wanted", "free", "total", "needed", "available", "length", "estimate", "heads", "rank", "bytes"]
        ),
        st.none() | st.text("0123456789. GMiB,", max_size=20),
    ),
    st.dictionaries(
        st.sampled_from(
            ["gpu_memory_utilization", "total_gib", "checkpoint_gib", "tensor_parallel_size", "max_model_len"]
        ),
        st.floats(0, 1e9),
    ),
)
def test_a_calculator_never_raises_and_gives_no_other_field(
    name: str, groups: dict[str, str | None], known: dict[str, float]
) -> None:
    assert set(CALCULATORS[name](groups, known)) <= set(FIGURES[name])


VLLM = "(APIServer pid=1) INFO 11-30 05:00:00 [u.py:286] "
SGLANG = "[2026-11-30 05:00:00 TP0] "
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. "
ARGUMENTS = "{'max_model_len': 4096, 'gpu_memory_utilization': 0.95, 'tensor_parallel_size': 4}"
SERVER_ARGS = "ServerArgs(context_length=None, mem_fraction_static=0.88, tp_size=2, cuda_graph_max_bs=256)"


@pytest.mark.parametrize(
    ("line", "known"),
    [
        (
            f"{VLLM}non-default args: {ARGUMENTS}",
            {"max_model_len": 4096, "gpu_memory_utilization": 0.95, "tensor_parallel_size": 4},
        ),
        (
            f"{SGLANG}server_args={SERVER_ARGS}",
            {"mem_fraction_static": 0.88, "tensor_parallel_size": 2, "cuda_graph_max_bs": 256},
        ),
        ("INFO 11-30 05:00:00 api_server.py:3] args: Namespace(max_num_seqs=64)", {"max_num_seqs": 64}),
        (
            "+ vllm serve x --gpu-memory-utilization 0.9 --max-model-len=8192",
            {"gpu_memory_utilization": 0.9, "max_model_len": 8192},
        ),
        (f"{VLLM}Available KV cache memory: 4.25 GiB", {"kv_available_gib": 4.25}),
        (f"{VLLM}Model loading took 14.25 GiB memory and 3.1 seconds", {"weights_gib": 14.25}),
        (
            f"{SGLANG}Load weight end. type=X, avail mem=60.15 GB, mem usage=15.01 GB.",
            {"available_gib": 60.15, "weights_gib": 15.01},
        ),
        (f"{OOM}GPU 0 has a total capacity of 79.10 GiB", {"total_gib": 79.1}),
        (f"{VLLM}rank 0 in world size 8 is assigned as DP rank 0", {"world_size": 8}),
        (f"{VLLM}prompt: 'gpu_memory_utilization=0.1'", {}),
    ],
)
def test_a_launch_tells_facts(line: str, known: dict[str, float]) -> None:
    assert facts(line) == known
    assert not known or any(literal in line for literal in LITERALS)


def test_the_order_in_which_ranks_speak_does_not_matter() -> None:
    lines = [
        f"[2026-11-30 05:00:00 TP{n}] Memory pool end. avail mem={free} GB" for n, free in enumerate((4.5, 4.1, 4.9))
    ]
    assert facts(*lines) == facts(*reversed(lines)) == {"available_gib": 4.1}


def test_the_launch_itself_is_believed_before_what_repeats_it() -> None:
    told = facts("non-default args: {'max_model_len': 4096}", "Initializing an engine with config: max_seq_len=131072")
    assert told == {"max_model_len": 4096}


@given(st.text(max_size=60), st.sampled_from(LITERALS), st.text(max_size=200))
def test_any_line_is_read_without_complaint(before: str, literal: str, after: str) -> None:
    facts(before + literal + after)
