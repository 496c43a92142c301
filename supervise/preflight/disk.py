"""The `disk` check: there is room for logs, temporary files and caches."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from supervise.host import space
from supervise.host.space import Space
from supervise.host.within import within
from supervise.model.preflight import Check, Level
from supervise.preflight import place
from supervise.preflight.launch import Launch
from supervise.preflight.place import Kind
from supervise.preflight.sizes import size
from supervise.profiles.load import GENERIC

NAME = "disk"
_TIMEOUT_S = 1.0
_MIB = 2**20
_FEW_FILES = 1024


class Use(NamedTuple):
    """A directory that a launch writes to, what for, and how many bytes it should find free."""

    path: str
    what: str
    wanted: int


def check(launch: Launch) -> Iterator[Check]:
    """Look at every directory that the launch writes to."""
    if launch.state_dir is not None:
        yield from _state(launch.state_dir)
    seen: set[int] = set()
    for use in uses(launch):
        try:
            found = within(_TIMEOUT_S, partial(space.free, use.path))
        except OSError as error:
            yield Check(NAME, Level.WARNING, f"{use.what} at {use.path} not checked: {error.strerror or error}")
            continue
        if found.device not in seen:
            told = list(judge(use, found))
            seen.update(found.device for _ in told)
            yield from told


def judge(use: Use, found: Space) -> Iterator[Check]:
    """Judge one directory.

    Args:
        use: what it is for.
        found: what is free there.
    """
    if found.read_only:
        yield Check(NAME, Level.WARNING, f"{use.what} at {use.path}: the file system is read-only")
    elif found.free is not None and found.free < use.wanted:
        text = f"{use.what} at {use.path}: {size(found.free)} free"
        yield Check(NAME, Level.WARNING, text, f"make room: {size(use.wanted)} should be free")
    elif found.files is not None and found.files < _FEW_FILES:
        yield Check(NAME, Level.WARNING, f"{use.what} at {use.path}: room for {found.files} more files", "make room")


def uses(launch: Launch) -> Iterator[Use]:
    """What a launch writes, and where: ourselves, any program, an engine."""
    env = launch.env
    if launch.state_dir is not None:
        yield Use(launch.state_dir, "the log", 512 * _MIB)
    yield Use(env.get("TMPDIR") or "/tmp", "temporary files", 256 * _MIB)
    if launch.profile == GENERIC:
        return
    caches = env.get("XDG_CACHE_HOME") or os.path.join(place.user_home(env), ".cache")
    yield Use(env.get("VLLM_CACHE_ROOT") or caches, "compiled kernels", 1024 * _MIB)
    yield Use(env.get("TRITON_CACHE_DIR") or place.user_home(env), "compiled kernels", 1024 * _MIB)
    if launch.place.kind is Kind.HUB and not place.offline(env):
        yield Use(place.hub_cache(env), "the model, to be downloaded,", 10 * 1024 * _MIB)


def _state(directory: str) -> Iterator[Check]:
    """Without room for a log, nothing of the launch could be told afterwards."""
    try:
        full = within(_TIMEOUT_S, lambda: space.is_full(space.existing(directory)))
    except OSError as error:
        yield Check(NAME, Level.WARNING, f"state directory {directory} not checked: {error.strerror or error}")
        return
    if full:
        text = f"state directory {directory}: no room for a log, not even 64 KiB"
        yield Check(NAME, Level.REFUSAL, text, "make room, or set XDG_STATE_HOME to another place")
