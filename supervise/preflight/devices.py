"""The `gpus` check: there are as many GPUs as the parallel sizes multiply to. Pure, but for the engine's build."""

from __future__ import annotations

from collections.abc import Iterator

from supervise.model.need import DeviceKind, Need
from supervise.model.preflight import Check
from supervise.model.snapshot import Gpus, GpuStatus
from supervise.preflight.launch import VLLM, Launch
from supervise.text import plural

NAME = "gpus"
# Ranks on other hosts, or placed by somebody else.
_ELSEWHERE = (
    "--distributed-executor-backend",
    "--data-parallel-backend",
    "--data-parallel-size",
    "--data-parallel-size-local",
    "--nnodes",
    "--use-ray",
    "--enable-elastic-ep",
    "-dp",
    "-dpl",
    "-n",
)
# Builds for other hardware say so in their version: 0.32.0+cpu, +rocm63, .dev1+g1a2b3c.xpu
_OTHER_BUILDS = ("cpu", "rocm", "xpu", "tpu", "neuron", "hpu", "empty")


def check(launch: Launch) -> Iterator[Check]:
    """vLLM refuses a world that is larger than the number of GPUs (config/parallel.py) unless Ray brings others."""
    wanted, seen = launch.need.devices.count, visible(launch.need, launch.gpus)
    if wanted is None or seen is None or seen >= wanted:
        return
    elsewhere = any(launch.mentions(flag) for flag in _ELSEWHERE)
    # vLLM of old turned to Ray by itself.
    sure = launch.profile == VLLM and not elsewhere and launch.is_new() and _for_nvidia(launch.builds) and seen > 0
    text = f"{plural(wanted, 'GPU')} wanted by the parallel sizes, {seen} to be seen ({launch.need.devices.source})"
    fix = "lower the parallel sizes, or let more GPUs be seen (CUDA_VISIBLE_DEVICES)"
    yield Check(NAME, launch.worst(sure=sure), text, fix)


def visible(need: Need, gpus: Gpus) -> int | None:
    """How many GPUs the engine will see; None if that is not known, or not about NVIDIA's.

    Args:
        need: says which devices it may touch.
        gpus: the reading.
    """
    if gpus.status is not GpuStatus.READ or need.devices.kind is DeviceKind.NONE:
        return None
    if need.devices.kind is DeviceKind.ALL:
        return len(gpus.devices)
    return len(set(need.devices.ids))


def _for_nvidia(builds: frozenset[str]) -> bool:
    return bool(builds) and not any(other in build for build in builds for other in _OTHER_BUILDS)
