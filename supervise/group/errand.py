"""One hook that runs: its shell, what it writes, its time, and the end of all that it has started."""

from __future__ import annotations

import os
import signal
from collections import Counter

from supervise.group import wire
from supervise.group.enclosure import Enclosure
from supervise.group.ending import Deadlines, Ending, Stage
from supervise.group.hook_log import HookLog
from supervise.group.reaping import Reaper
from supervise.group.spawning import first_choice_of_the_oom_killer
from supervise.host import signals
from supervise.model.process import ProcessId

_SHELL = "/bin/sh"
_PIECE = 64 * 1024
_READS = 16
TERM_S = 2.0
"""After SIGTERM, so long until SIGKILL."""
# A shell's child that has not become its program yet forgets what it is asked.
_ASKED_AT_MOST = 3
_ENDING = Deadlines(grace_s=0.0, term_s=TERM_S, tracker_s=0.2, kill_s=5.0)


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
        self.id: int = request["id"]
        self.began_at = now
        self.status: int | None = None
        self.output: int | None
        self._timeout_s = float(request["timeout_s"])
        self.deadline = now + self._timeout_s
        self._late = self._cut = False
        self._log = log
        self._enclosure = Enclosure.of(reaper, os.getpid(), None)
        self._ending: Ending | None = None
        self._asked: Counter[ProcessId] = Counter()
        self.pid, self.output = _start(request["command"], {**env, **request["env"]}, request["told"].encode())

    def step(self, now: float) -> float | None:
        """Go on; seconds until the next step is due, None when it is over."""
        self.drain()
        if self._ending is None:
            if self.status is None and now < self.deadline:
                return self.deadline - now
            self._late = self.status is None
            self._ending = Ending(self._enclosure, None, _ENDING)
        delay = self._ending.step(now)
        if self._ending.stage is Stage.GROUP:
            self._ask_newcomers(self._ending)
        return delay

    def cut_short(self, now: float) -> None:
        """Its time is over."""
        if now < self.deadline:
            self._cut, self.deadline = True, now

    def kill(self) -> None:
        """Whatever is left of it has no more time."""
        if self._ending is not None:
            self._ending.escalate()

    def _ask_newcomers(self, ending: Ending) -> None:
        """Whoever was born while it is being ended would hear of it only when it is killed."""
        asked = {target for target, _ in ending.sent}
        for member in self._enclosure.living():
            if member.id not in asked and self._asked[member.id] < _ASKED_AT_MOST:
                self._asked[member.id] += 1
                signals.send(member.id, signal.SIGTERM)

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

    @property
    def own_status(self) -> int | None:
        """Its exit status, negative for a signal; None if it did not end by itself."""
        return None if self._late else self.status

    def failure(self) -> str | None:
        """What went wrong, None if nothing did."""
        if self._ending is not None and self._ending.survivors:
            return f"{len(self._ending.survivors)} of its processes cannot be ended"
        if self._late:
            when = "when supervise left" if self._cut else f"after {self._timeout_s:g} s"
            return f"not over {when}, and ended"
        status = self.status or 0
        return f"killed by {signals.name(-status)}" if status < 0 else f"exit status {status}" if status else None


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
