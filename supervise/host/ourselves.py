"""The door to what supervise itself uses."""

from __future__ import annotations

import os


def resident_bytes() -> int | None:
    """Memory that we occupy (proc(5), statm), None if it cannot be read."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def open_descriptors() -> int | None:
    """How many descriptors we have open, None if they cannot be counted."""
    try:
        # The listing itself holds one.
        return len(os.listdir("/proc/self/fd")) - 1
    except OSError:
        return None


def size_of(path: str) -> int | None:
    """Bytes in a file, None if it cannot be seen."""
    try:
        return os.stat(path).st_size
    except OSError:
        return None
