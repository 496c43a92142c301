"""The `shm` check: /dev/shm has room for the engine's queues."""

from __future__ import annotations

from collections.abc import Iterator

from supervise.host import space
from supervise.host.space import Space
from supervise.host.within import within
from supervise.model.preflight import Check, Level
from supervise.preflight.launch import Launch
from supervise.preflight.sizes import size

NAME = "shm"
_SHM = "/dev/shm"
_TIMEOUT_S = 1.0
# vLLM's broadcast queue is 10 chunks of 24 MiB, and since 0.32 it looks for room first (shm_broadcast.py); NCCL takes
# some 10 MiB for each pair of GPUs.
_QUEUE = 241 * 2**20
_LITTLE = 16 * 2**20
_FEW_FILES = 64
_LARGER = "remove what old runs left there, or give the container more (--shm-size, --ipc=host)"


def check(launch: Launch) -> Iterator[Check]:
    """Look at /dev/shm.

    Raises:
        OSError: it cannot be read.
    """
    yield from judge(within(_TIMEOUT_S, lambda: space.free(_SHM)), _ranks(launch))


def judge(found: Space, ranks: int) -> Iterator[Check]:
    """Judge the room in /dev/shm; never a refusal: what the slate removes comes back.

    Args:
        found: what is free.
        ranks: how many GPUs, or processes of the CPU, share the model.
    """
    if found.path != _SHM:
        yield Check(NAME, Level.WARNING, f"there is no {_SHM}", "mount a tmpfs there")
    elif found.files is not None and found.files < _FEW_FILES:
        yield Check(NAME, Level.WARNING, f"{_SHM} can take {found.files} more files", _LARGER)
    elif found.free is not None and found.free < (_QUEUE if ranks > 1 else _LITTLE):
        wants = f"; {ranks} ranks want some {size(_QUEUE)}" if ranks > 1 else ""
        yield Check(NAME, Level.WARNING, f"{_SHM} has {size(found.free)} free{wants}", _LARGER)


def _ranks(launch: Launch) -> int:
    return (launch.need.tensor_parallel or 1) * (launch.number("pp") or 1)
