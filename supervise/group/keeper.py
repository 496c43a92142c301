"""The keeper: contains one server, and outlives supervise just long enough to end it.

A process of its own with one thread, in its own session, a child subreaper: whatever the server forks, detaches or
re-parents lands here and not at pid 1. It ends the group when supervise says so, when the leader exits, or when
supervise is gone (end of file on the socketpair). That `waitpid` says ECHILD is the proof that nothing is left: any
living descendant would be, or be below, a child of ours.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from collections.abc import Iterable

from supervise.group import signalling, wire
from supervise.group.enclosure import Enclosure
from supervise.group.ending import Deadlines, Ending, Stage
from supervise.group.leftovers import Leftovers
from supervise.group.line import Line
from supervise.group.members import describe
from supervise.group.pidns import Namespace
from supervise.group.reaping import Reaper
from supervise.group.spawning import Birthplace, spawn
from supervise.group.suspension import Suspension
from supervise.host import procfs, signals
from supervise.model.litter import FileId
from supervise.model.process import ProcessId

# How long a supervise that is stopped may keep its keeper from leaving.
_LAST_WORDS_S = 2.0


class Keeper:
    """One server's container.

    Args:
        channel: our end of the socketpair with supervise.
        hold: the first request, with what is to be known before the launch.
        splitter: holds what came behind it.
    """

    def __init__(self, channel: socket.socket, hold: wire.Message, splitter: wire.Splitter) -> None:
        self._line = Line(channel, splitter)
        self._birthplace = Birthplace(hold["leaf"])
        self._reaper = Reaper(self._on_end)
        self._enclosure = Enclosure.of(self._reaper, os.getpid(), self._birthplace.leaf)
        self._namespace: Namespace | None = None
        self._leader: ProcessId | None = None
        self._leader_running = False
        self._deadlines = Deadlines()
        self._leftovers = Leftovers(frozenset())
        self._ending: Ending | None = None
        self._stage: Stage | None = None
        self._suspension: Suspension | None = None
        self._started_at = 0.0
        self._line.tell({"event": "hello", **procfs.self_id()._asdict()})
        if self._birthplace.refused:
            self._line.tell({"event": "refused", "tier": "cgroup", "why": self._birthplace.refused})

    def run(self, requests: Iterable[wire.Message]) -> None:
        """Serve one attempt, from the spawn request to the empty group.

        Args:
            requests: what has come already.
        """
        wakeup = signalling.wake_on((*signalling.STOPPING, signal.SIGCHLD))
        for request in requests:
            self._obey(request)
        while True:
            delay = self._step()
            if self._finished():
                break
            self._wait(wakeup, delay)
            self._reaper.reap()
        self._report_end()

    def _finished(self) -> bool:
        if self._ending is not None:
            return self._ending.over
        return self._leader is None and not self._line.is_open

    def _step(self) -> float | None:
        if self._ending is None:
            return None
        delay = self._ending.step(time.monotonic())
        if self._ending.stage is not self._stage:
            self._stage = self._ending.stage
            self._line.tell({"event": "stage", "stage": self._stage.name.lower()})
        return delay

    def _wait(self, wakeup: int, delay: float | None) -> None:
        poller = select.poll()
        poller.register(wakeup, select.POLLIN)
        self._line.register(poller)
        if self._namespace is not None and self._leader_running:
            poller.register(self._namespace.reports, select.POLLIN)
        for fd, _ in poller.poll(None if delay is None else delay * 1000):
            if fd == wakeup:
                self._on_signals(os.read(wakeup, 256))
            elif self._namespace is not None and fd == self._namespace.reports:
                self._leader_ended(self._namespace.status())
            else:
                self._line.flush()
                self._receive()

    def _on_signals(self, received: bytes) -> None:
        for signum in received:
            if signum in signalling.STOPPING:
                self._stop_or_escalate()

    def _receive(self) -> None:
        messages = self._line.messages()
        if messages is None:
            self._begin_ending()
            return
        for message in messages:
            self._obey(message)

    def _obey(self, message: wire.Message) -> None:
        match message["request"]:
            case "spawn":
                self._spawn(message)
            case "stop":
                self._deadlines = Deadlines(**message["deadlines"])
                self._begin_ending()
            case "proceed":
                self._proceed()
            case "escalate":
                self._stop_or_escalate()
            case "note":
                self._note()
            case "signal":
                self._pass_on(message["signum"])
            case "suspend":
                self._suspend()
            case "resume":
                self._resume()

    def _proceed(self) -> None:
        if self._ending is not None:
            self._ending.proceed()

    def _pass_on(self, signum: int) -> None:
        if self._leader is not None and self._leader_running:
            signals.send(self._leader, signum)

    def _suspend(self) -> None:
        if self._suspension is None:
            self._suspension = Suspension(self._enclosure.living)
        self._line.tell({"event": "suspended", "members": len(self._suspension.stopped)})

    def _resume(self) -> None:
        if self._suspension is not None:
            self._suspension.resume()
            self._suspension = None

    def _spawn(self, message: wire.Message) -> None:
        self._deadlines = Deadlines(**message["deadlines"])
        before = frozenset(FileId(*file) for file in message["before"])
        self._leftovers = Leftovers(before, message["runtime_dir"], message["owner"])
        try:
            self._leader = self._launch(message)
        except OSError as error:
            self._line.tell({"event": "failed", "errno": error.errno, "error": error.strerror})
            return
        finally:
            self._leave_birthplace()
        self._leader_running = True
        self._line.tell({"event": "spawned", **self._leader._asdict()})

    def _launch(self, message: wire.Message) -> ProcessId:
        def start() -> int:
            return spawn(message["program"], message["argv"], message["env"], message["log"], message["terminal"])

        if not message["pidns"]:
            pid = start()
            # A child that has already exited stays a zombie until we reap it, so its identity can always be read.
            return procfs.identify(pid) or ProcessId(pid, 0)
        self._namespace = Namespace(start, release=self._line.fds())
        self._enclosure.last = frozenset({self._namespace.init})
        return self._namespace.leader

    def _leave_birthplace(self) -> None:
        try:
            self._birthplace.leave()
        except OSError as error:
            # From now on killing the leaf would be killing ourselves.
            self._enclosure.leaf = None
            self._line.tell({"event": "refused", "tier": "cgroup", "why": f"cannot leave it: {error.strerror}"})

    def _on_end(self, pid: int, status: int) -> None:
        if self._namespace is not None and pid == self._namespace.init.pid:
            self._leader_ended(self._namespace.status())
        elif self._leader is not None and pid == self._leader.pid:
            self._leader_ended(os.waitstatus_to_exitcode(status))

    def _leader_ended(self, status: int | None) -> None:
        """It has ended, how is known unless the init that saw it was killed with it."""
        if self._leader_running:
            self._leader_running = False
            self._line.tell({"event": "leader", "status": -signal.SIGKILL if status is None else status})
            self._begin_ending()

    def _note(self) -> None:
        members = self._enclosure.living()
        if self._leftovers.note(members):
            ids = [member.id for member in members if member.id not in self._enclosure.last]
            self._line.tell({"event": "noted", "files": sorted(self._leftovers.files), "members": ids})

    def _begin_ending(self) -> None:
        if self._ending is None and self._leader is not None:
            self._started_at = time.monotonic()
            leader = self._leader if self._leader_running else None
            self._leftovers.note(self._enclosure.living())
            deadlines = self._deadlines if self._line.is_open else self._deadlines.unattended()
            self._ending = Ending(self._enclosure, leader, deadlines, before_kill=self._leftovers.note)

    def _stop_or_escalate(self) -> None:
        if self._ending is None:
            self._begin_ending()
        else:
            self._ending.escalate()

    def _report_end(self) -> None:
        if self._ending is None:
            return
        self._enclosure.remove()
        left = self._leftovers.remove()
        self._line.tell(
            {
                "event": "ended",
                "survivors": [describe(process) for process in self._ending.survivors],
                "sent": [[target.pid, signum] for target, signum in self._ending.sent],
                "pids": sorted(self._leftovers.pids),
                "seconds": time.monotonic() - self._started_at,
                "removed": left.removed,
                "left": left.remaining,
            }
        )
        self._line.flush_within(_LAST_WORDS_S)
