"""Bytes as people read them."""

from __future__ import annotations

_GIB = 2**30
_MIB = 2**20


def size(nbytes: int) -> str:
    """1.5 GiB, 64 MiB, 0 MiB."""
    return f"{nbytes / _GIB:.1f} GiB" if nbytes >= _GIB else f"{nbytes / _MIB:.0f} MiB"
