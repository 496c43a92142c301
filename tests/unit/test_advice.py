"""What a message says in numbers is in the advice, and sentences end once."""

from __future__ import annotations

import re

import pytest

from supervise.diagnosis.matching import Match, Matcher
from supervise.diagnosis.prefixes import parse
from supervise.diagnosis.whole import UNKNOWN_END, explain
from supervise.profiles.load import load_all
from supervise.profiles.signatures import available_sets, load_signatures

KNOWN = load_signatures(available_sets())
MATCHER = Matcher(KNOWN)


def found(text: str) -> Match:
    match = MATCHER.find(parse(text, 1))
    assert match is not None
    return match


TOO_LONG = (
    "ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GiB KV cache is needed, "
    "which is larger than the available KV cache memory (8.21 GiB). Based on the available memory, the estimated "
    "maximum model length is 67232. Try increasing `gpu_memory_utilization`"
)
TOO_LONG_ONCE = (
    "ValueError: The model's max seq len (131072) is larger than the maximum number of tokens that can be stored in KV "
    "cache (27520). Try increasing `gpu_memory_utilization`"
)
NOT_FREE = (
    "ValueError: Free memory on device cuda:0 (12.31/79.1 GiB) on startup is less than desired GPU memory utilization "
    "(0.9, 71.19 GiB). Decrease GPU memory utilization"
)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        (TOO_LONG, "--max-model-len 67232 is the most that fits."),
        (TOO_LONG_ONCE, "--max-model-len 27520 is the most that fits."),
        (NOT_FREE, "If the GPU is shared on purpose: --gpu-memory-utilization 0.15 is what 12.31 of 79.1 GiB allow."),
    ],
)
def test_the_number_is_told(text: str, advice: str) -> None:
    assert advice in found(text).advice


def test_no_sentence_ends_twice() -> None:
    t4 = "Bfloat16 is only supported on GPUs with compute capability of at least 8.0."
    match = found(f"ValueError: {t4} Your Tesla T4 GPU has compute capability 7.5. You can use float16 instead")
    assert match.meaning == "This GPU has no bfloat16: Tesla T4, capability 7.5."
    matches = [found(sample) for each in KNOWN.signatures for sample in each.match]
    said = [text for match in matches for text in (match.meaning, *match.advice)]
    assert [text for text in said if re.search(r"[^.]\.\.$", text)] == []


OUT_OF_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 594.00 MiB. GPU 0 has a total capacity of 79.10 GiB "
    "of which 254.00 MiB is free."
)
WARMING_UP = (
    "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please try lowering "
    "`max_num_seqs` or `gpu_memory_utilization` when initializing the engine."
)


@pytest.mark.parametrize(
    ("last", "advice"), [(WARMING_UP, "--max-num-seqs below 1024"), ("RuntimeError: seven", "While loading")]
)
def test_who_met_a_failure_says_what_helps(last: str, advice: str) -> None:
    lines = (
        "EngineCore failed to start.",
        "Traceback (most recent call last):",
        '  File "/opt/vllm/v1/worker/gpu_model_runner.py", line 3700, in _dummy_sampler_run',
        "    sampler_output = self.sampler(logits=logits)",
        OUT_OF_MEMORY,
        "",
        "The above exception was the direct cause of the following exception:",
        "",
        "Traceback (most recent call last):",
        '  File "/opt/vllm/v1/worker/gpu_model_runner.py", line 3710, in _dummy_sampler_run',
        "    raise RuntimeError(",
        last,
    )
    prefix = "(EngineCore_DP0 pid=73) ERROR 11-30 06:00:01 [core.py:843] "
    log = "".join(f"{prefix}{line}\n" for line in lines).encode()
    told = explain([log], UNKNOWN_END, KNOWN, load_all()).diagnosis
    assert (told.text, told.phase, told.failure.value) == (OUT_OF_MEMORY, "warm-up", "deterministic")
    assert advice in told.advice[0]
