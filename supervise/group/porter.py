"""The porter: runs the user's hooks, one after the other, and lets none of them leave anything behind.

A process of its own beside the keeper, a child subreaper too: were hooks children of supervise, they and whatever they
detach would stand among those that must be gone before a group counts as empty. What a hook leaves is ended by the one
stop path as soon as its shell has ended or its time is over, and that `waitpid` says ECHILD is the proof. The porter
ends with supervise: at end of file it ends the hook that runs, and leaves.

Requests: hold (the first), run, finish, hurry. Events: began, over, dropped.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from collections import deque

from supervise.group import signalling, wire
from supervise.group.enclosure import Enclosure
from supervise.group.ending import Deadlines, Ending
from supervise.group.hook_log import HookLog
from supervise.group.reaping import Reaper
from supervise.group.spawning import first_choice_of_the_oom_killer
from supervise.host import kernel
from supervise.host.signals import name as signal_name

_SHELL = "/bin/sh"
_PIECE = 64 * 1024
_READS = 16
# SIGTERM, and so long after it SIGKILL.
_ENDING = Deadlines(grace_s=0.0, term_s=2.0, tracker_s=0.2, kill_s=5.0)


class Errand:
    """One hook that runs.

    Args:
        request: what is to be run.
        env: the environment of all hooks.
        reaper: ours.
        log: takes its output.
        now: monotonic seconds.

    Raises:
        OSError: it could not be started.
    """

    def __init__(self, request: wire.Message, env: dict[str, str], reaper: Reaper, log: HookLog, now: float) -> None:
        self.hook: int = request["hook"]
        self.began_at = now
        self.status: int | None = None
        self.output: int | None
        self._timeout_s = float(request["timeout_s"])
        self.deadline = now + self._timeout_s
        self._late = self._cut = False
        self._log = log
        self._enclosure = Enclosure.of(reaper, os.getpid(), None)
        self._ending: Ending | None = None
        self.pid, self.output = _start(request["command"], {**env, **request["env"]}, request["told"].encode())

    def step(self, now: float) -> float | None:
        """Go on; seconds until the next step is due, None when it is over."""
        self.drain()
        if self._ending is None:
            if self.status is None and now < self.deadline:
                return self.deadline - now
            self._late = self.status is None
            self._ending = Ending(self._enclosure, None, _ENDING)
        return self._ending.step(now)

    def cut_short(self, now: float) -> None:
        """Its time is over."""
        if now < self.deadline:
            self._cut, self.deadline = True, now

    def drain(self) -> None:
        """Take what it has written; one that writes without end must not keep us from everything else."""
        for _ in range(_READS):
            if self.output is None:
                return
            try:
                data = os.read(self.output, _PIECE)
            except BlockingIOError:
                return
            if not data:
                self.close()
            self._log.write(data)

    def close(self) -> None:
        """Hear no more of it."""
        if self.output is not None:
            os.close(self.output)
            self.output = None

    def failure(self) -> str | None:
        """What went wrong, None if nothing did."""
        if self._ending is not None and self._ending.survivors:
            return f"{len(self._ending.survivors)} of its processes cannot be ended"
        if self._late:
            when = "when supervise left" if self._cut else f"after {self._timeout_s:g} s"
            return f"not over {when}, and ended"
        status = self.status or 0
        return f"killed by {signal_name(-status)}" if status < 0 else f"exit status {status}" if status else None


def _start(command: str, env: dict[str, str], told: bytes) -> tuple[int, int]:
    """Pid of its shell, and what reads its output. Its input is a file in memory: nobody waits for it to be read."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    memory = -1
    try:
        memory = os.memfd_create("hook")
        os.write(memory, told)
        os.lseek(memory, 0, os.SEEK_SET)
        os.set_blocking(reader, False)
        with first_choice_of_the_oom_killer():
            pid = os.posix_spawn(
                _SHELL,
                [_SHELL, "-c", command],
                env,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, memory, 0),
                    (os.POSIX_SPAWN_DUP2, writer, 1),
                    (os.POSIX_SPAWN_DUP2, writer, 2),
                ],
                setsid=True,
                setsigmask=[],
                setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
            )
    except OSError:
        os.close(reader)
        raise
    finally:
        os.close(writer)
        if memory >= 0:
            os.close(memory)
    return pid, reader


class Porter:
    """Serves one supervise.

    Args:
        channel: our end of the socketpair with it.
        log: takes what hooks write.
    """

    def __init__(self, channel: socket.socket, log: HookLog) -> None:
        self._channel: socket.socket | None = channel
        self._log = log
        self._splitter = wire.Splitter()
        self._outgoing = b""
        self._env: dict[str, str] = {}
        self._reaper = Reaper(self._on_end)
        self._waiting: deque[wire.Message] = deque()
        self._errand: Errand | None = None
        self._leave_at: float | None = None

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
                left = 0.0 if self._leave_at is None else self._leave_at - now
                return min(delay, left) if left > 0 else delay
            self._over(self._errand, now)

    def _begin(self, request: wire.Message, now: float) -> None:
        self._log.begin(request["title"])
        try:
            self._errand = Errand(request, self._env, self._reaper, self._log, now)
        except OSError as error:
            self._log.end(f"cannot be started: {error.strerror}")
            self._tell({"event": "over", "hook": request["hook"], "failure": f"cannot be started: {error.strerror}"})
            return
        self._tell({"event": "began", "hook": self._errand.hook, "pid": self._errand.pid})

    def _over(self, errand: Errand, now: float) -> None:
        errand.drain()
        errand.close()
        failure = errand.failure()
        self._log.end(f"{failure or 'exit status 0'}, {now - errand.began_at:.2f} s")
        self._errand = None
        self._tell({"event": "over", "hook": errand.hook, "failure": failure})

    def _cut_short(self, now: float) -> None:
        for _ in self._waiting:
            self._tell({"event": "dropped"})
        self._waiting.clear()
        if self._errand is not None:
            self._errand.cut_short(now)

    def _on_end(self, pid: int, status: int) -> None:
        if self._errand is not None and pid == self._errand.pid:
            self._errand.status = os.waitstatus_to_exitcode(status)

    def _wait(self, wakeup: int, delay: float | None) -> None:
        poller = select.poll()
        poller.register(wakeup, select.POLLIN)
        if self._channel is not None:
            poller.register(self._channel, select.POLLIN | (select.POLLOUT if self._outgoing else 0))
        if self._errand is not None and self._errand.output is not None:
            poller.register(self._errand.output, select.POLLIN)
        for fd, _ in poller.poll(None if delay is None else delay * 1000):
            if fd == wakeup:
                os.read(wakeup, 256)
            elif self._channel is not None and fd == self._channel.fileno():
                self._flush()
                self._receive()

    def _receive(self) -> None:
        if self._channel is None:
            return
        try:
            data, _ = wire.receive(self._channel)
        except BlockingIOError:
            return
        if not data:
            self._channel.close()
            self._channel = None
            self._leave_within(0.0)
            return
        for message in self._splitter.feed(data):
            self._obey(message)

    def _obey(self, message: wire.Message) -> None:
        match message["request"]:
            case "hold":
                self._env = message["env"]
            case "run":
                self._waiting.append(message)
            case "finish":
                self._leave_within(message["within_s"])
            case "hurry":
                self._leave_within(0.0)

    def _leave_within(self, within_s: float) -> None:
        leave_at = time.monotonic() + within_s
        self._leave_at = leave_at if self._leave_at is None else min(self._leave_at, leave_at)

    def _tell(self, message: wire.Message) -> None:
        if self._channel is not None:
            self._outgoing += wire.encode(message)
            self._flush()

    def _flush(self) -> None:
        """Send what the peer will take now: a stopped supervise must not hold up a deadline."""
        while self._outgoing and self._channel is not None:
            try:
                sent = self._channel.send(self._outgoing)
            except BlockingIOError:
                return
            except OSError:
                self._outgoing = b""
                return
            self._outgoing = self._outgoing[sent:]


def main() -> None:
    """Entry point: `python -I -S -c … LOG FD`."""
    log, descriptor = sys.argv[-2:]
    os.set_inheritable(int(descriptor), False)
    channel = socket.socket(fileno=int(descriptor))
    channel.setblocking(False)
    kernel.set_comm("supervise-hooks")
    kernel.become_subreaper()
    Porter(channel, HookLog(log)).run()
