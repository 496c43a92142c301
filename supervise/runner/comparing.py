"""What differs from the attempt before, told once it is ready: whoever works on its code does not wait for its end."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

from supervise.model.news import BecameReady, Ending, Launched, Meanwhile
from supervise.runner.threads import in_thread

if TYPE_CHECKING:
    from supervise.attempts.store import Run
    from supervise.model.news import News
    from supervise.report.console import Console

# The record of its code is written while it loads, and what was written meanwhile is looked at once it is ready: of one
# that is ready at once both are waited for, for so long.
_PATIENCE_S, _STEP_S = 2.0, 0.05


class Comparing:
    """A Listener.

    Args:
        run: whose attempts are compared.
        console: where people read.
    """

    def __init__(self, run: Run, console: Console) -> None:
        self._run, self._console = run, console
        self._task: asyncio.Task[None] | None = None
        self._meanwhile: tuple[str, ...] | None = None

    def hear(self, news: News) -> None:
        """Something has happened."""
        match news:
            case Launched():
                self._meanwhile = None
            case Meanwhile(files):
                self._meanwhile = files
            case BecameReady(attempt, seconds, phases):
                outcome = {"outcome": "asked", "ready_s": seconds, "phases": dict(phases)}
                self._task = asyncio.ensure_future(self._tell(attempt, outcome))
            case Ending():
                self.close()

    def close(self) -> None:
        """It is over: then all of it is told anyway."""
        if self._task is not None:
            self._task.cancel()

    async def _tell(self, number: int, outcome: dict[str, Any]) -> None:
        from supervise.report.since import since

        attempt = self._run.attempt(number)
        recorded = os.path.join(attempt.path, "sources.json")
        for _ in range(round(_PATIENCE_S / _STEP_S)):
            if os.path.exists(recorded) and self._meanwhile is not None:
                break
            await asyncio.sleep(_STEP_S)
        # Where nobody looks at its files (--no-preflight effect, no engine that is known) nothing is told of them.
        if os.path.exists(recorded):
            outcome["effect"] = {"files": {"changed_while_loading": list(self._meanwhile or ())}}
            self._console.compared(await in_thread(since, self._run, attempt, outcome))
