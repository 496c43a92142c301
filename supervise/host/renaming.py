"""The door to renameat2(2): two names exchanged in one step, or a name given only if there is none."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
from collections.abc import Callable

NOREPLACE, EXCHANGE = 1, 2
"""Flags of renameat2(2), from linux/fs.h."""
UNSUPPORTED = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM})
"""What says that this kernel, C library, file system or filter of system calls cannot do it."""


def rename(directory: int, old: str, new: str, flag: int) -> None:
    """Rename within a directory.

    Args:
        directory: its descriptor.
        old: a name in it.
        new: another.
        flag: NOREPLACE or EXCHANGE.

    Raises:
        OSError: all is as it was; with an errno of UNSUPPORTED it cannot be done here.
    """
    renameat2 = _function()
    if renameat2 is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), new)
    if renameat2(directory, os.fsencode(old), directory, os.fsencode(new), flag) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), new)


@functools.cache
def _function() -> Callable[..., int] | None:
    """In glibc since 2.28, in musl since 1.2.5."""
    try:
        found = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return None
    found.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    found.restype = ctypes.c_int
    return found
