"""Which signal means what to us. Nothing happens in a handler: each becomes an event, or passes to the server."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Protocol

from supervise import lifecycle as life

_ASKING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_PASSING = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH)


class Passing(Protocol):
    """Takes the signals that are no decision of the lifecycle's."""

    def signal(self, signum: int) -> None:
        """One for the server."""

    def suspend(self) -> None:
        """Ctrl-Z."""


def route(post: Callable[[life.Event], None], passing: Passing, reap: Callable[[], object]) -> Callable[[], None]:
    """Take over our signals.

    Those that ask us to stop and that we inherited as ignored stay ignored: `nohup` means it.

    Args:
        post: takes events.
        passing: takes what means the server.
        reap: called when a child has ended.

    Returns:
        What gives them back.
    """
    io = asyncio.get_running_loop()
    asking = [signum for signum in _ASKING if signal.getsignal(signum) is not signal.SIG_IGN]
    for signum in asking:
        io.add_signal_handler(signum, post, life.StopAsked(signum))
    for signum in _PASSING:
        io.add_signal_handler(signum, passing.signal, signum)
    io.add_signal_handler(signal.SIGTSTP, passing.suspend)
    io.add_signal_handler(signal.SIGCHLD, reap)

    def restore() -> None:
        for signum in (*asking, *_PASSING, signal.SIGTSTP, signal.SIGCHLD):
            io.remove_signal_handler(signum)

    return restore
