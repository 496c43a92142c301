"""Lines for systemd's journal: the same as anywhere, each with its priority in front (sd-daemon(3))."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TextIO

from supervise.report.console import Console

_ERROR, _WARNING, _NOTICE, _INFO = 3, 4, 5, 6
_PRIORITIES = {
    "fatal": _ERROR,
    "exited": _ERROR,
    "cause": _ERROR,
    "NOT CLEAN": _ERROR,
    "?": _WARNING,
    "stalled": _WARNING,
    "hung": _ERROR,
    "warning": _WARNING,
    "restart": _WARNING,
    "ready": _NOTICE,
}
_MARKED = {"BLOCKED": _ERROR, "REFUSED": _ERROR, "warning": _WARNING, "not clean": _ERROR}


class Journal(Console):
    """Plain lines with `<N>`. A further line of the same subject has the priority of its first one."""

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(stream)
        self._priority = _INFO

    def line(self, label: str, text: str) -> None:
        """One line."""
        if label:
            self._priority = _PRIORITIES.get(label, _INFO)
        super().line(label, text)

    def note(self, text: str) -> None:
        """A further line, which may be worse than the first."""
        before = self._priority
        self._priority = next((worse for word, worse in _MARKED.items() if text.startswith(word)), before)
        super().note(text)
        if not text.startswith("BLOCKED"):
            self._priority = before

    def _write(self, text: str) -> None:
        super()._write(f"<{self._priority}>{text}")


def is_journal(stream: TextIO, env: Mapping[str, str]) -> bool:
    """Whether a stream goes to the journal: JOURNAL_STREAM names its device and inode (systemd.exec(5)).

    That the variable is there proves nothing: whoever was started by a service has it, wherever its output goes.
    """
    device, _, inode = env.get("JOURNAL_STREAM", "").partition(":")
    if not (device.isdecimal() and inode.isdecimal()):
        return False
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return (found.st_dev, found.st_ino) == (int(device), int(inode))
