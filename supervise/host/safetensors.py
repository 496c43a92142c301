"""The door to one safetensors file: its header, never its tensors.

The format: 8 bytes that hold the length of the header (little-endian), the header in JSON, the tensors. Its readers
refuse a file whose last tensor does not end where the file ends (`MetadataIncompleteBuffer`), a header over 100 MB
(`HeaderTooLarge`) and one that is no JSON (`InvalidHeaderDeserialization`): FIELD.md B2 row 25.
"""

from __future__ import annotations

import json
import os
import stat
from typing import Any, NamedTuple

_LENGTH = 8
_LARGEST = 100_000_000
_MOST_READ = 8 * 2**20
_POINTER = b"version https://git-lfs.github.com/spec/"


class Header(NamedTuple):
    """What a sound file holds: the names of its tensors, and how many bytes they have."""

    tensors: frozenset[str]
    nbytes: int


class Damage(NamedTuple):
    """Why no reader of the format accepts a file; `pointer` if it is what Git LFS leaves in place of a file."""

    text: str
    pointer: bool = False


class Unread(NamedTuple):
    """Why nothing can be told of a file."""

    text: str


def read(path: str) -> Header | Damage | Unread:
    """Read the header of a safetensors file; at most 8 MiB are read.

    Args:
        path: of the file; a link is followed, anything but a regular file is not read.

    Returns:
        The header, or what is wrong with the file, or why that cannot be told.
    """
    try:
        # A fifo would wait for its writer.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return Unread(os.strerror(error.errno or 0))
    try:
        state = os.fstat(fd)
        if not stat.S_ISREG(state.st_mode):
            return Unread("no regular file")
        with os.fdopen(fd, "rb", closefd=False, buffering=0) as file:
            return _read(file.read(_LENGTH), lambda size: _all(fd, size), state.st_size)
    except OSError as error:
        return Unread(os.strerror(error.errno or 0))
    finally:
        os.close(fd)


def is_pointer(beginning: bytes) -> bool:
    """Whether a file that begins so is a Git LFS pointer (git-lfs, docs/spec.md)."""
    return beginning.startswith(_POINTER)


def _all(fd: int, size: int) -> bytes:
    return os.pread(fd, size, _LENGTH)


def _read(length: bytes, rest: Any, size: int) -> Header | Damage | Unread:
    announced = int.from_bytes(length, "little")
    if length and is_pointer(length + rest(len(_POINTER))):
        return Damage("it is a Git LFS pointer, not the file itself", pointer=True)
    if len(length) < _LENGTH:
        return Damage("it is empty" if not length else f"it has {size} bytes and no header")
    if announced > _LARGEST:
        return Damage("its header is damaged: no length can be read from it")
    if _LENGTH + announced > size:
        return Damage(f"it is cut short within its header, after {size} bytes")
    if announced > _MOST_READ:
        return Unread(f"its header has {announced} bytes")
    return _judged(rest(announced), _LENGTH + announced, size)


def _judged(text: bytes, begin: int, size: int) -> Header | Damage:
    try:
        parsed = json.loads(text.decode())
        entries = {name: entry for name, entry in parsed.items() if name != "__metadata__"}
        spans = [_span(entry) for entry in entries.values()]
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError):
        return Damage("its header is damaged: no list of tensors can be read from it")
    end = begin + max((last for _, last in spans), default=0)
    if end != size:
        wrong = "it is cut short" if size < end else "it has more than it should"
        return Damage(f"{wrong}: {size} bytes where its header promises {end}")
    return Header(frozenset(entries), sum(last - first for first, last in spans))


def _span(entry: Any) -> tuple[int, int]:
    """Where a tensor lies.

    Raises:
        ValueError: not two positions in order.
        TypeError: no entry of a tensor.
        KeyError: likewise.
    """
    first, last = entry["data_offsets"]
    if not (type(first) is type(last) is int and 0 <= first <= last):
        raise ValueError
    return first, last
