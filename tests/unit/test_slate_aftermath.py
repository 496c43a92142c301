"""GPU memory after the end of a group: back, not back, or unknown; never back because it could not be read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from supervise.model.need import DeviceKind, Devices, Need
from supervise.model.snapshot import GpuReading, Gpus, GpuStatus
from supervise.slate import aftermath

GIB = 2**30
FREE = GpuReading(0, "GPU-a", "H200", 100 * GIB, 95 * GIB)
OTHER = GpuReading(1, "GPU-b", "H200", 100 * GIB, 95 * GIB)
NEED = Need("vllm", "r", (), (), devices=Devices(DeviceKind.LISTED, ("0",)))
TAKEN = replace(FREE, free=10 * GIB, holders=((70, 85 * GIB),))


def look(monkeypatch: pytest.MonkeyPatch, *readings: Iterable[GpuReading], group: tuple[int, ...] = (70,)):
    """A look with a clock of its own; the last reading stays."""
    given = [Gpus(GpuStatus.READ, tuple(devices)) for devices in readings]
    clock = [0.0]
    monkeypatch.setattr(aftermath.nvml, "read", lambda: given.pop(0) if len(given) > 1 else given[0])
    before = Gpus(GpuStatus.READ, (FREE, OTHER))
    sleep = lambda seconds: clock.append(clock[-1] + seconds)  # noqa: E731
    found = aftermath.look(NEED, before, frozenset(group), clock=lambda: clock[-1], sleep=sleep)
    return found, clock[-1]


@pytest.mark.parametrize(
    "later", [TAKEN, replace(FREE, holders=((70, None),)), replace(FREE, free=90 * GIB)], ids=["both", "pid", "memory"]
)
def test_memory_and_pids_are_waited_for(monkeypatch, later):
    found, waited = look(monkeypatch, [TAKEN], [later], [FREE])
    assert (found.sentences, found.clean, waited) == (("GPU memory back",), True, 0.5)
    stuck, waited = look(monkeypatch, [TAKEN], [later])
    assert (stuck.clean, waited >= 30) == (False, True)
    assert stuck.sentences[0].startswith("GPU memory not back after 30 s: ")
    assert stuck.held == len(later.holders)


def test_what_a_driver_keeps_of_a_context_is_tolerated(monkeypatch):
    assert look(monkeypatch, [replace(FREE, free=95 * GIB - 500 * 2**20)])[0].clean


def test_a_needed_device_that_cannot_be_read_is_not_back(monkeypatch):
    found, _ = look(monkeypatch, [replace(FREE, total=0, free=0, error="GPU is lost"), OTHER])
    assert (found.sentences, found.clean) == (("GPU memory unknown: GPU 0 GPU is lost",), False)


@pytest.mark.parametrize("other", [replace(OTHER, free=GIB), replace(OTHER, error="GPU is lost", free=0)])
def test_other_devices_are_the_business_of_others(monkeypatch, other):
    assert look(monkeypatch, [FREE, other])[0].clean
