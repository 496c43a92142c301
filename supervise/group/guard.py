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
import stat
import sys
import time
from typing import Any

from supervise.group import signalling, wire
from supervise.group.enclosure import Enclosure
from supervise.group.ending import Deadlines, Ending
from supervise.group.keeper import Keeper
from supervise.group.leftovers import Leftovers
from supervise.group.reaping import Reaper
from supervise.host import files, kernel, procfs
from supervise.model.litter import FileId
from supervise.model.process import ProcessId


class Guard:
    """Waits for the end of the keeper, and ends in its place what it left, should it have been killed.

    Args:
        keeper: pid of our child.
        hold: the request that the keeper began with.
    """

    def __init__(self, keeper: int, hold: wire.Message) -> None:
        self._keeper: int | None = keeper
        self._reaper = Reaper(self._on_end)
        self._enclosure = Enclosure.of(self._reaper, os.getpid(), hold["leaf"])
        self._ending: Ending | None = None
        self._record: str | None = hold["record"]

    def run(self) -> None:
        """Until nobody is left below us, or survivors have been given up."""
        wakeup = signalling.wake_on((signal.SIGCHLD,))
        for signum in signalling.STOPPING:
            signal.signal(signum, signal.SIG_IGN)
        while not self._reaper.reap() and self._keeper is not None:
            _wait(wakeup, None)
        if self._ending is not None:
            while (delay := self._ending.step(time.monotonic())) is not None:
                _wait(wakeup, delay)
            if not self._ending.survivors:
                _remove_leftovers(self._record)
        self._enclosure.remove()

    def _on_end(self, pid: int, status: int) -> None:
        if pid == self._keeper:
            self._keeper = None
            if status:
                self._ending = Ending(self._enclosure, None, Deadlines.for_stale())


def _wait(wakeup: int, delay: float | None) -> None:
    if select.select([wakeup], [], [], delay)[0]:
        os.read(wakeup, 256)


def _remove_leftovers(record: str | None) -> None:
    """Remove what the attempt that we guarded has written down as its own; the next start removes what we cannot."""
    told = files.read_json(record) if record else None
    if told is None or not _is_sound(told) or ProcessId(**told["guard"]) != procfs.self_id():
        return
    leftovers = Leftovers(frozenset(), told["runtime_dir"], told["id"])
    leftovers.recall(FileId(*file) for file in told["segments"])
    leftovers.remove()


def _is_sound(told: dict[str, Any]) -> bool:
    """Whether what we read of it is as we write it: anybody may have edited the file, or a disk lost half of it."""
    guard, segments = told.get("guard"), told.get("segments")
    return (
        isinstance(guard, dict)
        and guard.keys() == set(ProcessId._fields)
        and isinstance(told.get("id"), str)
        and isinstance(told.get("runtime_dir"), str | None)
        and isinstance(segments, list)
        and all(isinstance(file, list) and len(file) == 2 and {*map(type, file)} == {int} for file in segments)
    )


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
    if log is None:
        return
    try:
        # Whoever opens a pipe for writing waits for its reader.
        fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError:
        return
    if stat.S_ISREG(os.fstat(fd).st_mode):
        os.dup2(fd, 1)
        os.dup2(fd, 2)
    os.close(fd)
