"""Tells what a logger put before a line from the line's own text: process, rank, level, time, source."""

from __future__ import annotations

import re

from supervise.model.diagnosis import Line

# ECMA-48: control sequences (CSI), operating-system commands (OSC, ended by BEL or ST), and two-byte escapes.
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
# C0 but TAB, DEL, C1, and the marks that reorder text on a terminal.
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")

_LEVEL = "DEBUG|INFO|WARNING|ERROR|CRITICAL"
# vLLM wraps the standard streams of its processes: every line, logged or printed, names its process. Ray does too.
_PROCESS = re.compile(r"\((?P<process>[\w.:-]+)(?: rank=\d+)? pid=(?P<pid>\d{1,10})(?:, ip=[\d.:a-f]+)?\) ?")
# vLLM's logger: `ERROR 11-30 05:27:01 [core.py:1510] text`; before 0.7 the bracket before the file name was missing.
_VLLM = re.compile(
    rf"(?P<level>{_LEVEL}) \d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)? \[?(?P<source>[\w./<>-]+:\d+)\] ?",
)
# SGLang's logger has no level word: `[2026-11-30 05:27:01 DP0 TP1] text`.
_SGLANG = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?(?P<ranks>(?: [A-Z_]+\d+)*)\] ?")
# torch, from its exception hook (`[rank0]: text`) and from C++ (`[rank0]:[E1130 … a.cpp:6] text`).
_TORCH = re.compile(r"\[(?P<rank>rank\d{1,6})\]: ?")
# uvicorn pads the level to ten columns.
_UVICORN = re.compile(rf"(?P<level>{_LEVEL}|TRACE): +")


def parse(raw: str, number: int) -> Line:
    """Take one line apart.

    Args:
        raw: the line without its end. Escape sequences and control characters are removed from it.
        number: its number, counted from 1.

    Returns:
        The line. Without a known prefix its text is the whole line.
    """
    if not raw.isprintable():
        raw = _CONTROL.sub("", _ANSI.sub("", raw))
    match raw[:1]:
        case "(":
            return _of_process(raw, number)
        case "[":
            return _bracketed(raw, number)
        case _:
            return _levelled(raw, number, 0, None, None)


def _of_process(raw: str, number: int) -> Line:
    if prefix := _PROCESS.match(raw):
        return _levelled(raw, number, prefix.end(), prefix["process"], int(prefix["pid"]))
    return Line(number, raw, raw)


def _bracketed(raw: str, number: int) -> Line:
    if prefix := _SGLANG.match(raw):
        return Line(number, raw, raw[prefix.end() :], process=prefix["ranks"].strip() or None, record=True)
    if prefix := _TORCH.match(raw):
        return Line(number, raw, raw[prefix.end() :], process=prefix["rank"])
    return Line(number, raw, raw)


def _levelled(raw: str, number: int, start: int, process: str | None, pid: int | None) -> Line:
    if raw[start : start + 1] in "DIWECT":
        if prefix := _VLLM.match(raw, start):
            return Line(number, raw, raw[prefix.end() :], process, pid, prefix["level"], prefix["source"], record=True)
        if prefix := _UVICORN.match(raw, start):
            return Line(number, raw, raw[prefix.end() :], process, pid, prefix["level"], record=True)
    return Line(number, raw, raw[start:] if start else raw, process, pid)
