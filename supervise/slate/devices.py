"""Which of the GPUs of this host a launch will use, and whether they are what its engine asks for. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from supervise.model.need import DeviceKind, Devices, MemoryRule, Need
from supervise.model.snapshot import GpuReading, Gpus, GpuStatus


def needed(devices: Devices, present: Iterable[GpuReading]) -> tuple[list[GpuReading], list[str]]:
    """The devices that a launch will use, and names that match none.

    Of a GPU that is divided into MIG instances CUDA uses the first that it sees, and sees one at most (NVIDIA MIG User
    Guide, CUDA Device Enumeration): that one stands for it.

    Args:
        devices: what the launch wants.
        present: what there is, in NVML's order.

    Returns:
        Devices and unmatched names; among the devices a divided GPU only if it has no instance.
    """
    known = list(present)
    first = {device.parent: device for device in reversed(known) if device.parent is not None}
    gpus = [device for device in known if device.parent is None]
    if devices.kind is DeviceKind.ALL:
        seen = [device for device in gpus if not device.mig or device.index in first] or gpus
        return [first.get(device.index, device) for device in seen[: devices.count]], []
    found = {name: _named(name, known) for name in devices.ids[: devices.count]}
    wanted = [
        device if device.parent is not None else first.get(device.index, device) for device in found.values() if device
    ]
    return wanted, [name for name, device in found.items() if device is None]


def _named(name: str, known: Iterable[GpuReading]) -> GpuReading | None:
    """By index, or by the beginning of its UUID (CUDA C++ Programming Guide, environment variables)."""
    if name.startswith(("GPU-", "MIG-")):
        return next((device for device in known if device.uuid.startswith(name)), None)
    return next((device for device in known if device.parent is None and str(device.index) == name), None)


def order_assumed(devices: Devices, gpus: Gpus, env: Mapping[str, str]) -> bool:
    """Whether an index may mean another GPU to CUDA than to NVML.

    Args:
        devices: what the launch wants.
        gpus: what there is.
        env: the environment of the launch; with CUDA_DEVICE_ORDER=PCI_BUS_ID both count alike.

    Returns:
        True only where GPUs of different models are told apart by their number.
    """
    if env.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID":
        return False
    whole = [device for device in gpus.devices if device.parent is None]
    models = {device.name for device in whole if device.name}
    if devices.kind is DeviceKind.ALL:
        counted = devices.count is not None and devices.count < len(whole)
    else:
        counted = any(name.isdigit() for name in devices.ids[: devices.count])
    return counted and len(models) > 1


def enough(device: GpuReading, need: Need) -> bool:
    """Whether the engine's own check at its start would pass (FIELD.md B1 row 5)."""
    if need.memory_rule is not MemoryRule.OF_TOTAL or need.memory_fraction is None:
        return True
    return device.free >= need.memory_fraction * device.total


def unexplained(gpus: Gpus, need: Need | None, *, namesakes: bool = False) -> bool:
    """Whether only the device files can tell who uses the GPUs: the survey reads them in this case alone.

    Where somebody else's pids may be told, as in a container, they are looked at as soon as the driver names anybody.
    """
    if need is None or need.devices.kind is DeviceKind.NONE or gpus.status is not GpuStatus.READ:
        return need is not None and need.devices.kind is not DeviceKind.NONE and gpus.status is GpuStatus.ABSENT
    wanted, _ = needed(need.devices, gpus.devices)
    if namesakes and any(device.holders for device in wanted):
        return True
    return any(not (device.error or device.mig or device.holders or enough(device, need)) for device in wanted)
