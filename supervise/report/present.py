"""Lines on a terminal on which others of us may write as well: they see that we are there, and draw no view then."""

from __future__ import annotations

from typing import TextIO

from supervise.host.presence import Presence
from supervise.report.console import Console


class Present(Console):
    """Plain lines; from the first one on others of us are told of by `alone`, and they of us."""

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(stream)
        self._presence: Presence | None = None
        self._closed = False

    @property
    def alone(self) -> bool:
        """Whether nobody else of us writes here."""
        return self._enter().alone

    def suspend(self) -> None:
        """Ctrl-Z: until we go on nothing is written."""
        if self._presence is not None:
            self._presence.leave()

    def close(self) -> None:
        """Of what is said after it nobody is told any more."""
        self._closed = True
        if self._presence is not None:
            self._presence.close()

    def _write(self, text: str) -> None:
        first = self._presence is None
        if not self._closed and not self._enter().alone and first:
            # The other one's cursor stands behind its view.
            text = f"\n{text}"
        super()._write(text)

    def _enter(self) -> Presence:
        if self._presence is None:
            try:
                self._presence = Presence(self._stream.fileno())
            except (OSError, ValueError):
                self._presence = Presence(-1)
        self._presence.enter()
        return self._presence
