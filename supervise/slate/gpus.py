"""GPUs on the slate: is enough memory free on every device of the Need, and if not, who holds it? Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from supervise.model.need import DeviceKind, Devices, MemoryRule, Need
from supervise.model.slate import Await, Finding, GpuReading, GpuStatus, Ownership, Snapshot
from supervise.slate.holders import Holder, describe
from supervise.slate.processes import ending
from supervise.slate.request import SlateRequest

_GIB = 2**30


def judge(snapshot: Snapshot, request: SlateRequest, owners: Iterable[Finding]) -> Iterator[Finding]:
    """A finding for every needed device that has too little memory free, or cannot be read."""
    need = request.need
    if need is None or need.devices.kind is DeviceKind.NONE or snapshot.gpus.status is GpuStatus.ABSENT:
        return
    if snapshot.gpus.status is GpuStatus.FAILED:
        remedy = "make nvidia-smi work first; with CUDA_VISIBLE_DEVICES= (empty) no GPU is looked at"
        yield Finding("gpu", "GPUs", Ownership.UNKNOWN, (f"cannot be read: {snapshot.gpus.error}",), remedy=remedy)
        return
    passing = ending(owners) | {process.pid for process in snapshot.ended}
    wanted, missing = needed(need.devices, snapshot.gpus.devices)
    for name in missing:
        remedy = "correct CUDA_VISIBLE_DEVICES; nvidia-smi -L lists what there is"
        yield Finding("gpu", f"GPU {name}", Ownership.UNKNOWN, ("not on this host",), remedy=remedy)
    for device in wanted:
        if finding := _device(device, need, snapshot, request, passing):
            yield finding


def needed(devices: Devices, present: Iterable[GpuReading]) -> tuple[list[GpuReading], list[str]]:
    """The devices that a launch will use, and names that match none.

    Args:
        devices: what the launch wants.
        present: what there is, in NVML's order.

    Returns:
        Devices and unmatched names; a MIG name stands for hardware that NVML reports under its parent, so that it is
        looked for there only by prefix and never called missing.
    """
    known = list(present)
    if devices.kind is DeviceKind.ALL:
        return (known if devices.count is None else known[: devices.count]), []
    wanted: list[GpuReading] = []
    missing = []
    for name in devices.ids if devices.count is None else devices.ids[: devices.count]:
        match = next(
            (d for d in known if str(d.index) == name or (name.startswith("GPU-") and d.uuid.startswith(name))), None
        )
        if match is not None:
            wanted.append(match)
        elif not name.startswith("MIG-"):
            missing.append(name)
    return wanted, missing


def enough(device: GpuReading, need: Need) -> bool:
    """Whether the engine's own check at its start would pass (FIELD.md B1 row 5)."""
    if need.memory_rule is not MemoryRule.OF_TOTAL or need.memory_fraction is None:
        return True
    return device.free >= need.memory_fraction * device.total


def _device(
    device: GpuReading, need: Need, snapshot: Snapshot, request: SlateRequest, passing: frozenset[int]
) -> Finding | None:
    if enough(device, need):
        return None
    name = f"GPU {device.index}"
    wanted = (need.memory_fraction or 0.0) * device.total
    short = f"{device.free / _GIB:.1f} of {device.total / _GIB:.1f} GiB free, {wanted / _GIB:.1f} wanted"
    holders = [pid for pid, _ in device.holders]
    less = f"choose other devices with CUDA_VISIBLE_DEVICES, or ask for less than {need.memory_fraction}"
    if passing.intersection(holders) or not holders:
        # Asynchronous: a driver gives memory back some time after its owner's end (FIELD.md A1 rows 10 and 29).
        action = Await("memory of what has ended returns")
        return Finding("gpu", name, Ownership.STALE, (short, *_unowned(holders)), action, remedy=less)
    told = [_holder(pid, memory, snapshot, request) for pid, memory in device.holders]
    remedies = dict.fromkeys(holder.remedy for holder in told if holder.remedy)
    ownership = next((holder.ownership for holder in told if holder.ownership is Ownership.LIVE), Ownership.FOREIGN)
    evidence = tuple(", ".join(holder.evidence) for holder in told)
    return Finding("gpu", name, ownership, (short, *evidence), remedy=", or ".join((*remedies, less)))


def _unowned(holders: list[int]) -> tuple[str, ...]:
    return () if holders else ("no visible owner",)


def _holder(pid: int, memory: int | None, snapshot: Snapshot, request: SlateRequest) -> Holder:
    size = f"holds {memory / _GIB:.1f} GiB" if memory is not None else "holds an unknown amount"
    process = snapshot.processes.get(pid)
    if process is None:
        return Holder(Ownership.FOREIGN, (f"pid {pid} of another PID namespace", size), "")
    known = describe(process, snapshot, request)
    return known._replace(evidence=(*known.evidence, size))
