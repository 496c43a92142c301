"""The second look after a group's end: port, GPU memory, each with a deadline and an honest sentence."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from supervise.host import nvml, sockets
from supervise.model.need import DeviceKind, Devices, Need
from supervise.model.snapshot import GpuReading, Gpus, GpuStatus, PortState
from supervise.slate.devices import needed

_PORT_S = 5.0
_GPU_S = 30.0
_TOLERANCE = 512 * 1024**2
_LOOK_EVERY_S = 0.25


@dataclass(frozen=True, slots=True)
class Aftermath:
    """What a second look found.

    `sentences` say what was verified or not; `clean` is False if anything remains or could not be read; `held` counts
    processes that the GPU driver still lists although the group is gone.
    """

    sentences: tuple[str, ...] = ()
    clean: bool = True
    held: int = 0


def look(
    need: Need,
    before: Gpus,
    group: frozenset[int],
    *,
    within_s: float = math.inf,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Aftermath:
    """Verify that what the group held is free again.

    Args:
        need: what the launch wanted.
        before: the GPUs as they were before the launch.
        group: pids that were in the group.
        within_s: how long all of it may take, seconds; each is looked at once in any case.
        clock: monotonic seconds.
        sleep: waits that many seconds.

    Returns:
        The findings; blocking, bounded by 5 s for each port and 30 s for GPU memory.
    """
    last = clock() + within_s
    parts = [_port(port.host, port.number, last, clock, sleep) for port in need.ports]
    if need.devices.kind is not DeviceKind.NONE and before.status is not GpuStatus.ABSENT:
        parts.append(_gpus(need.devices, before, group, last, clock, sleep))
    return Aftermath(
        sentences=tuple(sentence for part in parts for sentence in part.sentences),
        clean=all(part.clean for part in parts),
        held=sum(part.held for part in parts),
    )


def _port(host: str, number: int, last: float, clock: Callable[[], float], sleep: Callable[[float], None]) -> Aftermath:
    until = min(clock() + _PORT_S, last)
    while (reading := sockets.probe_port(host, number)).state is PortState.HELD and clock() < until:
        sleep(_LOOK_EVERY_S)
    if reading.state is PortState.FREE:
        return Aftermath((f"port {number} free",))
    return Aftermath((f"port {number} {reading.state}{f': {reading.error}' if reading.error else ''}",), clean=False)


def _gpus(
    devices: Devices,
    before: Gpus,
    group: frozenset[int],
    last: float,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> Aftermath:
    """Memory counts as back when it is what it was, less what a driver may keep (FIELD.md A1 row 29)."""
    began = clock()
    until = min(began + _GPU_S, last)
    while True:
        now = nvml.read()
        if now.status is not GpuStatus.READ:
            return Aftermath((f"GPU memory unknown: {now.error}",), clean=False)
        used, _ = needed(devices, now.devices)
        held = {pid for device in used for pid, _ in device.holders} & group
        kept = [*_short(before, used), *(f"pid {pid} still listed by the driver" for pid in sorted(held))]
        if unread := [f"{device.label} {device.error}" for device in used if device.error]:
            return Aftermath((f"GPU memory unknown: {', '.join(unread)}",), clean=False)
        if not kept:
            return Aftermath(("GPU memory back",))
        if clock() >= until:
            waited_s = clock() - began
            return Aftermath((f"GPU memory not back after {waited_s:.0f} s: {', '.join(kept)}",), False, len(held))
        sleep(_LOOK_EVERY_S)


def _short(before: Gpus, now: Iterable[GpuReading]) -> list[str]:
    free = {device.uuid: device.free for device in before.devices}
    missing = {device.label: free.get(device.uuid, 0) - device.free for device in now}
    return [f"{label} {lost / 2**30:.1f} GiB less" for label, lost in missing.items() if lost > _TOLERANCE]
