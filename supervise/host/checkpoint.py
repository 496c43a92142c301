"""The door to a model's directory: what lies there, its config, its index, the headers of its weights.

Nothing is judged here, and nothing is believed: every file may be garbage. Bounded in files, bytes and time, for it may
lie on a slow network file system.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from supervise.host import safetensors
from supervise.host.safetensors import Damage, Header, Unread

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
_PICKLES = (".bin", ".pt")
_LOOKED_AT = (".json", ".safetensors", ".bin", ".pt", ".gguf", ".model", ".pth")
_MOST_ENTRIES = 20_000
_MOST_HEADERS = 2048
_LARGEST_JSON = 64 * 2**20
_SMALL = 1024


class Json(NamedTuple):
    """A JSON file: its value, or why there is none. `missing` if there is no such file, `damaged` if it is no JSON."""

    value: Any = None
    error: str = ""
    missing: bool = False
    damaged: bool = False

    @property
    def table(self) -> dict[str, Any]:
        """The value if it is an object, else an empty one."""
        return self.value if isinstance(self.value, dict) else {}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model's directory as it lies there.

    `sizes` maps the names of files that a model is made of to bytes, `dangling` are links to nothing. `headers` are
    those of the safetensors files that an engine would open, `pointers` other files that are Git LFS pointers.
    `skipped` counts headers for which there was no time.
    """

    directory: str
    sizes: Mapping[str, int]
    dangling: frozenset[str]
    config: Json
    index: Json
    headers: Mapping[str, Header | Damage | Unread] = field(default_factory=dict)
    pointers: frozenset[str] = frozenset()
    skipped: int = 0

    def named(self, *endings: str) -> list[str]:
        """Files and dangling links that end so, sorted; hidden ones are not counted, as in a shell's pattern."""
        names = {*self.sizes, *self.dangling}
        return sorted(name for name in names if name.endswith(endings) and not name.startswith("."))

    @property
    def indexed(self) -> dict[str, str]:
        """Which file the index names for each tensor; empty without a sound index."""
        table = self.index.table.get("weight_map")
        if not isinstance(table, dict) or not all(isinstance(file, str) for file in table.values()):
            return {}
        return table

    @property
    def shards(self) -> list[str]:
        """The safetensors files that an engine opens: those of the index, else all."""
        return sorted(set(self.indexed.values())) or self.named(".safetensors")

    @property
    def nbytes(self) -> int | None:
        """Bytes of all tensors; None if not all could be counted."""
        sound = [header for header in self.headers.values() if isinstance(header, Header)]
        if sound and len(sound) == len(self.shards):
            return sum(header.nbytes for header in sound)
        pickles = [self.sizes[name] for name in self.named(*_PICKLES) if name in self.sizes]
        return sum(pickles) if pickles and not self.named(".safetensors") else None


def read(directory: str, timeout_s: float, *, weights: bool = True) -> Checkpoint:
    """Read a model's directory.

    Args:
        directory: of the model.
        timeout_s: after so many seconds no further header is read.
        weights: whether the weights are looked at, too.

    Raises:
        OSError: it cannot be listed.
    """
    deadline = time.monotonic() + timeout_s
    sizes, dangling = _listed(directory)
    config = read_json(os.path.join(directory, CONFIG))
    index = read_json(os.path.join(directory, INDEX))
    found = Checkpoint(directory, sizes, dangling, config, index)
    headers, skipped = _headers(found, deadline) if weights else ({}, 0)
    return Checkpoint(directory, sizes, dangling, config, index, headers, _pointers(found), skipped)


def read_json(path: str) -> Json:
    """Read a JSON file as the engines do (UTF-8); at most 64 MiB."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return Json(error=os.strerror(error.errno or 0), missing=isinstance(error, FileNotFoundError))
    try:
        state = os.fstat(fd)
        if not stat.S_ISREG(state.st_mode) or state.st_size > _LARGEST_JSON:
            return Json(error="no regular file of a usual size")
        with os.fdopen(fd, "rb", closefd=False) as file:
            return _parsed(file.read())
    except OSError as error:
        return Json(error=os.strerror(error.errno or 0))
    finally:
        os.close(fd)


def _parsed(text: bytes) -> Json:
    if safetensors.is_pointer(text):
        return Json(error="it is a Git LFS pointer, not the file itself", damaged=True)
    try:
        return Json(json.loads(text.decode()))
    except (ValueError, RecursionError) as error:
        return Json(error=f"it is no JSON ({error})" if text.strip() else "it is empty", damaged=True)


def _listed(directory: str) -> tuple[dict[str, int], frozenset[str]]:
    sizes: dict[str, int] = {}
    dangling: set[str] = set()
    with os.scandir(directory) as entries:
        for number, entry in enumerate(entries):
            if number >= _MOST_ENTRIES:
                break
            if not entry.name.endswith(_LOOKED_AT):
                continue
            try:
                state = entry.stat()
            except FileNotFoundError:
                dangling.add(entry.name)
            except OSError:
                sizes[entry.name] = 0
            else:
                if not stat.S_ISDIR(state.st_mode):
                    sizes[entry.name] = state.st_size
    return sizes, frozenset(dangling)


def _headers(found: Checkpoint, deadline: float) -> tuple[dict[str, Header | Damage | Unread], int]:
    present = [name for name in found.shards if name in found.sizes]
    headers: dict[str, Header | Damage | Unread] = {}
    for name in present[:_MOST_HEADERS]:
        if time.monotonic() > deadline:
            break
        headers[name] = safetensors.read(os.path.join(found.directory, name))
    return headers, len(present) - len(headers)


def _pointers(found: Checkpoint) -> frozenset[str]:
    """A pointer has some 130 bytes: only small files need be opened."""
    small = [name for name, size in found.sizes.items() if 0 < size < _SMALL and not name.endswith(".safetensors")]
    return frozenset(_which_are_pointers(found.directory, small[:_MOST_HEADERS]))


def _which_are_pointers(directory: str, names: Iterable[str]) -> Iterable[str]:
    for name in names:
        try:
            fd = os.open(os.path.join(directory, name), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            continue
        with os.fdopen(fd, "rb", buffering=0) as file:
            if stat.S_ISREG(os.fstat(fd).st_mode) and safetensors.is_pointer(file.read(64) or b""):
                yield name
