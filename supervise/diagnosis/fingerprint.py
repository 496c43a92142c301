"""The identity of a failure: the same for the same failure, whatever its pids, ranks, addresses, sizes and dates."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from supervise.diagnosis.essence import essence, place

_INNERMOST = 3
_PACKAGED = re.compile(r"/(?:site|dist)-packages/")
# Of the interpreter and of compilers: other ones in each of their releases, or in each run.
_PASSING = re.compile(
    r".*/lib(?:64)?/(?:python|pypy)3?[\d.]*t?/(?!(?:site|dist)-packages/)|<|.*/torchinductor_|.*/\.?triton"
)
# Python 3.12 has no frames of these any more (PEP 709).
_INLINED = frozenset({"<listcomp>", "<dictcomp>", "<setcomp>"})
_ENGINES = ("vllm", "sglang", "sgl_")
# Memory is short wherever the last byte is asked for; the device reports errors at whatever call is next (FIELD.md B5).
_ANYWHERE = re.compile(
    r"(?i)out of memory|can't allocate memory|cannot allocate memory|\b(?:CUDA|HIP) error|\bNCCL error"
)
_MEMORY = frozenset({"MemoryError", "OutOfMemoryError"})


def fingerprint(
    exception: str | None,
    message: str,
    frames: Sequence[tuple[str, str]],
    signature: str | None,
    phase: str | None,
) -> str:
    """Identify a failure.

    Not in it, on purpose: numbers of source lines, which every patch moves; who failed (process, rank, host) and when;
    frames of the standard library and, where the engine's or the user's own are there, of libraries; all frames of what
    may fail anywhere, such as a shortage of memory, and of what the device reports later.

    Args:
        exception: the type's name, with or without its module; None if nothing was raised.
        message: the line that names the cause.
        frames: file and function of each frame, outermost first.
        signature: id of the known failure, if any.
        phase: the phase that it happened in.

    Returns:
        12 hexadecimal digits.
    """
    kind = (exception or "").rpartition(".")[2]
    anywhere = kind in _MEMORY or _ANYWHERE.search(message) is not None
    parts = [
        kind,
        essence(_headless(message, kind)),
        *(() if anywhere else _places(frames)),
        signature or "",
        phase or "",
    ]
    return hashlib.blake2s("\0".join(parts).encode("utf-8", "replace"), digest_size=6).hexdigest()


def _headless(message: str, kind: str) -> str:
    """The message without the type in front, whose module moves between releases (torch.cuda.OutOfMemoryError)."""
    head, colon, rest = message.strip().partition(": ")
    if kind and colon and head.rpartition(".")[2] == kind:
        return rest
    return message


def _places(frames: Sequence[tuple[str, str]]) -> list[str]:
    lasting = [(file, function) for file, function in frames if function not in _INLINED and not _PASSING.match(file)]
    own = [(file, function) for file, function in lasting if not _PACKAGED.search(file) or _is_engine(place(file))]
    return [f"{place(file)}:{function}" for file, function in (own or lasting)[-_INNERMOST:]]


def _is_engine(placed: str) -> bool:
    return placed.startswith(_ENGINES)
