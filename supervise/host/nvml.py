"""The door to NVIDIA GPUs, through nvidia-ml-py. Every failure is a value: a GPU that cannot be read is never clean."""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Any

from supervise.model.slate import GpuReading, Gpus, GpuStatus

_LIBRARY = "libnvidia-ml.so.1"
_DRIVER = "/proc/driver/nvidia/version"
_TIMEOUT_S = 10.0


def read(timeout_s: float = _TIMEOUT_S) -> Gpus:
    """One reading of all GPUs: memory and who holds it.

    A call into a wedged driver may never come back; it runs in a thread of its own that is left behind then.

    Args:
        timeout_s: how long the driver may take, in seconds.

    Returns:
        READ with the devices, ABSENT where there is no driver, FAILED with the driver's words.
    """
    if not _present():
        return Gpus(GpuStatus.ABSENT)
    answer: list[Gpus] = []
    reader = threading.Thread(target=lambda: answer.append(_read()), daemon=True, name="nvml")
    reader.start()
    reader.join(timeout_s)
    return answer[0] if answer else Gpus(GpuStatus.FAILED, error=f"NVML did not answer in {timeout_s:g} s")


def _present() -> bool:
    """Cheap: without a driver, nvidia-ml-py need not be imported at all."""
    try:
        ctypes.CDLL(_LIBRARY)
    except OSError:
        return os.path.exists(_DRIVER)
    return True


def _read() -> Gpus:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return _not_initialised(pynvml, error)
    try:
        count = pynvml.nvmlDeviceGetCount()
        return Gpus(GpuStatus.READ, tuple(_device(pynvml, index) for index in range(count)))
    except pynvml.NVMLError as error:
        return Gpus(GpuStatus.FAILED, error=str(error))
    finally:
        pynvml.nvmlShutdown()


def _not_initialised(nvml: Any, error: Exception) -> Gpus:
    """A library without a driver, as in a CPU container with the toolkit, is no GPU; anything else is a failure."""
    absent = (nvml.NVMLError_DriverNotLoaded, nvml.NVMLError_LibraryNotFound)
    if isinstance(error, absent) and not os.path.exists(_DRIVER):
        return Gpus(GpuStatus.ABSENT)
    return Gpus(GpuStatus.FAILED, error=str(error))


def _device(nvml: Any, index: int) -> GpuReading:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    total, free = _memory(nvml, handle)
    return GpuReading(
        index=index,
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        name=_text(nvml.nvmlDeviceGetName(handle)),
        total=total,
        free=free,
        holders=tuple(sorted(_holders(nvml, handle).items())),
    )


def _memory(nvml: Any, handle: Any) -> tuple[int, int]:
    """Total and free; zero of both where the GPU has no memory of its own but shares the host's (GB10, Jetson)."""
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    except nvml.NVMLError_NotSupported:
        return 0, 0
    return memory.total, memory.free


def _holders(nvml: Any, handle: Any) -> dict[int, int | None]:
    """Who holds it. In a MIG parent and under WSL this is denied or unsupported: the memory counts, nobody is named."""
    holders: dict[int, int | None] = {}
    for query in (nvml.nvmlDeviceGetComputeRunningProcesses, nvml.nvmlDeviceGetGraphicsRunningProcesses):
        try:
            for process in query(handle):
                holders[process.pid] = process.usedGpuMemory
        except (nvml.NVMLError_NotSupported, nvml.NVMLError_NoPermission):
            continue
    return holders


def _text(value: str | bytes) -> str:
    """Older bindings return bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
