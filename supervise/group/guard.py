"""The guard: the keeper's parent and understudy, for the case that supervise and keeper are killed in the same instant.

Supervise, guard and keeper are child subreapers one below the other. Whichever two of them are killed together, the
third has the group below itself and ends it. While one of the other two lives the guard does nothing but reap, and once
the keeper has come to the end of its work nothing is left to guard: who then still lives has been given up and named.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time

from supervise.group import signalling, wire
from supervise.group.enclosure import Enclosure
from supervise.group.ending import Deadlines, Ending
from supervise.group.keeper import Keeper
from supervise.host import kernel, signals
from supervise.model.process import ProcessId

_DEADLINES = Deadlines.for_stale()


class Guard:
    """Waits for the end of the keeper, and for more only if supervise has ended too.

    Args:
        keeper: pid of our child.
        hold: the request that the keeper began with.
    """

    def __init__(self, keeper: int, hold: wire.Message) -> None:
        self._keeper: int | None = keeper
        self._supervisor = ProcessId(*hold["supervisor"])
        self._enclosure = Enclosure(os.getpid(), hold["leaf"])
        self._ending: Ending | None = None
        self._keeper_finished = False

    def run(self) -> None:
        """Until nobody is left below us, or survivors have been given up, by the keeper or by us."""
        wakeup = signalling.wake_on((signal.SIGCHLD,))
        for signum in signalling.STOPPING:
            signal.signal(signum, signal.SIG_IGN)
        poller = select.poll()
        poller.register(wakeup, select.POLLIN)
        try:
            # Readable once it has ended (pidfd_open(2)). Should the pid be another's by now, we wake up once in vain.
            poller.register(os.pidfd_open(self._supervisor.pid), select.POLLIN)
        except OSError:
            pass
        while not self._reap() and not self._keeper_finished:
            delay = self._step()
            if self._ending is not None and self._ending.over:
                break
            for fd, _ in poller.poll(None if delay is None else delay * 1000):
                if fd == wakeup:
                    os.read(wakeup, 256)
                else:
                    poller.unregister(fd)
        self._enclosure.remove()

    def _step(self) -> float | None:
        if self._keeper is not None or (self._ending is None and signals.alive(self._supervisor)):
            return None
        if self._ending is None:
            self._ending = Ending(
                self._enclosure.living, None, _DEADLINES, empty=self._empty, strike=self._enclosure.strike
            )
        return self._ending.step(time.monotonic())

    def _empty(self) -> bool:
        return self._reap() and not self._enclosure.populated()

    def _reap(self) -> bool:
        """Reap all that has ended; True if nobody is left below us."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                return False
            if pid == self._keeper:
                self._keeper, self._keeper_finished = None, status == 0


def main() -> None:
    """Entry point: `python -I -S -c … FD`, the descriptor of the keeper's end of the socketpair.

    The keeper is forked once it is known what it is to hold: the descriptors that came with it, the run's lock among
    them, are then held by both.
    """
    descriptor = int(sys.argv[-1])
    os.set_inheritable(descriptor, False)
    channel = socket.socket(fileno=descriptor)
    kernel.set_comm("supervise-guard")
    kernel.become_subreaper()
    splitter = wire.Splitter()
    requests = _first_requests(channel, splitter)
    if not requests:
        return
    hold, *more = requests
    _speak_into(hold["log"])
    keeper = os.fork()
    if keeper == 0:
        os.setsid()
        kernel.set_comm("supervise-keep")
        kernel.become_subreaper()
        channel.setblocking(False)
        Keeper(channel, hold, splitter).run(more)
        return
    # The end of the keeper must be the end of the channel.
    channel.close()
    Guard(keeper, hold).run()


def _first_requests(channel: socket.socket, splitter: wire.Splitter) -> list[wire.Message]:
    """Wait for what is to be held, and what came with it; nothing if supervise is gone without it."""
    while data := wire.receive(channel)[0]:
        if requests := splitter.feed(data):
            return requests
    return []


def _speak_into(log: str | None) -> None:
    """Last words go into a file of the run: the caller's standard error may be a pipe that somebody waits on."""
    if log is not None:
        fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.dup2(fd, 1)
        os.dup2(fd, 2)
        os.close(fd)
