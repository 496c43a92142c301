"""The watchdog of the service manager: it is told that our loop turns, by nobody but that loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from supervise.model.news import News
    from supervise.report.notify import Notify


class Heartbeat:
    """Tells the watchdog that our loop turns, and nobody but that loop does: one that is blocked misses its time.

    Begins with the first news, which is told by the loop.

    Args:
        notify: the manager's socket.
        every_s: seconds between two beats.
    """

    def __init__(self, notify: Notify, every_s: float) -> None:
        self._notify, self._every_s = notify, every_s
        self._next: asyncio.TimerHandle | None = None

    @classmethod
    def from_environment(cls, env: Mapping[str, str], notify: Notify) -> Self | None:
        """One that is as fast as sd_watchdog_enabled(3) asks for: twice within the time; None if nobody waits for it.

        Args:
            env: our environment; WATCHDOG_PID says whom WATCHDOG_USEC is meant for.
            notify: the manager's socket.
        """
        within, whom = env.get("WATCHDOG_USEC", ""), env.get("WATCHDOG_PID")
        if not (within.isascii() and within.isdecimal() and int(within)):
            return None
        if whom is not None and whom != str(os.getpid()):
            return None
        return cls(notify, int(within) / 2e6)

    def hear(self, news: News) -> None:
        """Whatever happens, it is the loop's own turn that counts."""
        del news
        if self._next is None:
            self._beat()

    def close(self) -> None:
        """The loop ends."""
        if self._next is not None:
            self._next.cancel()

    def _beat(self) -> None:
        self._notify.send(WATCHDOG=1)
        self._next = asyncio.get_running_loop().call_later(self._every_s, self._beat)
