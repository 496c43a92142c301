"""The slate of one attempt: swept before the launch, and added to by what is looked at while the server starts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from supervise import lifecycle as life
from supervise.model.news import Swept
from supervise.model.snapshot import NO_GPUS, Gpus
from supervise.runner.packages import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable

    from supervise.model.news import News
    from supervise.model.slate import SlateResult
    from supervise.report.console import Console
    from supervise.runner.journal import Journal
    from supervise.runner.loop import Loop
    from supervise.runner.recording import Recording
    from supervise.runner.restarting import Memory
    from supervise.runner.world import World


class Sweeping:
    """Sweeps once, and remembers what was found.

    Args:
        loop: where events are posted.
        journal: where the slate is written down.
        console: where people read.
        world: the outside.
        memory: looks at what is watched before the launch; None if there is to be no other one.
        tell: tells others.
    """

    def __init__(
        self,
        loop: Loop,
        journal: Journal,
        console: Console,
        world: World,
        memory: Memory | None,
        tell: Callable[[News], None],
    ) -> None:
        self._loop, self._journal, self._console, self._world = loop, journal, console, world
        self._memory, self._tell = memory, tell
        self._result: SlateResult | None = None
        self._cancelled = False
        self._recorder: Recorder | None = None

    @property
    def gpus(self) -> Gpus:
        """As they were before the launch."""
        return self._result.gpus if self._result else NO_GPUS

    async def sweep(self, helpers: frozenset[int]) -> None:
        """Make the slate clean.

        Args:
            helpers: pids of ours that are there for the launch.
        """
        result = await self._world.in_thread_or_fail(self._world.sweep, lambda: self._cancelled, helpers)
        self._result = result
        self._console.slate(result)
        self._tell(Swept(result))
        if not result.clean:
            self._console.note("nothing was launched")
            self.record()
        elif self._memory is not None and await self._memory.launching(self._world.in_thread):
            self._console.note("note    --watch: too many files; changes are seen in the first of them only")
        self._loop.post(life.SlateCleaned() if result.clean else life.SlateRefused())

    def cancel(self) -> None:
        """It has been called off."""
        self._cancelled = True

    def record(self) -> None:
        """Write down what is known by now."""
        self._journal.slate(self._result)

    def look_at_packages(self) -> None:
        """Have the engine's packages, and what is watched, read while the server loads them."""
        if self._world.packages is not None and (opened := self._journal.opened) is not None:
            self._recorder = Recorder(opened.attempt, self._world.packages, self._add, self._unwritten)

    async def recorded(self) -> None:
        """The attempt is over: whatever could not be read meanwhile is unknown."""
        if self._recorder is not None and not await self._recorder.finish():
            self._console.note("its code had not been read to the end when it was over; it is not in its record")

    def _add(self, read: Recording) -> None:
        for finding in read.remarks:
            self._console.remark(finding)
        if read.note:
            self._console.note(read.note)
        if self._result is not None:
            known = self._result
            self._result = replace(known, remarks=(*known.remarks, *read.remarks), checks=(*known.checks, *read.checks))
            self.record()

    def _unwritten(self, error: OSError) -> None:
        self._journal.say(error.errno or 0, f"the code of this attempt is not recorded: {error.strerror}")
