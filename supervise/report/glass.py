"""A terminal that is written to without ever waiting for whoever reads it."""

from __future__ import annotations

import select
import time
from contextlib import ExitStack

from supervise.host import tty
from supervise.report.letters import encoded

# What a reader gets who has stopped the terminal (Ctrl-S) for a while; what is said beyond that is lost.
_MOST = 256 * 1024
_PATIENCE_S = 0.2
# The last lines are the ones that matter; whoever has stopped the terminal by then is waited for so long.
_LAST_PATIENCE_S = 1.0
_FAREWELL_S = 2.0


class Glass:
    """What is written to it arrives in order, whole or not at all, once the terminal takes it.

    Args:
        fd: a non-blocking description of the terminal.
        owned: what is closed with it.
        encoding: what is written in.
    """

    def __init__(self, fd: int, owned: ExitStack, encoding: str = "utf-8") -> None:
        self.fd, self.encoding = fd, encoding
        self._owned = owned
        self._waiting = bytearray()
        self._stuck = self._gone = False

    @classmethod
    def of(cls, fd: int, encoding: str = "utf-8") -> Glass | None:
        """Of a terminal, by a description of our own; None where there is none to be had."""
        with ExitStack() as owned:
            ours = tty.never_blocking(fd, owned)
            return None if ours == fd else cls(ours, owned.pop_all(), encoding)

    @property
    def clear(self) -> bool:
        """Whether all has arrived, so that more is worth writing."""
        self._flush()
        return not self._waiting and not self._gone

    def write(self, text: str, *, patient: bool) -> None:
        """Write; `patient` waits a moment for a reader who was there the last time."""
        data = encoded(text, self.encoding)
        if self._gone or len(self._waiting) + len(data) > _MOST:
            return
        self._waiting += data
        self._flush_within(_PATIENCE_S if patient and not self._stuck else 0.0)

    def close(self) -> None:
        """It is over: whoever takes anything at all is given some time for the rest."""
        self._flush_within(_FAREWELL_S, _LAST_PATIENCE_S)
        self._owned.close()

    def _flush_within(self, seconds: float, patience_s: float = _PATIENCE_S) -> None:
        """Wait for room that long at most, and for the next of it no longer than `patience_s`."""
        until = time.monotonic() + seconds
        self._flush()
        while self._waiting and (left_s := until - time.monotonic()) > 0:
            before = len(self._waiting)
            if not tty.ready(self.fd, select.POLLOUT, int(min(left_s, patience_s) * 1000) + 1):
                break
            self._flush()
            if len(self._waiting) == before:
                # poll(2) calls a terminal writable that has too little room for what write(2) makes of a newline.
                time.sleep(min(0.01, left_s))
        self._stuck = bool(self._waiting)

    def _flush(self) -> None:
        try:
            tty.pass_on(self.fd, self._waiting)
        except OSError:  # hung up
            self._gone = True
            self._waiting.clear()
        self._stuck = self._stuck and bool(self._waiting)
