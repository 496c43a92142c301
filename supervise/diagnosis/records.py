"""Reads a line that is a record in JSON: of a logger that was told to write it, or of who collects containers' logs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_TEXTS = ("message", "msg", "log", "event", "textPayload", "short_message", "MESSAGE", "line")
# Docker's and Loki's: a line as somebody printed it.
_CARRIED = ("log", "line")
_TRACES = ("exc_info", "exception", "traceback", "exc_text", "stack_trace", "error.stack_trace", "stack")
_LEVELS = ("levelname", "level", "severity", "log.level", "lvl", "level_name")
_TIMES = ("timestamp", "asctime", "time", "@timestamp", "ts", "datetime", "date", "__REALTIME_TIMESTAMP")
_NAMES = ("name", "logger", "logger_name", "log.logger")
_FILES = ("filename", "file", "pathname", "caller")
# Who wraps a record in another: Google Cloud, loguru, tracing in Rust.
_INNER = ("jsonPayload", "record", "fields")
_NOBODY = frozenset({"MainProcess"})

# Strings and whole numbers with their keys, from a record that was cut off.
_PAIR = re.compile(r'"([\w.@-]{1,40})"\s*:\s*(?:"((?:[^"\\]|\\.)*+)|(\d{1,18}))')
_HALF_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z")
_CUT_FROM = 1000


@dataclass(frozen=True, slots=True)
class Said:
    """What a record says. `logged` is False for one that only carries a stream's line; `source` is never None else."""

    text: str
    logged: bool
    level: str | None = None
    source: str | None = None
    time: str | None = None
    process: str | None = None
    pid: int | None = None


def read(body: str) -> Said | None:
    """Read a record.

    Args:
        body: a line's rest that begins with a brace; a long one may have been cut off.

    Returns:
        What it says, the traceback after the message. None for anything else in JSON: a record has a text and, beside
        it, a level, a time or a stream, which no answer to a request has.
    """
    fields = _fields(body)
    if fields is None:
        return None
    key, text = next(((key, fields[key]) for key in _TEXTS if isinstance(fields.get(key), str)), ("", ""))
    level, time = _first(fields, _LEVELS), _first(fields, _TIMES)
    if not key or not (level or time or "stream" in fields):
        return None
    if key in _CARRIED:
        return Said(text, logged=False, time=time)
    source = _source(fields)
    return Said(
        "\n".join([text, *_traces(fields)]),
        logged=source is not None or level is not None,
        level=level,
        source=source or "json",
        time=time,
        process=_process(fields),
        pid=next((value for key in ("pid", "process", "process_id") if _counts(value := fields.get(key))), None),
    )


def _fields(body: str) -> dict[str, Any] | None:
    if not body.startswith('{"'):
        return None
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return dict(_cut(body)) if len(body) > _CUT_FROM else None
    for key in _INNER:
        if isinstance(inner := fields.get(key), dict):
            fields = inner | {name: value for name, value in fields.items() if name != key}
    return dict(fields)


def _cut(body: str) -> Iterator[tuple[str, Any]]:
    seen: set[str] = set()
    for pair in _PAIR.finditer(body):
        if pair[1] in seen:
            continue
        seen.add(pair[1])
        yield pair[1], int(pair[3]) if pair[3] else _unescaped(pair[2])


def _unescaped(text: str) -> str:
    try:
        return str(json.loads(f'"{_HALF_ESCAPE.sub("", text)}"', strict=False))
    except ValueError:
        return text


def _first(fields: dict[str, Any], keys: tuple[str, ...]) -> str | None:
    return next((word for key in keys if (word := _word(fields.get(key)))), None)


def _word(value: object) -> str | None:
    """A value as a word. loguru's levels, files, processes and times are objects with a name."""
    if isinstance(value, dict):
        return _word(value.get("name") or value.get("repr"))
    if isinstance(value, str):
        return value or None
    return str(value) if _counts(value) or isinstance(value, float) else None


def _counts(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _source(fields: dict[str, Any]) -> str | None:
    file, number = _first(fields, _FILES), _first(fields, ("lineno", "line", "line_number"))
    if file and number:
        return f"{file}:{number}"
    return _first(fields, _NAMES) or file


def _process(fields: dict[str, Any]) -> str | None:
    name = _word(fields.get("processName")) or _word(fields.get("process_name"))
    if name is None and not _counts(process := fields.get("process")):
        name = _word(process)
    return None if name in _NOBODY else name


def _traces(fields: dict[str, Any]) -> Iterator[str]:
    for key in _TRACES:
        value = fields.get(key)
        if isinstance(value, str) and value:
            yield value
        elif isinstance(value, list) and value and all(isinstance(each, str) for each in value):
            yield "\n".join(each.rstrip("\n") for each in value)
