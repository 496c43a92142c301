"""Numbers for advice: computed from what a line captured and from what the launch said of itself earlier."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from math import ceil, floor

from supervise.profiles.signatures import FIGURES

Groups = Mapping[str, str | None]
Numbers = Mapping[str, float]
Calculator = Callable[[Groups, Numbers], dict[str, str]]

_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,9})?) ?([KMGT]?)(?:i?B)?")
_GIB = {"": 1.0, "K": 2.0**-20, "M": 2.0**-10, "G": 1.0, "T": 2.0**10}
# What SGLang takes by default on GPUs of 80 GiB and more: above it, graphs and activations lack room.
_ROOMY = 0.88
# Neither engine is of use with a smaller share of a GPU: then the model does not fit, and no fraction helps.
_LEAST = 0.5
_MOST = 0.96
# What a fraction must leave beyond the shortage that was met: the next larger batch wants more than this one did.
_SPARE_GIB = 1.0
# 0.88 is not to become 0.87 because 0.92 - 0.04 is 0.8799999.
_HAIR = 1e-6
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
_MOST_GPUS = 64


def gib(text: str | None) -> float | None:
    """Read a size as torch prints it.

    Args:
        text: "254.00 MiB", "7.5 GB", or a bare number, which is one of GiB. SGLang's GB are GiB.

    Returns:
        GiB; None if it is no size.
    """
    found = _SIZE.fullmatch(text.strip()) if text else None
    return float(found[1]) * _GIB[found[2]] if found else None


def compute(fields: Iterable[str], groups: Groups, facts: Numbers) -> dict[str, str]:
    """Compute the fields of a template that its pattern did not capture.

    Args:
        fields: the names in the template; those that nobody computes are passed over.
        groups: what the pattern captured; None for a group that took no part.
        facts: what is known of the launch (`supervise.diagnosis.facts`).

    Returns:
        Those that could be computed. A calculator that lacks a number, or whose answer would be of no use, yields
        nothing.
    """
    wanted = {_CALCULATOR_OF[name] for name in fields if name in _CALCULATOR_OF and name not in groups}
    found: dict[str, str] = {}
    for name in sorted(wanted):
        found.update(CALCULATORS[name](groups, facts))
    return found


def _lower_fraction(groups: Groups, facts: Numbers) -> dict[str, str]:
    """A smaller share of each GPU, for what lacked memory outside of the share: graphs, activations, kernels."""
    flag, fraction = _fraction(facts)
    total = _total(groups, facts)
    if not fraction or not total or not 0 < fraction <= 1:
        return {}
    short = max(0.0, (gib(groups.get("wanted")) or 0.0) - (_free(groups) or 0.0))
    lower = _hundredths_below(min(_ROOMY, fraction - 0.04, fraction - (short + _SPARE_GIB) / total))
    if lower < _LEAST:
        return {}
    left = f"{(1 - fraction) * total:.1f} GiB"
    return {
        "fraction_flag": flag,
        "fraction": f"{fraction:g}",
        "fraction_left": left,
        "lower_fraction": f"{lower:.2f}",
    }


def _total(groups: Groups, facts: Numbers) -> float | None:
    # Before torch 2.2 the message said the same in other words, and a pattern names a group once.
    return gib(groups.get("total") or groups.get("total_old")) or facts.get("total_gib")


def _free(groups: Groups) -> float | None:
    return gib(groups.get("free") or groups.get("free_old"))


def _fraction(facts: Numbers) -> tuple[str, float | None]:
    if "mem_fraction_static" in facts:
        return "--mem-fraction-static", facts["mem_fraction_static"]
    return "--gpu-memory-utilization", facts.get("gpu_memory_utilization")


def _utilisation(groups: Groups, facts: Numbers) -> dict[str, str]:
    """A larger share of each GPU, for a pool that is short of `needed` - `available`."""
    fraction = gib(groups.get("utilisation_asked")) or facts.get("gpu_memory_utilization")
    needed, available = gib(groups.get("needed")), gib(groups.get("available"))
    total = _total(groups, facts)
    if not fraction or not total or needed is None or available is None or needed <= available:
        return {}
    raised = ceil((fraction + (needed - available) / total) * 100 - _HAIR) / 100
    return {"utilisation": f"{raised:.2f}"} if raised <= _MOST else {}


def _free_utilisation(groups: Groups, facts: Numbers) -> dict[str, str]:
    """The share of a GPU that is free while somebody else holds the rest."""
    free, total = _free(groups), _total(groups, facts)
    if free is None or not total or free >= total:
        return {}
    held = {"held_gib": f"{total - free:.1f} GiB"}
    share = _hundredths_below((free - _SPARE_GIB / 2) / total)
    return held | ({"free_utilisation": f"{share:.2f}"} if share >= _LEAST else {})


def _free_share(groups: Groups, facts: Numbers) -> dict[str, str]:
    """The share of a GPU that is free, in hundredths, for what is refused above it."""
    free, total = _free(groups), _total(groups, facts)
    share = _hundredths_below(free / total) if free and total and free < total else 0.0
    return {"free_share": f"{share:.2f}"} if share else {}


def _short_by(groups: Groups, _facts: Numbers) -> dict[str, str]:
    """What was missing when `wanted` met `free`, or `needed` met `available`."""
    wanted = gib(groups.get("wanted") or groups.get("needed"))
    free = gib(groups.get("available")) if groups.get("available") else _free(groups)
    if wanted is None or free is None or wanted <= free:
        return {}
    return {"short_by": _size(wanted - free)}


def _fitting_length(groups: Groups, facts: Numbers) -> dict[str, str]:
    """The longest context that fits: the engine's estimate, or in proportion to the memory that a full one needs."""
    length = _whole(groups.get("estimate")) or _proportional(groups, facts)
    return {"fitting_length": str(length)} if length >= 16 else {}


def _proportional(groups: Groups, facts: Numbers) -> int:
    length = _whole(groups.get("length")) or int(facts.get("max_model_len", 0))
    needed, available = gib(groups.get("needed")), gib(groups.get("available"))
    if not length or not needed or not available or available >= needed:
        return 0
    # Caches come in blocks, of 16 tokens with both engines' defaults.
    return floor(length * available / needed) // 16 * 16


def _possible_tp(groups: Groups, _facts: Numbers) -> dict[str, str]:
    """The tensor parallel sizes that divide `heads`."""
    heads = _whole(groups.get("heads"))
    sizes = [size for size in range(1, min(heads, _MOST_GPUS) + 1) if heads % size == 0]
    return {"possible_tp": ", ".join(map(str, sizes))} if sizes else {}


def _lora_rank(groups: Groups, _facts: Numbers) -> dict[str, str]:
    """The smallest --max-lora-rank that vLLM allows and that takes an adapter of `rank`."""
    rank = _whole(groups.get("rank"))
    fitting = next((each for each in _RANKS if each >= rank), None)
    return {"lora_rank": str(fitting)} if rank and fitting else {}


def _gpus_needed(groups: Groups, facts: Numbers) -> dict[str, str]:
    """How many GPUs hold the weights of the checkpoint and leave a sixth of each for everything else."""
    weights, total = facts.get("checkpoint_gib"), _total(groups, facts)
    now = int(facts.get("tensor_parallel_size", 1) * facts.get("pipeline_parallel_size", 1))
    if not weights or not total or now < 1:
        return {}
    gpus = 1
    while gpus <= _MOST_GPUS and weights / gpus > total * 5 / 6:
        gpus *= 2
    if not now < gpus <= _MOST_GPUS:
        return {}
    return {"gpus_needed": str(gpus), "weights": f"{weights:.0f} GiB"}


def _halves(_groups: Groups, facts: Numbers) -> dict[str, str]:
    """Half of what a launch asked for at once."""
    return {
        field: str(int(facts[fact]) // 2)
        for field, fact in (("half_seqs", "max_num_seqs"), ("half_tokens", "max_num_batched_tokens"),
                            ("half_requests", "max_running_requests"), ("half_chunk", "chunked_prefill_size"),
                            ("half_graphs", "cuda_graph_max_bs"))
        if facts.get(fact, 0) >= 2
    }  # fmt: skip


def _mebibytes(groups: Groups, _facts: Numbers) -> dict[str, str]:
    """`bytes`, as people read them."""
    count = _whole(groups.get("bytes"))
    return {"wanted_size": _size(count / 2**30)} if count else {}


CALCULATORS: Mapping[str, Calculator] = {
    "lower-fraction": _lower_fraction,
    "utilisation": _utilisation,
    "free-utilisation": _free_utilisation,
    "free-share": _free_share,
    "short-by": _short_by,
    "fitting-length": _fitting_length,
    "possible-tp": _possible_tp,
    "lora-rank": _lora_rank,
    "gpus-needed": _gpus_needed,
    "halves": _halves,
    "readable-size": _mebibytes,
}
"""What the key `compute` of a signature may name."""

_CALCULATOR_OF = {field: name for name, fields in FIGURES.items() for field in fields}


def _whole(text: str | None) -> int:
    digits = text.replace(",", "") if text else ""
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 16 else 0


def _hundredths_below(share: float) -> float:
    return floor(share * 100 + _HAIR) / 100


def _size(in_gib: float) -> str:
    return f"{in_gib:.2f} GiB" if in_gib >= 1 else f"{max(1, round(in_gib * 1024))} MiB"
