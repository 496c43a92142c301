"""Messages between supervise and its keeper: one JSON object per line over a socketpair.

Requests: hold (the first), spawn, stop, proceed, escalate, note, signal, suspend, resume.
Events: hello (the first), refused, spawned, failed, leader, stage, noted, suspended, ended.
JSON with ASCII escapes carries arguments that are not valid UTF-8 unchanged (PEP 383 surrogates).
"""

from __future__ import annotations

import json
import os
import socket
from typing import Any

_LONGEST = 64 * 1024 * 1024
_CHUNK = 256 * 1024
_MOST_FDS = 8

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


def receive(channel: socket.socket) -> tuple[bytes, list[int]]:
    """What has come, and the descriptors with it, which no child of ours inherits. Empty: the other end is gone.

    Raises:
        BlockingIOError: nothing has come.
    """
    try:
        data, fds, *_ = socket.recv_fds(channel, _CHUNK, _MOST_FDS)
    except BlockingIOError:
        raise
    except OSError:
        return b"", []
    for fd in fds:
        os.set_inheritable(fd, False)
    return data, fds
