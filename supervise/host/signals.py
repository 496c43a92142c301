"""The door to signalling: through a pidfd, after proving that the pid still is the process we mean."""

from __future__ import annotations

import os
import signal
from enum import Enum

from supervise.host import procfs
from supervise.model.process import ProcessId


class Sent(Enum):
    """What became of a signal."""

    DELIVERED = "delivered"
    GONE = "gone"
    REFUSED = "refused"


def send(target: ProcessId, signum: int) -> Sent:
    """Signal exactly this process, never one that inherited its pid.

    The pidfd is opened first and pins whatever has the pid now; if the start ticks then still agree, it is the one
    we mean and cannot change any more (pidfd_open(2), pidfd_send_signal(2)).

    Args:
        target: pid and start ticks.
        signum: the signal; 0 only asks whether it may be signalled.

    Returns:
        DELIVERED, GONE if it has ended, REFUSED if the kernel denies it (another uid), or has no descriptor for us.
    """
    try:
        fd = os.pidfd_open(target.pid)
    except ProcessLookupError:
        return Sent.GONE
    except OSError:
        return Sent.REFUSED
    try:
        if procfs.identify(target.pid) != target:
            return Sent.GONE
        signal.pidfd_send_signal(fd, signum)
    except ProcessLookupError:
        return Sent.GONE
    except OSError:
        return Sent.REFUSED
    finally:
        os.close(fd)
    return Sent.DELIVERED


def alive(target: ProcessId) -> bool:
    """Whether this very process still runs; a zombie does not."""
    process = procfs.read(target.pid, cmdline=False, environ=False)
    return process is not None and process.id == target and not process.gone


def name(signum: int) -> str:
    """The symbolic name of a signal, or its number where it has none (real-time signals)."""
    try:
        return signal.Signals(signum).name
    except ValueError:
        return f"signal {signum}"
