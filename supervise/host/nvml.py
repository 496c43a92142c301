"""The door to NVIDIA GPUs, through nvidia-ml-py. Every failure is a value: a GPU that cannot be read is never clean."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from supervise.host.beside import Beside
from supervise.model.effort import NO_LOAD, GpuLoad
from supervise.model.snapshot import NO_GPUS, GpuReading, Gpus, GpuStatus

_LIBRARY = "libnvidia-ml.so.1"
_DRIVER = "/proc/driver/nvidia/version"
_TIMEOUT_S = 10.0
_WHOLE, _LOAD = -1, -2

_T = TypeVar("_T")


def read(timeout_s: float = _TIMEOUT_S) -> Gpus:
    """One reading of all GPUs: memory and who holds it.

    A call into a wedged driver may never come back. Each device is therefore asked in a thread of its own, which is
    left behind then; for as long as it hangs, nobody asks that device again.

    Args:
        timeout_s: how long the driver may take, in seconds.

    Returns:
        READ with the devices, of which any may have an error; ABSENT where there is no driver; FAILED with the driver's
        words if not even their number can be told.
    """
    if not _present():
        return NO_GPUS
    until = time.monotonic() + timeout_s
    silent = f"NVML did not answer in {timeout_s:g} s"
    count = _Call(_WHOLE, _open).answer(until, silent)
    if isinstance(count, Gpus):
        return count
    if isinstance(count, str):
        return Gpus(GpuStatus.FAILED, error=count)
    calls = [_Call(index, partial(_device, index)) for index in range(count)]
    devices = tuple(_readings(calls, until, silent))
    if not any(call.hangs for call in calls):
        # Else it stays open: to close it below a call that is still being answered is to pull away its ground.
        _Call(_WHOLE, _close).answer(until, silent)
    return Gpus(GpuStatus.READ, devices)


def load(pids: Collection[int], timeout_s: float = _TIMEOUT_S) -> GpuLoad | None:
    """What the GPUs do: those that these processes hold, or all of them where nobody is seen to hold any.

    Args:
        pids: the processes.
        timeout_s: how long the driver may take, in seconds; it is not asked again while it has not answered.

    Returns:
        None if it cannot be told of each of them.
    """
    if not _present():
        return NO_LOAD
    told = _Call(_LOAD, _loads).answer(time.monotonic() + timeout_s, "")
    if isinstance(told, str):
        return None
    held = [each for each in told if not each.holders.isdisjoint(pids)] or told
    return GpuLoad(len(held), max((each.percent for each in held), default=0), sum(each.used for each in held))


def _present() -> bool:
    """Cheap: without a driver, nvidia-ml-py need not be imported at all."""
    try:
        ctypes.CDLL(_LIBRARY)
    except OSError:
        return os.path.exists(_DRIVER)
    return True


class _Call(Generic[_T]):
    """A question to the driver, asked in a thread that may never come back; not asked while an earlier one hangs."""

    _hanging: ClassVar[dict[int, Beside[None]]] = {}

    def __init__(self, subject: int, ask: Callable[[], _T]) -> None:
        self.subject = subject
        self._told: list[_T | str] = []
        self._thread: Beside[None] | None = None
        earlier = self._hanging.get(subject)
        if earlier is not None and earlier.runs:
            self._thread = earlier
            self._told.append("NVML has not answered an earlier question yet")
            return
        try:
            self._thread = Beside(partial(self._run, ask))
        except OSError as error:
            self._told.append(str(error))

    @property
    def hangs(self) -> bool:
        """Whether its thread is still in the driver."""
        return self._thread is not None and self._thread.runs

    def answer(self, until: float, silent: str) -> _T | str:
        """The answer, else in words why there is none; blocking until that moment at most."""
        if self._thread is not None and not self._told and not self._thread.wait(until - time.monotonic()):
            self._hanging[self.subject] = self._thread
        return self._told[0] if self._told else silent

    def _run(self, ask: Callable[[], _T]) -> None:
        try:
            self._told.append(ask())
        except Exception as error:  # noqa: BLE001 - whatever a broken driver makes its bindings raise is no answer
            self._told.append(str(error) or type(error).__name__)


class _Load(NamedTuple):
    percent: int
    used: int
    holders: frozenset[int]


def _loads() -> list[_Load]:
    """Of all GPUs. Of one that is divided into instances the driver does not tell how busy it is, and raises."""
    import pynvml

    pynvml.nvmlInit()
    try:
        handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        return [_load(pynvml, handle) for handle in handles]
    finally:
        pynvml.nvmlShutdown()


def _load(nvml: Any, handle: Any) -> _Load:
    total, free = _memory(nvml, handle)
    percent = int(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
    return _Load(percent, total - free, frozenset(_holders(nvml, handle)))


def _open() -> int | Gpus:
    """Begin a reading; how many devices there are."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return _not_initialised(pynvml, error)
    try:
        return int(pynvml.nvmlDeviceGetCount())
    except pynvml.NVMLError as error:
        pynvml.nvmlShutdown()
        return Gpus(GpuStatus.FAILED, error=str(error))


def _close() -> None:
    import pynvml

    pynvml.nvmlShutdown()


def _not_initialised(nvml: Any, error: Exception) -> Gpus:
    """A library without a driver, as in a CPU container with the toolkit, is no GPU; anything else is a failure."""
    absent = (nvml.NVMLError_DriverNotLoaded, nvml.NVMLError_LibraryNotFound)
    if isinstance(error, absent) and not os.path.exists(_DRIVER):
        return NO_GPUS
    return Gpus(GpuStatus.FAILED, error=str(error))


def _readings(calls: Iterable[_Call[list[GpuReading]]], until: float, silent: str) -> Iterator[GpuReading]:
    """What became of the questions about each device: those were asked at once, and share what time there is."""
    for call in calls:
        told = call.answer(until, silent)
        if isinstance(told, str):
            yield GpuReading(call.subject, "", "", 0, 0, error=told)
        else:
            yield from told


def _device(index: int) -> list[GpuReading]:
    """A GPU, followed by its instances if it is divided into such."""
    import pynvml

    reading = GpuReading(index, "", "", 0, 0)
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        reading = replace(reading, uuid=_text(pynvml.nvmlDeviceGetUUID(handle)))
        reading = replace(reading, name=_text(pynvml.nvmlDeviceGetName(handle)))
        reading = replace(reading, minor=_minor(pynvml, handle))
        if _divided(pynvml, handle):
            # Of the whole only a privileged caller is told memory and holders, and nothing can run on it as such.
            return [replace(reading, mig=True), *_instances(pynvml, handle, reading)]
        return [_measured(pynvml, handle, reading)]
    except pynvml.NVMLError as error:
        return [replace(reading, error=str(error))]


def _divided(nvml: Any, handle: Any) -> bool:
    """Whether it is in MIG mode; older GPUs and older drivers do not know the question."""
    try:
        current, _ = nvml.nvmlDeviceGetMigMode(handle)
    except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound):
        return False
    return bool(current == nvml.NVML_DEVICE_MIG_ENABLE)


def _instances(nvml: Any, gpu: Any, whole: GpuReading) -> Iterator[GpuReading]:
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        reading = GpuReading(index, "", "", 0, 0, parent=whole.index, minor=whole.minor)
        try:
            handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index)
            reading = replace(reading, uuid=_text(nvml.nvmlDeviceGetUUID(handle)))
            reading = replace(reading, name=_text(nvml.nvmlDeviceGetName(handle)))
            reading = _measured(nvml, handle, reading)
        except nvml.NVMLError_NotFound:
            # An empty place, or one that this container may not see.
            continue
        except nvml.NVMLError as error:
            reading = replace(reading, error=str(error))
        yield reading


def _measured(nvml: Any, handle: Any, reading: GpuReading) -> GpuReading:
    total, free = _memory(nvml, handle)
    return replace(reading, total=total, free=free, holders=tuple(sorted(_holders(nvml, handle).items())))


def _minor(nvml: Any, handle: Any) -> int | None:
    """Of its device file; only good for naming people, so that no reading fails for it."""
    try:
        return int(nvml.nvmlDeviceGetMinorNumber(handle))
    except nvml.NVMLError:
        return None


def _memory(nvml: Any, handle: Any) -> tuple[int, int]:
    """Total and free; zero of both where the GPU has no memory of its own but shares the host's (GB10, Jetson)."""
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    except nvml.NVMLError_NotSupported:
        return 0, 0
    return memory.total, memory.free


def _holders(nvml: Any, handle: Any) -> dict[int, int | None]:
    """Who holds it. For an instance and under WSL this may be denied or unsupported: the memory counts all the same."""
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
