"""`supervise attach`: what a detached supervise has said, and what it says from now on."""

from __future__ import annotations

import os
import signal
import sys
import time

from supervise.attempts.log import Follower
from supervise.attempts.roles import living
from supervise.attempts.store import Run
from supervise.host import signals
from supervise.host.leash import called
from supervise.model.exits import Exit
from supervise.model.process import ProcessId
from supervise.runner.detach import CONSOLE
from supervise.verbs.following import ended, look
from supervise.verbs.output import answering
from supervise.verbs.select import choose, say

_NOT_RUNNING = 3
_LOOK_EVERY_S = 0.2


def attach(name: str | None) -> int:
    """Show the console of a detached run, until it ends, Ctrl-C or Ctrl-\\; nothing that is done here stops it.

    Args:
        name: the run; None for the only one that is live.

    Returns:
        The run's exit status once it has ended, 0 after those keys, 3 if it is not running, 2 if it is not clear which
        run is meant or it was not detached.
    """
    run = choose(name, live_only=False)
    if run is None:
        return Exit.USAGE
    supervisor = living(run.read_state(), "supervisor")
    path = _console(run, supervisor)
    if path is None:
        told = f"its console is where {supervisor} was started" if supervisor else "it is not running"
        hint = f"{called()} status {run.name} --watch, or logs -f"
        say(f"supervise: run {run.name} was not detached, {told}; see {hint}")
        return Exit.USAGE if supervisor else _NOT_RUNNING
    if signal.getsignal(signal.SIGQUIT) is not signal.SIG_IGN:
        signal.signal(signal.SIGQUIT, signal.default_int_handler)
    try:
        with answering():
            _show(path, supervisor)
    except KeyboardInterrupt:
        say(f"supervise: detached again; run {run.name} goes on, {called()} stop {run.name} ends it")
        return Exit.OK
    return _over(run, supervisor)


def _over(run: Run, supervisor: ProcessId | None) -> int:
    if supervisor is None:
        say(f"supervise: run {run.name} is not running; this is what it said last")
        return _NOT_RUNNING
    if signals.alive(supervisor):
        return Exit.OK  # whoever reads has seen enough
    return ended(run, look(run, supervisor), supervisor)


def _show(path: str, supervisor: ProcessId | None) -> None:
    follower = Follower(path)
    try:
        while True:
            gone = supervisor is None or not signals.alive(supervisor)
            while piece := follower.read():
                sys.stdout.buffer.write(piece)
                sys.stdout.buffer.flush()
            if gone:
                return
            time.sleep(_LOOK_EVERY_S)
    finally:
        follower.close()


def _console(run: Run, supervisor: ProcessId | None) -> str | None:
    """Where a supervise says what it says; None if that is no file of ours.

    One that could not be ended by whoever was to replace it has its log where that one has put it.
    """
    path = os.path.join(run.path, CONSOLE)
    if supervisor is None:
        return path if os.path.exists(path) else None
    return next((each for each in (path, f"{path}.1") if _is_console(each, supervisor)), None)


def _is_console(path: str, supervisor: ProcessId) -> bool:
    """Whether that is where it says what it says."""
    try:
        return os.path.samestat(os.stat(path), os.stat(f"/proc/{supervisor.pid}/fd/2"))
    except OSError:
        return False
