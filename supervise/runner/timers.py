"""Deadlines on the loop's clock that stand still while we are stopped."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator

# A deadline is walked towards in steps, and a step counts as what it was to be: of a time in which we could not look
# at anything (SIGSTOP, a machine that had no turn for us) no deadline knows more.
_STEP_S = 5.0
# From then on it is worth telling.
_STOPPED_S = 2.0
# So late, all that has happened meanwhile is to be heard first.
_LATE_S = 1.0
_GRACE_S = 10.0


class Timers:
    """The pending deadlines of one attempt.

    Args:
        io: the loop whose clock counts.
        on_stopped: told afterwards that the loop stood still, and for how many seconds.
    """

    def __init__(self, io: asyncio.AbstractEventLoop, on_stopped: Callable[[float], None] = lambda _: None) -> None:
        self._io, self._on_stopped = io, on_stopped
        self._pending: set[_Deadline] = set()
        self._stopped_until = float("-inf")

    def later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call back in so many seconds."""
        deadline = _Deadline(delay_s, callback)
        self._pending.add(deadline)
        self._step(deadline)

    def cancel(self) -> None:
        """Forget all of them."""
        for deadline in self._pending:
            deadline.cancel()
        self._pending.clear()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Whatever time is spent inside of this does not count."""
        began, pending = self._io.time(), tuple(self._pending)
        self.cancel()
        yield
        for deadline in pending:
            self.later(deadline.left_s + max(0.0, deadline.due - began), deadline.callback)

    def _step(self, deadline: _Deadline) -> None:
        step_s = min(deadline.left_s, _STEP_S)
        deadline.left_s -= step_s
        deadline.due = self._io.time() + step_s
        deadline.handle = self._io.call_at(deadline.due, self._arrive, deadline)

    def _arrive(self, deadline: _Deadline) -> None:
        late_s = self._io.time() - deadline.due
        if late_s >= _STOPPED_S:
            self._tell(late_s)
        late, deadline.late = deadline.late, late_s >= _LATE_S
        if deadline.late and not late:
            # Once: on a machine that is always late no deadline would ever end.
            deadline.left_s = max(deadline.left_s, _GRACE_S)
        if deadline.left_s > 0:
            self._step(deadline)
            return
        self._pending.discard(deadline)
        deadline.callback()

    def _tell(self, late_s: float) -> None:
        """Once for all deadlines that were late of the same cause."""
        now = self._io.time()
        if now - late_s > self._stopped_until:
            self._on_stopped(late_s)
        self._stopped_until = now


class _Deadline:
    """What is still to come of it after its present step."""

    def __init__(self, left_s: float, callback: Callable[[], None]) -> None:
        self.left_s, self.callback = left_s, callback
        self.due = 0.0
        self.late = False
        self.handle: asyncio.TimerHandle | None = None

    def cancel(self) -> None:
        if self.handle is not None:
            self.handle.cancel()
