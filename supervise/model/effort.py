"""What processes and GPUs have done since they began, as counters that only grow; two looks at them make a speed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from supervise.model.process import ProcessId


class Effort(NamedTuple):
    """Of one process.

    `cpu_s` are seconds of CPU, `faults` major page faults (a page came from disk), `resident` bytes in memory now.
    `read` are bytes that its system calls read, or that came from disk, whichever is more; None if that may not be
    known. `traced` is True while a debugger holds it still.
    """

    cpu_s: float
    faults: int
    resident: int
    read: int | None
    traced: bool = False


class GpuLoad(NamedTuple):
    """Of some GPUs together: how many, how busy the busiest is in percent, and the bytes in use on all of them."""

    gpus: int = 0
    percent: int = 0
    used: int = 0


NO_LOAD = GpuLoad()
"""There is no GPU, or none was asked yet."""


class Look(NamedTuple):
    """One look at a group and its log.

    `received` are bytes that came over the network to its sockets, `gpu` what the GPUs do; either is None where that
    cannot be told. `steps` counts how often the log has told of progress, `written` is the log's size in bytes.
    """

    efforts: Mapping[ProcessId, Effort]
    received: int | None = 0
    gpu: GpuLoad | None = NO_LOAD
    steps: int = 0
    written: int = 0
