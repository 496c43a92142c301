"""Evidence before the kill: looks at a group that is to be ended for a fault of its own, while it still can be seen."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from supervise.group.members import title
from supervise.text import plural

if TYPE_CHECKING:
    from supervise.attempts.store import Attempt
    from supervise.evidence import Captured
    from supervise.model.process import Process
    from supervise.report.console import Console

# A little more than evidence allows itself: a thread that hangs in the kernel must not hold the stop path.
_PATIENCE_S = 10.0
# How long a Python with a few hundred threads takes to print their stacks.
_DUMP_S = 1.5


class Witness:
    """Takes evidence of one attempt, at most twice: before the first signal, and before SIGKILL.

    Args:
        attempt: whose; the evidence goes into its directory.
        members: reads who belongs to the group.
        console: where people read.
        in_thread: runs what blocks.
    """

    def __init__(
        self,
        attempt: Attempt,
        members: Callable[[], Sequence[Process]],
        console: Console,
        in_thread: Callable[..., Awaitable[Any]],
    ) -> None:
        self.directory = os.path.join(attempt.path, "evidence")
        self._members, self._console, self._in_thread = members, console, in_thread

    async def before_stop(self) -> None:
        """Look at all members before anything touches them."""
        await self._capture("before-stop")

    async def before_kill(self) -> None:
        """Look at those that did not obey, and have them print the stacks that could not be read from outside."""
        from supervise.evidence import ask_for_stacks

        captured = await self._capture("before-kill")
        if captured is not None and captured.without:
            asked = await self._in_thread(ask_for_stacks, captured.without)
            if asked:
                self._console.note(f"SIGABRT to {plural(len(asked), 'process')}: their stacks go into the log")
                await asyncio.sleep(_DUMP_S)

    async def _capture(self, name: str) -> Captured | None:
        from supervise.evidence import capture

        def look() -> Captured:
            return capture(self._members(), self.directory, name, title=title)

        try:
            captured: Captured = await asyncio.wait_for(self._in_thread(look), _PATIENCE_S)
        except TimeoutError:
            self._console.note("evidence: gave up waiting for it")
            return None
        if captured.files:
            stacks = plural(len(captured.with_stacks), "stack")
            self._console.line("evidence", f"{plural(len(captured.files), 'file')}, {stacks}, in {self.directory}")
        return captured
