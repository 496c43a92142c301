"""Messages between supervise and its keeper: one JSON object per line over a socketpair.

Requests: hold, spawn, stop, escalate, note. Events: spawned, failed, leader, stage, segments, ended.
JSON with ASCII escapes carries arguments that are not valid UTF-8 unchanged (PEP 383 surrogates).
"""

from __future__ import annotations

import json
from typing import Any

_LONGEST = 64 * 1024 * 1024

Message = dict[str, Any]


class Splitter:
    """Cuts a byte stream into messages."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Message]:
        """Add bytes, get every message they complete.

        Raises:
            ValueError: this is not our protocol.
        """
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST:
            raise ValueError("a message without an end")
        return [json.loads(line) for line in lines if line]


def encode(message: Message) -> bytes:
    """One message as one line."""
    return json.dumps(message, ensure_ascii=True).encode("ascii") + b"\n"
