"""What can be told from a model's config.json, and for which models that is certain. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Decoders whose config both engines take as it stands: no part of it is nested, renamed or made up, and all weights lie
# beside it (vLLM 0.32: model_arch_config_convertor.py, models/config.py; `allow_patterns_overrides` in models/).
_PLAIN = """
cohere cohere2 deepseek_v2 deepseek_v3 ernie4_5 ernie4_5_moe exaone4 gemma gemma2 glm glm4 glm4_moe gpt_oss granite
granitemoe llama mistral mixtral olmo olmo2 olmoe phi phi3 qwen2 qwen2_moe qwen3 qwen3_moe seed_oss smollm3 stablelm
starcoder2
"""
_PARTS = ("text_config", "llm_config", "language_config", "thinker_config")
_DEEPEST = 4
_LARGEST = 2**62
_OF_OTHER_CODE = ("auto_map", "block_configs", "per_layer_config")


def is_plain(config: Mapping[str, Any]) -> bool:
    """Whether the engines are sure to take this config as it stands."""
    kind = config.get("model_type")
    nested = any(isinstance(value, dict) and "model_type" in value for value in config.values())
    return (
        isinstance(kind, str)
        and kind in _PLAIN.split()
        and not nested
        and not any(key in config for key in _OF_OTHER_CODE)
    )


def language_model(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a config that speaks of the language model: of a multimodal one it is nested."""
    for _ in range(_DEEPEST):
        parts = (config.get(name) for name in _PARTS)
        inner = next((part for part in parts if isinstance(part, dict)), None)
        if inner is None:
            break
        config = inner
    return config


def whole(value: object) -> int | None:
    """A positive whole number of a sane size, None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _LARGEST else None
