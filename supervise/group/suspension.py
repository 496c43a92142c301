"""Ctrl-Z for a group that is in no terminal's foreground: stopped and continued as a whole."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence

from supervise.host import signals
from supervise.model.process import Process, ProcessId

_PASSES = 20


class Suspension:
    """Stops all members; those that were stopped already are left to whoever did it.

    SIGTSTP would be lost on them: the kernel discards it for a process group that no shell of the same session looks
    after (setpgid(2), orphaned process groups). A passing of readings ends it: nobody who is stopped can fork.

    Args:
        members: reads who runs.
    """

    def __init__(self, members: Callable[[], Sequence[Process]]) -> None:
        self.stopped: set[ProcessId] = set()
        for _ in range(_PASSES):
            running = [member for member in members() if member.state not in "Tt" and member.id not in self.stopped]
            if not running:
                break
            for member in running:
                signals.send(member.id, signal.SIGSTOP)
                self.stopped.add(member.id)

    def resume(self) -> None:
        """Continue them."""
        for target in self.stopped:
            signals.send(target, signal.SIGCONT)
