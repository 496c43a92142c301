"""The keeper: contains one server, and outlives supervise just long enough to end it.

A process of its own with one thread, in its own session, a child subreaper: whatever the server forks, detaches or
renames re-parents to here, never to pid 1. It ends the group when supervise says so, when the leader exits, or when
supervise is gone (end of file on the socketpair). That `waitpid` says ECHILD is the proof that nothing is left: any
living descendant would be, or be below, a child of ours.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING

from supervise.group import wire
from supervise.group.ending import Deadlines, Ending, Stage
from supervise.group.leftovers import Leftovers
from supervise.group.members import describe, living_below
from supervise.host import kernel, procfs
from supervise.model.process import Process, ProcessId
from supervise.model.slate import FileId

if TYPE_CHECKING:
    from types import FrameType

_MOST_FDS = 8
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


class Keeper:
    """One server's container.

    Args:
        channel: our end of the socketpair with supervise.
    """

    def __init__(self, channel: socket.socket) -> None:
        self._channel: socket.socket | None = channel
        self._splitter = wire.Splitter()
        self._outgoing = b""
        self._leader: ProcessId | None = None
        self._leader_running = False
        self._deadlines = Deadlines()
        self._leftovers = Leftovers(frozenset())
        self._ending: Ending | None = None
        self._stage: Stage | None = None
        self._started_at = 0.0
        self._childless = True
        self._held: list[int] = []

    def run(self) -> None:
        """Serve one attempt, from the spawn request to the empty group."""
        wakeup = _wake_on_signals()
        while True:
            delay = self._step()
            if self._finished():
                break
            self._wait(wakeup, delay)
            self._reap()
        self._report_end()

    def _finished(self) -> bool:
        if self._ending is not None:
            return self._ending.over
        return self._leader is None and self._channel is None

    def _step(self) -> float | None:
        if self._ending is None:
            return None
        delay = self._ending.step(time.monotonic())
        if self._ending.stage is not self._stage:
            self._stage = self._ending.stage
            self._tell({"event": "stage", "stage": self._stage.name.lower()})
        return delay

    def _wait(self, wakeup: int, delay: float | None) -> None:
        poller = select.poll()
        poller.register(wakeup, select.POLLIN)
        if self._channel is not None:
            poller.register(self._channel, select.POLLIN | (select.POLLOUT if self._outgoing else 0))
        for fd, _ in poller.poll(None if delay is None else delay * 1000):
            if fd == wakeup:
                self._on_signals(os.read(wakeup, 256))
            else:
                self._flush()
                self._receive()

    def _on_signals(self, received: bytes) -> None:
        for signum in received:
            if signum in _SIGNALS:
                self._stop_or_escalate()

    def _receive(self) -> None:
        if self._channel is None:
            return
        try:
            data, fds, *_ = socket.recv_fds(self._channel, 256 * 1024, _MOST_FDS)
            for fd in fds:
                os.set_inheritable(fd, False)
            self._held.extend(fds)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._channel.close()
            self._channel = None
            self._begin_ending()
            return
        for message in self._splitter.feed(data):
            self._obey(message)

    def _obey(self, message: wire.Message) -> None:
        match message["request"]:
            case "hold":
                self._hold(message["log"])
            case "spawn":
                self._spawn(message)
            case "stop":
                self._deadlines = Deadlines(**message["deadlines"])
                self._begin_ending()
            case "escalate":
                self._stop_or_escalate()
            case "note":
                self._note()

    def _hold(self, log: str | None) -> None:
        """Last words go into a file of the run: the caller's standard error may be a pipe that somebody waits on."""
        if log is not None:
            fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.dup2(fd, 1)
            os.dup2(fd, 2)
            os.close(fd)

    def _spawn(self, message: wire.Message) -> None:
        self._deadlines = Deadlines(**message["deadlines"])
        before = frozenset(FileId(*file) for file in message["before"])
        self._leftovers = Leftovers(before, message["runtime_dir"], message["owner"])
        try:
            pid = spawn(message["program"], message["argv"], message["env"], message["log"])
        except OSError as error:
            self._tell({"event": "failed", "errno": error.errno, "error": error.strerror})
            return
        # A child that has already exited stays a zombie until we reap it, so its identity can always be read.
        self._leader = procfs.identify(pid)
        self._leader_running, self._childless = True, False
        self._tell({"event": "spawned", "pid": pid, "ticks": self._leader.ticks if self._leader else 0})

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._childless = True
                return
            if pid == 0:
                return
            if self._leader is not None and pid == self._leader.pid and self._leader_running:
                self._leader_running = False
                self._tell({"event": "leader", "status": os.waitstatus_to_exitcode(status)})
                self._begin_ending()

    def _note(self) -> None:
        if self._leftovers.note(self._members()):
            self._tell({"event": "segments", "files": sorted(self._leftovers.files)})

    def _begin_ending(self) -> None:
        if self._ending is None and self._leader is not None:
            self._started_at = time.monotonic()
            leader = self._leader if self._leader_running else None
            self._leftovers.note(self._members())
            self._ending = Ending(
                self._members, leader, self._deadlines, empty=self._empty, before_kill=self._leftovers.note
            )

    def _stop_or_escalate(self) -> None:
        if self._ending is None:
            self._begin_ending()
        else:
            self._ending.escalate()

    def _empty(self) -> bool:
        self._reap()
        return self._childless

    def _members(self) -> list[Process]:
        return living_below(os.getpid())

    def _report_end(self) -> None:
        if self._ending is None:
            return
        left = self._leftovers.remove()
        self._tell(
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
        if self._channel is not None:
            self._channel.setblocking(True)
            self._channel.settimeout(2.0)
            self._flush()

    def _tell(self, message: wire.Message) -> None:
        if self._channel is not None:
            self._outgoing += wire.encode(message)
            self._flush()

    def _flush(self) -> None:
        """Send what the peer will take now: a stopped supervise must never stop its keeper."""
        while self._outgoing and self._channel is not None:
            try:
                sent = self._channel.send(self._outgoing)
            except (BlockingIOError, TimeoutError):
                return
            except OSError:
                self._outgoing = b""
                return
            self._outgoing = self._outgoing[sent:]


def spawn(program: str, argv: list[str], env: dict[str, str], log: str) -> int:
    """Start the server in its own session, its output going straight into its log file.

    Signals are reset to their defaults and unblocked: under `nohup`, or behind `&` in a script, a server would
    otherwise inherit an ignored SIGHUP or SIGINT for life (VLLM_REAL.md section 5).

    Args:
        program: path of the file to execute.
        argv: argument vector, the first one as the caller wrote it.
        env: complete environment.
        log: path of an existing log file; opened in append mode, so that nothing it holds is overwritten.

    Returns:
        The pid of the server, which leads its session and process group.

    Raises:
        OSError: it could not be executed; the reason is the kernel's.
    """
    output = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    return os.posix_spawn(
        program,
        argv,
        env,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, output, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigmask=[],
        setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
    )


def _wake_on_signals() -> int:
    """A pipe that carries the numbers of the signals we get; handlers themselves do nothing."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for signum in (*_SIGNALS, signal.SIGCHLD):
        signal.signal(signum, _ignore)
    return reader


def _ignore(_signum: int, _frame: FrameType | None) -> None:
    """The wake-up pipe has it."""


def main() -> None:
    """Entry point: `python -I -S -c … FD`, the descriptor of our end of the socketpair; the server does not get it."""
    descriptor = int(sys.argv[-1])
    os.set_inheritable(descriptor, False)
    channel = socket.socket(fileno=descriptor)
    channel.setblocking(False)
    kernel.set_comm("supervise-keep")
    kernel.become_subreaper()
    Keeper(channel).run()
