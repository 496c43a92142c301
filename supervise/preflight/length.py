"""The `length` check: the context length asked for is one that the model has. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from supervise.host.checkpoint import Checkpoint
from supervise.model.preflight import Check
from supervise.preflight import configs
from supervise.preflight.launch import SGLANG, VLLM, Launch

NAME = "length"
# vLLM takes the smallest of them (model_arch_config_convertor.py), SGLang the first that there is.
KEYS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "model_max_length",
    "max_target_positions",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
_ORIGINAL = "original_max_position_embeddings"
_SCALED = ("linear", "dynamic")
_UNSCALED = (None, "default")
_OVERRIDES = {VLLM: "VLLM_ALLOW_LONG_MAX_MODEL_LEN", SGLANG: "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"}
_TRUE = ("1", "true", "yes", "y")
_ROPE_FLAGS = ("--rope-scaling", "--rope-theta")
_HUMAN = re.compile(r"(\d+)(?:\.(\d+))?([kKmMgGtT]?)")
_UNITS = "kmgt"


class Longest(NamedTuple):
    """The longest context a config allows, by the most generous reading; `sure` if it has no other."""

    tokens: int
    key: str
    sure: bool


def check(launch: Launch) -> Iterator[Check]:
    """vLLM refuses more than the config allows (FIELD.md B2 row 39), unless a variable says otherwise."""
    asked = tokens(launch.need.max_length or "")
    files, variable = launch.files, _OVERRIDES.get(launch.profile)
    if asked is None or files is None or variable is None or _says_otherwise(launch, variable):
        return
    most = longest(files.config.table)
    if most is None or asked <= most.tokens:
        return
    sure = most.sure and launch.profile == VLLM and _only_config_counts(files)
    text = f"a context of {asked} tokens is longer than the model's {most.tokens} ({most.key} in config.json)"
    yield Check(NAME, launch.worst(sure=sure), text, f"ask for {most.tokens} at most, or set {variable}=1")


def tokens(text: str) -> int | None:
    """Read a length as vLLM does: 8k is 8000, 8K is 8192, a fraction only with the former (argparse_utils.py).

    Args:
        text: as given.

    Returns:
        The length; None for "auto", -1, and what the engine itself would not understand.
    """
    found = _HUMAN.fullmatch(text.strip()) if len(text) < 20 else None
    if found is None:
        return None
    digits, fraction, unit = found.groups()
    if not unit:
        return None if fraction else int(digits)
    power = _UNITS.index(unit.lower()) + 1
    if unit.isupper():
        return None if fraction else int(digits) * 1024**power
    return int(float(f"{digits}.{fraction or 0}") * 1000**power)


def longest(config: Mapping[str, Any]) -> Longest | None:
    """The longest context that any version of the engines derives from a config; None if it does not say.

    Args:
        config: of the model.
    """
    part = configs.language_model(config)
    known = [(length, key) for key in KEYS if (length := configs.whole(part.get(key))) is not None]
    if not known:
        return None
    most, key = max(known)
    kind, factor = _scaling(part)
    original = configs.whole(part.get(_ORIGINAL)) or 0
    sure = configs.is_plain(config) and kind in (*_UNSCALED, *_SCALED) and original <= most
    return Longest(int(max(most, original) * max(1.0, factor)), key, sure)


def _scaling(part: Mapping[str, Any]) -> tuple[object, float]:
    """How positions are stretched, and how far at most: the kind "?" if there are several or it is not clear."""
    found = [rope for name in ("rope_scaling", "rope_parameters") if isinstance(rope := part.get(name), dict)]
    if len(found) != 1:
        return ("?", _largest(found)) if found else (None, 1.0)
    rope = found[0]
    kind = rope.get("rope_type", rope.get("type"))
    nested = any(isinstance(value, dict) for value in rope.values())
    clear = kind is None or isinstance(kind, str)
    return (kind if clear and not nested else "?"), _largest(found)


def _largest(found: list[dict[str, Any]]) -> float:
    """The largest factor in any of them, in nested ones, too."""
    values = [value for rope in found for value in rope.values()]
    numbers = [rope.get("factor") for rope in found] + [part.get("factor") for part in values if isinstance(part, dict)]
    return max((float(n) for n in numbers if isinstance(n, int | float) and 1 <= n < 1e6), default=1.0)


def _says_otherwise(launch: Launch, variable: str) -> bool:
    return bool(
        launch.unusual
        or launch.env.get(variable, "").strip().lower() in _TRUE
        or any(launch.mentions(flag) for flag in _ROPE_FLAGS)
    )


def _only_config_counts(files: Checkpoint) -> bool:
    """A sentence transformer's own file, and mistral's, take the place of config.json."""
    return not {"sentence_bert_config.json", "params.json"} & files.sizes.keys()
