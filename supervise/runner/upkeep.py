"""A look at ourselves now and then: are our records still there, are those who hold the group awake."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from supervise.host import procfs
from supervise.lifecycle import Ready, Starting, State, Sweeping
from supervise.text import duration

if TYPE_CHECKING:
    from supervise.model.process import ProcessId
    from supervise.report.console import Console
    from supervise.runner.journal import Journal

# What the stop path and the look at its end need at most, with evidence.
_RESERVED = 24


class Upkeep:
    """Belongs to one attempt; says each thing once, and ends nothing.

    As long as its server runs some descriptors are held in reserve: at a limit (RLIMIT_NOFILE) its end cannot wait.

    Args:
        journal: keeps the records.
        helpers: keeper and guard of the group, by what people call them.
        console: where people read.
    """

    def __init__(self, journal: Journal, helpers: dict[str, ProcessId], console: Console) -> None:
        self._journal, self._helpers, self._console = journal, helpers, console
        self._stopped: set[str] = set()
        self._reserve = _reserve()

    def look(self) -> None:
        """See whether all is as it should be."""
        try:
            self._journal.look()
            for name, helper in self._helpers.items():
                self._look_at(name, helper)
        except OSError as error:
            self._journal.blind(error)

    def entered(self, state: State) -> None:
        """A new state: once the end begins, it may use what was reserved for it."""
        if not isinstance(state, Sweeping | Starting | Ready):
            self.release()

    def release(self) -> None:
        """Let go of what was reserved."""
        while self._reserve:
            os.close(self._reserve.pop())

    def stood_still(self, seconds: float) -> None:
        """Our own loop had no turn for so long: we were stopped, or the machine was too busy."""
        told = f"supervise itself stood still for {duration(seconds)}; the server ran on"
        self._console.line("note", f"{told}, and no deadline has counted that time")

    def _look_at(self, name: str, helper: ProcessId) -> None:
        process = procfs.read(helper.pid, cmdline=False, environ=False)
        if process is None or process.id != helper or process.state not in "Tt":
            self._stopped.discard(name)
        elif name not in self._stopped:
            self._stopped.add(name)
            self._console.error(f"the {name} is stopped (kill -CONT {helper.pid}); the server runs on")
            self._console.note("a stop continues it first")


def _reserve() -> list[int]:
    held = []
    try:
        held.append(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC))
        held += [os.dup(held[0]) for _ in range(_RESERVED - 1)]
    except OSError:
        pass
    return held
