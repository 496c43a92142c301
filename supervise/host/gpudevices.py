"""The door to who has a GPU's device file open, for what the driver's own library does not tell."""

from __future__ import annotations

import glob
import os
from collections import defaultdict

_NVIDIA = "/dev/nvidia[0-9]*"
_KFD = "/dev/kfd"
_RENDER = "/dev/dri/renderD*"
_DRIVER = "/proc/driver/nvidia/version"


def driver() -> str | None:
    """The version of NVIDIA's driver; None if there is none.

    Its line is `NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 …`.
    """
    try:
        with open(_DRIVER, encoding="utf-8", errors="replace") as file:
            words = file.readline(4096).split()
    except OSError:
        return None
    return next((word for word in words if word[:1].isdigit() and "." in word), None)


def openers() -> dict[str, tuple[int, ...]]:
    """Who has the device file of a GPU open.

    Everybody who uses a GPU has one open (NVIDIA: /dev/nvidia<minor>; ROCm: /dev/kfd, FIELD.md A1 row 3), but not the
    other way round: a CUDA program opens those of all GPUs that it sees. Nothing is read where there is no such file.

    Returns:
        Pids by path, of those processes whose descriptors we may read; blocking, for as long as that takes.
    """
    files = _device_files()
    found: dict[str, list[int]] = defaultdict(list)
    for name in os.listdir("/proc") if files else ():
        if name.isdigit():
            for path in _opened(int(name)) & files:
                found[path].append(int(name))
    return {path: tuple(sorted(pids)) for path, pids in sorted(found.items())}


def _device_files() -> frozenset[str]:
    """Render nodes count only beside /dev/kfd: any display has one."""
    kfd = [_KFD] if os.path.exists(_KFD) else []
    return frozenset((*glob.glob(_NVIDIA), *kfd, *(glob.glob(_RENDER) if kfd else ())))


def _opened(pid: int) -> set[str]:
    """Targets of its descriptors (proc(5), fd): reading a link waits for no device and no network."""
    opened: set[str] = set()
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return opened
    for name in names:
        try:
            opened.add(os.readlink(f"/proc/{pid}/fd/{name}"))
        except OSError:
            continue
    return opened
