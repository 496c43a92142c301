"""The door to the kernel's log: who was killed for memory, what crashed, what a GPU's driver complained of."""

from __future__ import annotations

import errno
import os
import re
import time

_DEVICE = "/dev/kmsg"
_RECORD_BYTES = 8192
_RECORDS = 20_000
_TELLING = re.compile(
    r"Out of memory: Killed process|oom-kill:|Memory cgroup out of memory|NVRM: Xid|segfault at|general protection"
    r"|traps: |trap invalid opcode|MCE|amdgpu: .*(?:fault|reset)"
)
_PID = re.compile(r"(?:[Kk]illed process |pid=|\[)(\d+)\b")


def since(moment_s: float, pids: frozenset[int] = frozenset()) -> tuple[str, ...]:
    """What the kernel said of deaths and devices.

    Args:
        moment_s: seconds of CLOCK_MONOTONIC from which on records count; the kernel stamps with a clock that does not
            count a suspension either (Documentation/ABI/testing/dev-kmsg).
        pids: lines that name a process count only if it is one of these; none given, all count.

    Returns:
        The telling lines, the oldest first, at most 20; none where the log may not be read (dmesg_restrict).
    """
    try:
        fd = os.open(_DEVICE, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ()
    try:
        return tuple(_telling(fd, moment_s, pids)[:20])
    finally:
        os.close(fd)


def now() -> float:
    """The present, on the clock of `since`."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def _telling(fd: int, moment_s: float, pids: frozenset[int]) -> list[str]:
    found: list[str] = []
    for _ in range(_RECORDS):
        try:
            record = os.read(fd, _RECORD_BYTES)
        except OSError as error:
            if error.errno == errno.EPIPE:
                # Overwritten while we read: the next read goes on with the oldest that is left.
                continue
            return found
        text = _parse(record, moment_s)
        if text and _TELLING.search(text) and _concerns(text, pids):
            found.append(text)
    return found


def _parse(record: bytes, moment_s: float) -> str | None:
    """The text of a record `prefix,sequence,microseconds,flags;text`, if it is young enough."""
    head, _, text = record.partition(b";")
    fields = head.split(b",")
    if len(fields) < 3 or not fields[2].isdigit() or int(fields[2]) / 1e6 < moment_s:
        return None
    first = text.split(b"\n", 1)[0].decode("utf-8", "replace")
    return "".join(char for char in first if char.isprintable())


def _concerns(text: str, pids: frozenset[int]) -> bool:
    named = [int(pid) for pid in _PID.findall(text)]
    return not pids or not named or any(pid in pids for pid in named)
