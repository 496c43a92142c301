"""Signals as bytes on a pipe: handlers themselves do nothing, and the loop that polls the pipe decides."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def wake_on(wanted: Iterable[signal.Signals]) -> int:
    """A pipe that carries the numbers of the signals we get.

    Args:
        wanted: which signals to hear of instead of what they do by default.

    Returns:
        Its reading end, non-blocking.
    """
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for signum in wanted:
        signal.signal(signum, _ignore)
    return reader


def _ignore(_signum: int, _frame: FrameType | None) -> None:
    """The wake-up pipe has it."""
