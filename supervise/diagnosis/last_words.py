"""The lines with which native code, shells and command lines report that they give up."""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

from supervise.model.diagnosis import Kind


class Then(Enum):
    """What the lines after it hold: C++'s `what()`, the message, frames, a native stack, a box with the error."""

    NOTHING = "nothing"
    WHAT = "what"
    NEXT = "next"
    FRAMES = "frames"
    STACK = "stack"
    BOX = "box"


class Rule(NamedTuple):
    """A line that reports a failure: substrings of which it holds one, and its pattern, matched at the text's start."""

    kind: Kind
    literals: tuple[str, ...]
    pattern: re.Pattern[str]
    then: Then = Then.NOTHING


def _native(literals: tuple[str, ...], pattern: str, then: Then = Then.NOTHING) -> Rule:
    return Rule(Kind.NATIVE, literals, re.compile(pattern), then)


def _usage(literals: tuple[str, ...], pattern: str, then: Then = Then.NOTHING) -> Rule:
    return Rule(Kind.USAGE, literals, re.compile(pattern), then)


_FATAL = "SIG(?:SEGV|ABRT|BUS|FPE|ILL)"
_DEATHS = "Killed|Segmentation fault|Bus error|Aborted|Illegal instruction|Floating point exception"
_DEATH_WORDS = ("Killed", "Segmentation fault", "Bus error", "Aborted", "Illegal instruction", "Floating point")
# Programs without which no server starts; scripts look for others in vain and go on.
_PROGRAMS = r"(?:\S*/)?(?:vllm|sglang|python[\d.]*|torchrun|llama-server|ray|uv|accelerate|mpirun|trtllm-serve)"
_WRONG_ARGUMENTS = (
    r"(?:unrecognized arguments|argument |the following arguments are required|ambiguous option"
    r"|one of the arguments|too few arguments|.*\binvalid choice: )"
)
_HOST = r"\[[^\]]{1,120}\]"
_SHELL = r"(?:[^\s:]+: )?(?:line )?(?:\d+: )?(?:exec: )?"

RULES = (
    # libstdc++ and libc++
    _native(("terminate called",), r"terminate called (?:after throwing|without an active|recursively)", Then.WHAT),
    _native(("libc++abi",), r"libc\+\+abi: (?:terminating|Pure virtual)"),
    # CPython
    _native(("Fatal Python error",), r"Fatal Python error: \S", Then.FRAMES),
    # abseil (Ray puts its logger's prefix before it), folly, glog, UCX, Open MPI
    _native(("*** SIG",), rf"(?:\[.{{1,120}}\] \S+: )?\*\*\* {_FATAL} ", Then.STACK),
    _native(("Segfault encountered",), r"!!!!!!! Segfault encountered !!!!!!!", Then.STACK),
    _native(("*** Aborted at",), r"\*\*\* Aborted at \d+ \(", Then.STACK),
    _native(("Caught signal",), rf"{_HOST} Caught signal (?:11|6|7|8|4) \(", Then.STACK),
    _native(("Signal: ",), rf"{_HOST} Signal: (?:{_DEATHS}) \(", Then.STACK),
    # CUDA's device-side assertions, one line for each thread of a block; assert(3); GGML
    _native(
        ("Assertion ",),
        r"\S+:\d+: .{1,1000}: block: \[[\d,]+\], thread: \[[\d,]+\],? Assertion [`'].{1,1000}[`'] failed",
    ),
    _native(("Assertion ",), r"(?:\S+: )?\S+:\d+: .{1,1000}: Assertion [`'].{1,1000}[`'] failed"),
    _native(("GGML_ASSERT(",), r"(?:\S+:\d+: )?GGML_ASSERT\("),
    # custom kernels of vLLM and SGLang; llama.cpp; ROCm
    _native((" error ",), r"Failed[:,] (?:Cuda|CUDA|NCCL|HIP) error \S+:\d+ '"),
    _native(("CUDA error", "HIP error", "ROCm error"), r"(?:\S+: )?(?:CUDA|HIP|ROCm) error(?: \(\S+:\d+\))?: \S"),
    _native(("Memory access fault by GPU",), r"Memory access fault by GPU node-\d+"),
    # glibc
    _native(("alloc(): ", "free(): "), r"(?:[mc]alloc|realloc|free)\(\): \S"),
    _native(("double free or corruption",), r"double free or corruption"),
    _native(("corrupted ",), r"corrupted (?:size vs\. prev_size|double-linked list)"),
    _native(("munmap_chunk(): ", "malloc_consolidate(): "), r"(?:munmap_chunk|malloc_consolidate)\(\): \S"),
    _native((" detected ***",), r"\*\*\* (?:stack smashing|buffer overflow) detected \*\*\*"),
    # Rust: since 1.73 the message is in the next line
    _native(("panicked at ",), r"thread '.{0,80}'(?: \(\d+\))? panicked at [^\s:]+:\d+:\d+:$", Then.NEXT),
    _native(("panicked at ",), r"thread '.{0,80}'(?: \(\d+\))? panicked at '"),
    # a shell says how its command died
    _native(_DEATH_WORDS, rf"(?:\S+: line \d+: +\d+ +)?(?:{_DEATHS})(?: +\(core dumped\))?(?:$| {{2,}}\S)"),
    # argparse; click and typer
    _usage((": error: ",), rf"(?:[\w./-]+ ){{0,3}}[\w./-]+: error: {_WRONG_ARGUMENTS}"),
    # SGLang for diffusion, which does not say its name
    _usage(("error: unrecognized arguments: ",), r"error: unrecognized arguments: -"),
    _usage((": error: ",), r"(?:python3? -m )?(?:vllm|sglang)(?:[ .][\w.]+){0,3}: error: \S"),
    _usage((".py: error: ",), r"(?:api_server|launch_server|__main__|run_batch)\.py: error: \S"),
    _usage((" Error ",), r"[╭+][─-]+ Error [─-]+[╮+]$", Then.BOX),
    # hydra, which trainers are configured with
    _usage(("Could not override '",), r"Could not override '[^']+'"),
    _usage(("Error merging override ", "Error parsing override "), r"Error (?:merging|parsing) override \S"),
    _usage(("Cannot find primary config",), r"Cannot find primary config '"),
    _usage((": Could not find '",), r"In '[^']+': Could not find '"),
    # asyncio, for uvicorn
    _usage(("error while attempting to bind",), r"\[Errno \d+\] error while attempting to bind on address"),
    # shells and runtimes, of the program itself
    _usage((": not found", "command not found"), rf"{_SHELL}{_PROGRAMS}: (?:command )?not found$"),
    _usage(
        (": No such file", ": Permission denied", ": cannot execute"),
        rf"{_SHELL}{_PROGRAMS}: (?:cannot execute: .+|No such file or directory|Permission denied)$",
    ),
    _usage(("executable file not found", "exec format error"), r".{0,1000}\bexec.{0,400}(?:not found in|format error)"),
    _usage(("can't open file",), r"\S*python[\d.]*: can't open file '"),
    _usage((": No module named",), r"\S*python[\d.]*: No module named \S"),
    _usage(("Error while finding module",), r"\S*python[\d.]*: Error while finding module specification for '"),
)
"""All of them, the more exact of two before the other."""

WATCHDOG = re.compile(r".*(?:[Tt]imeout|[Tt]imed out|exception|[Ff]ailure|terminated)")
"""What the watchdogs of torch.distributed log, through torch's C++ logger, when a collective has failed."""

WATCHDOG_SOURCE = "ProcessGroup"
"""Begins the name of the source file that those name in their prefix."""
