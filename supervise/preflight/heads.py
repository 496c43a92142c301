"""The `heads` check: attention heads can be shared out among the GPUs of each layer. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from supervise.model.preflight import Check
from supervise.preflight import configs
from supervise.preflight.launch import VLLM, Launch

NAME = "heads"
_OTHERWISE = ("--enable-dp-attention",)


def check(launch: Launch) -> Iterator[Check]:
    """vLLM refuses heads that the tensor parallel size does not divide (FIELD.md B2 row 35); SGLang mostly, too."""
    files, ranks = launch.files, launch.need.tensor_parallel
    if files is None or not ranks or ranks < 2 or launch.unusual or any(map(launch.mentions, _OTHERWISE)):
        return
    config = files.config.table
    heads = configs.whole(configs.language_model(config).get("num_attention_heads"))
    if heads is None or heads % ranks == 0:
        return
    sure = launch.profile == VLLM and configs.is_plain(config) and "params.json" not in files.sizes
    fitting = ", ".join(str(size) for size in range(1, min(heads, 64) + 1) if heads % size == 0)
    text = f"{heads} attention heads cannot be divided among a tensor parallel size of {ranks}"
    yield Check(NAME, launch.worst(sure=sure), text, f"choose one of {fitting}")
