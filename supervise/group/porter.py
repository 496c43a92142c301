"""The porter: runs the user's hooks, one after the other, and lets none of them leave anything behind.

A process of its own beside the keeper, a child subreaper too: were hooks children of supervise, they and whatever they
detach would stand among those that must be gone before a group counts as empty. What a hook leaves is ended by the one
stop path as soon as its shell has ended or its time is over, and that `waitpid` says ECHILD is the proof. The porter
ends with supervise: at end of file it ends the hook that runs, and leaves.

Requests: hold (the first), run, skip, finish, hurry. Events: began, over, skipped, dropped.
"""

from __future__ import annotations

import math
import os
import select
import signal
import socket
import sys
import time
from collections import deque

from supervise.group import signalling, wire
from supervise.group.errand import TERM_S, Errand
from supervise.group.hook_log import HookLog
from supervise.group.line import Line
from supervise.group.reaping import Reaper
from supervise.host import kernel


class Porter:
    """Serves one supervise.

    Args:
        channel: our end of the socketpair with it.
        log: takes what hooks write.
    """

    def __init__(self, channel: socket.socket, log: HookLog) -> None:
        self._line = Line(channel)
        self._log = log
        self._env: dict[str, str] = {}
        self._reaper = Reaper(self._on_end)
        self._waiting: deque[wire.Message] = deque()
        self._errand: Errand | None = None
        self._leave_at: float | None = None
        self._kill_at = 0.0

    def run(self) -> None:
        """Until supervise is gone or wants us to finish, and nothing runs."""
        wakeup = signalling.wake_on((signal.SIGCHLD,))
        for signum in signalling.STOPPING:
            signal.signal(signum, signal.SIG_IGN)
        while True:
            delay = self._step(time.monotonic())
            if self._leave_at is not None and self._errand is None and not self._waiting:
                return
            self._wait(wakeup, delay)
            self._reaper.reap()

    def _step(self, now: float) -> float | None:
        if self._leave_at is not None and now >= self._leave_at:
            self._cut_short(now)
        while True:
            if self._errand is None:
                if not self._waiting:
                    return None
                self._begin(self._waiting.popleft(), now)
                continue
            if (delay := self._errand.step(now)) is not None:
                return min(delay, *self._due(now))
            self._over(self._errand, now)

    def _due(self, now: float) -> tuple[float, ...]:
        """Seconds until our own deadlines that are still to come."""
        if self._leave_at is None:
            return (math.inf,)
        return math.inf, *(at - now for at in (self._leave_at, self._kill_at) if at > now)

    def _begin(self, request: wire.Message, now: float) -> None:
        self._log.begin(request["title"])
        try:
            self._errand = Errand(request, self._env, self._reaper, self._log, now)
        except OSError as error:
            self._log.end(f"cannot be started: {error.strerror}")
            self._line.tell({"event": "over", "id": request["id"], "failure": f"cannot be started: {error.strerror}"})
            return
        self._line.tell({"event": "began", "id": self._errand.id, "pid": self._errand.pid})

    def _over(self, errand: Errand, now: float) -> None:
        errand.drain()
        errand.close()
        failure = errand.failure()
        self._log.end(f"{failure or 'exit status 0'}, {now - errand.began_at:.2f} s")
        self._errand = None
        self._line.tell({"event": "over", "id": errand.id, "failure": failure, "status": errand.own_status})

    def _cut_short(self, now: float) -> None:
        self._drop("dropped")
        if self._errand is not None:
            self._errand.cut_short(now)
            if now >= self._kill_at:
                self._errand.kill()

    def _drop(self, event: str) -> None:
        if self._waiting:
            self._line.tell({"event": event, "ids": [request["id"] for request in self._waiting]})
        self._waiting.clear()

    def _on_end(self, pid: int, status: int) -> None:
        if self._errand is not None and pid == self._errand.pid:
            self._errand.status = os.waitstatus_to_exitcode(status)

    def _wait(self, wakeup: int, delay: float | None) -> None:
        poller = select.poll()
        poller.register(wakeup, select.POLLIN)
        self._line.register(poller)
        if self._errand is not None and self._errand.output is not None:
            poller.register(self._errand.output, select.POLLIN)
        for fd, _ in poller.poll(None if delay is None else delay * 1000):
            if fd == wakeup:
                os.read(wakeup, 256)
            elif fd in self._line.fds():
                self._line.flush()
                self._receive()

    def _receive(self) -> None:
        messages = self._line.messages()
        if messages is None:
            self._leave_within(0.0, TERM_S)
            return
        for message in messages:
            self._obey(message)

    def _obey(self, message: wire.Message) -> None:
        match message["request"]:
            case "hold":
                self._env = message["env"]
            case "run":
                self._waiting.append(message)
            case "skip":
                self._drop("skipped")
            case "finish":
                self._leave_within(message["within_s"], message["term_s"])
            case "hurry":
                self._leave_within(0.0, TERM_S)

    def _leave_within(self, within_s: float, term_s: float) -> None:
        """SIGTERM then, SIGKILL so much later; nothing that is said afterwards makes it later."""
        leave_at = time.monotonic() + within_s
        kill_at = leave_at + term_s
        if self._leave_at is not None:
            leave_at, kill_at = min(self._leave_at, leave_at), min(self._kill_at, kill_at)
        self._leave_at, self._kill_at = leave_at, kill_at


def main() -> None:
    """Entry point: `python -I -S -c … LOG FD`."""
    log, descriptor = sys.argv[-2:]
    os.set_inheritable(int(descriptor), False)
    channel = socket.socket(fileno=int(descriptor))
    channel.setblocking(False)
    kernel.set_comm("supervise-hooks")
    kernel.become_subreaper()
    Porter(channel, HookLog(log)).run()
