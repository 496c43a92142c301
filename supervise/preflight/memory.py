"""The `memory` and `hostmemory` checks: whether the weights fit. Estimates, and never a refusal. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from supervise.host import memory
from supervise.host.memory import Ceiling
from supervise.model.need import DeviceKind, Need
from supervise.model.preflight import Check, Level
from supervise.model.snapshot import GpuReading, GpuStatus
from supervise.preflight.launch import Launch
from supervise.preflight.sizes import size

NAME = "memory"
HOST_NAME = "hostmemory"
# The weights in memory are then not the weights on disk, or not all on the GPU.
_OTHERWISE = (
    "--quantization",
    "-q",
    "--torchao-config",
    "--cpu-offload-gb",
    "--cpu-offload-params",
    "--enable-expert-parallel",
    "-ep",
    "--expert-parallel-size",
    "--ep-size",
    "--ep",
    "--enable-dp-attention",
    "--offload-params",
    "--offload-group-size",
)
# A driver and an engine take some memory before the first weight is loaded.
_NEAR = 0.98


def check(launch: Launch) -> Iterator[Check]:
    """Compare the weights of one GPU with what the engine will let itself have of it."""
    weights, need = _weights(launch), launch.need
    if weights is None or launch.gpus.status is not GpuStatus.READ or need.devices.kind is DeviceKind.NONE:
        return
    ranks = (need.tensor_parallel or 1) * (launch.number("pp") or 1)
    share = weights // max(1, ranks)
    budgets = [(_budget(device, need), device) for device in _devices(launch) if device.total]
    if not budgets:
        return
    most, device = min(budgets, key=lambda pair: pair[0])
    if share > most * _NEAR:
        text = (
            f"an estimate: the weights take about {size(share)} of each GPU, and the engine may have {size(most)} of "
            f"the {size(device.total)} of GPU {device.index}"
        )
        yield Check(NAME, Level.WARNING, text, "more GPUs (tensor parallel), a smaller or quantized model")


def check_host(launch: Launch) -> Iterator[Check]:
    """Compare the weights with the memory that the kernel lets us have."""
    weights = _weights(launch)
    if weights is not None:
        yield from judge_host(weights, memory.memory_ceiling(), memory.available())


def judge_host(weights: int, ceiling: Ceiling | None, available: int | None) -> Iterator[Check]:
    """Judge the host's memory.

    Args:
        weights: of the model, in bytes.
        ceiling: the lowest cgroup limit.
        available: what can be had without swapping, in bytes.
    """
    if ceiling is not None and ceiling.limit < weights:
        text = f"the weights have {size(weights)}, and the cgroup allows {size(ceiling.limit)} ({ceiling.path})"
        yield Check(HOST_NAME, Level.WARNING, text, "raise the memory limit: loading may be slow, or killed")
    elif available is not None and available < weights:
        text = f"the weights have {size(weights)}, and the host has {size(available)} available"
        yield Check(HOST_NAME, Level.WARNING, text, "end what uses the memory: loading may be slow, or killed")


def _weights(launch: Launch) -> int | None:
    if launch.unusual or not launch.plain_weights or any(map(launch.mentions, _OTHERWISE)):
        return None
    files = launch.files
    return None if files is None else files.nbytes


def _devices(launch: Launch) -> list[GpuReading]:
    devices = launch.need.devices
    if devices.kind is DeviceKind.ALL:
        return list(launch.gpus.devices[: devices.count])
    ids = devices.ids[: devices.count]
    return [gpu for gpu in launch.gpus.devices if any(_is(gpu, name) for name in ids)]


def _is(gpu: GpuReading, name: str) -> bool:
    return name == str(gpu.index) or (name.startswith("GPU-") and gpu.uuid.startswith(name))


def _budget(gpu: GpuReading, need: Need) -> int:
    """What the engine may have at most: how much of it is free is the slate's to see to, which may free more."""
    return int(gpu.total * (need.memory_fraction or 1.0))
