"""Knows the lines in which compilers say what went wrong, and the exceptions that only say that something did."""

from __future__ import annotations

import re

# `error:` alone would be anybody's: a place in a file, or the name of a tool, is in front of it.
_TOOL = (
    r"(?:[\w./+-]*/)?(?:(?:[\w.]+-)*(?:cc|gcc|[gc]\+\+|ld(?:\.\w+)?|as)|cc1|cc1plus|clang[\w.+-]*|nvcc|hipcc|ptxas|nvlink"
    r"|cicc|cudafe\+\+|ninja)"
)
_ERRORS = re.compile(
    r"\s*(?:"
    r"[^\s:(][^:(]{0,400}:\d+(?::\d+)?: (?:fatal |internal compiler )?error: \S"  # gcc, clang, MLIR
    r"|[^\s:(][^:(]{0,400}\(\d+\): (?:catastrophic )?error(?: #\d+(?:-D)?)?: \S"  # nvcc
    rf"|{_TOOL}:? (?:fatal error|fatal|error) *: \S"  # cc1plus: fatal error: …, nvcc fatal   : …, ptxas fatal   : …
    r"|ptxas [^:]{1,400}; (?:fatal|error) *: \S"
    rf"|{_TOOL}: (?:cannot find |[^:]{{1,400}}: undefined reference to )"
    r"|error\[E\d{4}\]: \S"  # rustc
    r"|LLVM ERROR: \S"
    r"|CMake Error(?: at |:)"
    r"|(?:\S*/)?(?:ba)?sh: (?:line )?\d+: [^:\s]*(?:nvcc|gcc|g\+\+|cc|ninja|ptxas|hipcc|cmake): (?:command )?not found"
    r")"
)
# These repeat that something above them failed.
_REPEATS = re.compile(r"(?:\S*: )?(?:ninja: build stopped|error: command |collect2: error: ld returned)")
# PTXASError quotes ptxas; the others quote a whole build.
_WRAPPERS = re.compile(
    r".*(?:CppCompileError|CUDACompileError|PTXASError|PTXAS error|PTX codegen error|Error building extension"
    r"|Ninja build failed|[Ff]ailed to compile|[Cc]ompilation failed)"
    r"|[\w.]*CalledProcessError: Command .*\b(?:ninja|nvcc|gcc|g\+\+|cc|c\+\+|clang|cmake|hipcc|ptxas)\b"
)

OPENERS = (
    "error: ",
    "error[E",
    "fatal   :",
    "error   :",
    "fatal:",
    "LLVM ERROR",
    "CMake Error",
    ": cannot find ",
    "undefined reference to",
    ": not found",
    "command not found",
)
"""One of these is in every line for which `is_error` is true."""


def is_error(text: str) -> bool:
    """Whether a compiler, assembler, linker or build tool says in this line what is wrong.

    Args:
        text: a line's text.

    Returns:
        True for errors; not for warnings, nor for lines that only repeat that a step failed.
    """
    if not any(each in text for each in OPENERS):
        return False
    return _ERRORS.match(text) is not None and _REPEATS.match(text) is None


def wraps_build(text: str) -> bool:
    """Whether an exception only says that a build failed, which `is_error` lines near it explain."""
    return _WRAPPERS.match(text) is not None
