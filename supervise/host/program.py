"""The door to other programs that are asked something: what they print, within a time."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from supervise.host import procfs, signals

_GONE_WITHIN_S = 1.0


class Finished(NamedTuple):
    """What a program printed, on both streams, and its exit status.

    The status is 0 as well where somebody else has reaped it: a supervise reaps all its children.
    """

    printed: str
    complaint: str
    status: int


def ask(
    command: Sequence[str], timeout_s: float, *, env: Mapping[str, str] | None = None, cwd: str | None = None
) -> Finished:
    """Run a program that is to print something and end.

    Args:
        command: its arguments, the program first.
        timeout_s: how long it may take, in seconds.
        env: its environment; ours by default.
        cwd: its directory; ours by default.

    Raises:
        OSError: it cannot be started.
        TimeoutError: it took longer. It has been killed.
    """
    started = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=None if env is None else dict(env),
        cwd=cwd,
    )
    try:
        printed, complaint = started.communicate(timeout=max(0.0, timeout_s))
    except subprocess.TimeoutExpired:
        raise TimeoutError from None
    finally:
        _end(started)
    # Not by Popen: that makes `\n` of a `\r\n`, which then nobody gets back.
    return Finished(_text(printed), _text(complaint), started.returncode or 0)


def _text(printed: bytes) -> str:
    return printed.decode("utf-8", "surrogateescape")


def _end(started: subprocess.Popen[bytes]) -> None:
    """Have it gone, whatever came of it; one that is stuck in the kernel is not waited for any longer."""
    if started.poll() is None:
        target = procfs.identify(started.pid)
        if target is not None:
            signals.send(target, signal.SIGKILL)
        try:
            started.wait(_GONE_WITHIN_S)
        except subprocess.TimeoutExpired:
            pass
    for stream in (started.stdout, started.stderr):
        if stream is not None:
            stream.close()
