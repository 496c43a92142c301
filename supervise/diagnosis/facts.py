"""What a launch says of itself on its way up: the numbers that advice is computed from."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from supervise.model.diagnosis import Line

# The names that vLLM and SGLang give the same thing, in arguments and on command lines.
_NAMES = {
    "gpu_memory_utilization": "gpu_memory_utilization",
    "mem_fraction_static": "mem_fraction_static",
    "tensor_parallel_size": "tensor_parallel_size",
    "tp_size": "tensor_parallel_size",
    "tp": "tensor_parallel_size",
    "pipeline_parallel_size": "pipeline_parallel_size",
    "pp_size": "pipeline_parallel_size",
    "max_model_len": "max_model_len",
    "max_seq_len": "max_model_len",
    "context_length": "max_model_len",
    "max_num_seqs": "max_num_seqs",
    "max_num_batched_tokens": "max_num_batched_tokens",
    "max_running_requests": "max_running_requests",
    "chunked_prefill_size": "chunked_prefill_size",
    "cuda_graph_max_bs": "cuda_graph_max_bs",
}
_NAMED = "|".join(sorted(_NAMES, key=len, reverse=True))
_ARGUMENT = re.compile(rf"\b(?P<name>{_NAMED})['\"]?\s{{0,3}}[=:]\s{{0,3}}(?P<value>\d{{1,9}}(?:\.\d{{1,6}})?)\b")
_OPTION = re.compile(rf"--(?P<name>{_NAMED.replace('_', '-')})[ =](?P<value>\d{{1,9}}(?:\.\d{{1,6}})?)(?=\s|$|\\)")
_READ = 65_536
_NUMBER = r"(\d{1,7}(?:\.\d{1,4})?)"


def _measure(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern.replace("NUMBER", _NUMBER))


# What is free is the least that was seen, what is used the most: then the order in which ranks speak does not matter.
_MEASURES: tuple[tuple[str, re.Pattern[str], str, Callable[[float, float], float]], ...] = (
    ("Available KV cache memory: ", _measure(r"Available KV cache memory: NUMBER GiB"), "kv_available_gib", min),
    ("Model loading took ", _measure(r"Model loading took NUMBER G"), "weights_gib", max),
    ("Checkpoint size: ", _measure(r"Checkpoint size: NUMBER GiB"), "checkpoint_gib", max),
    ("avail mem=", _measure(r"\bavail mem=NUMBER GB"), "available_gib", min),
    ("mem usage=", _measure(r"Load weight end\..{0,300}?\bmem usage=NUMBER GB"), "weights_gib", max),
    ("total capacity of ", _measure(r"\bhas a total capacity of NUMBER GiB"), "total_gib", min),
    ("GiB) on startup", _measure(r"/NUMBER GiB\) on startup"), "total_gib", min),
    ("world size ", _measure(r"\brank \d{1,6} in world size NUMBER is assigned"), "world_size", max),
)
_ARGUMENTS = ("non-default args: ", "server_args=", "ServerArgs(", "Namespace(", "with config: ")
_COMMANDS = ("vllm serve ", "sglang serve ", "launch_server ", "api_server ")

LITERALS: tuple[str, ...] = (*_ARGUMENTS, *_COMMANDS, *(literal for literal, _, _, _ in _MEASURES))
"""Every line that teaches a fact holds one of these; who skips plain stretches of a log must not skip such lines."""


class Facts:
    """Collects facts line by line. It keeps one number for each name and never raises, whatever is fed."""

    def __init__(self) -> None:
        self._values: dict[str, float] = {}

    @property
    def values(self) -> Mapping[str, float]:
        """What is known so far, by name. Sizes are in GiB; the mapping is live."""
        return self._values

    def feed(self, line: Line) -> None:
        """Take the next line.

        Args:
            line: any line; of a long one only the beginning is read.
        """
        text = line.text
        for literal in LITERALS:
            if literal in text:
                self._learn(text[:_READ])
                return

    def _learn(self, text: str) -> None:
        if any(literal in text for literal in _ARGUMENTS):
            self._take_arguments(_ARGUMENT, text)
        if any(literal in text for literal in _COMMANDS):
            self._take_arguments(_OPTION, text)
        for literal, pattern, name, better in _MEASURES:
            found = pattern.search(text) if literal in text else None
            if found:
                value = float(found[1])
                self._values[name] = better(self._values.get(name, value), value)

    def _take_arguments(self, pattern: re.Pattern[str], text: str) -> None:
        """The first to name an argument is the launch itself; what repeats it later may be a default."""
        for found in pattern.finditer(text):
            name = _NAMES[found["name"].replace("-", "_")]
            self._values.setdefault(name, float(found["value"]))
