"""When a server counts as ready: its log, HTTP, and the owner of the listening socket agree."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from supervise.model.need import Need
from supervise.model.probe import Answer, Probed
from supervise.model.process import Process

# A server that is told to log less never prints its ready line; one that answers this long on its own socket serves.
_UNANNOUNCED_S = 10.0
# A server that says it is up while somebody else's socket answers will never get a request.
_IMPOSTOR_S = 15.0

Members = Callable[[], Iterable[Process]]

# For want of descriptors, or of memory, nothing can be told: least of all that it is not there.
_AGAIN_S = 1.0


class Readiness:
    """Collects the proofs.

    Args:
        need: where the server should listen.
        probe: asks whether it does; blocking.
        expects_line: whether its profile knows a ready line.
        clock: monotonic seconds.
        in_thread: runs what blocks.
        blind: told when it could not be looked at.

    Attributes:
        last: what the last look has found, None before the first.
    """

    def __init__(
        self,
        need: Need,
        probe: Callable[[Members], Probed],
        *,
        expects_line: bool,
        clock: Callable[[], float],
        in_thread: Callable[..., Awaitable[Any]],
        blind: Callable[[OSError], None] = lambda _: None,
    ) -> None:
        self.last: Probed | None = None
        self._blind = blind
        self._need, self._probe, self._clock, self._in_thread = need, probe, clock, in_thread
        self._expects_line = expects_line
        self._announced = asyncio.Event()
        self._announced_at: float | None = None
        self._answered_since: float | None = None
        self._lost_since: float | None = None

    def announce(self) -> None:
        """The ready line has been read."""
        self._announced_at = self._clock()
        self._announced.set()

    async def found(self, members: Members, starting: Callable[[], bool]) -> Probed | None:
        """Look until it is clear.

        Args:
            members: reads who belongs to the group.
            starting: whether there is still something to wait for.

        Returns:
            An answer of YES when all proofs agree, of NOT_OURS when the port is lost to another server although ours
            believes that it is up; None when there was nothing to wait for any more. A YES may carry a note.
        """
        if not self._need.doors and self._need.uds is None:
            if self._expects_line:
                await self._announced.wait()
            return Probed(Answer.YES)
        while starting():
            try:
                probed: Probed = await self._in_thread(self._probe, members)
            except OSError as error:
                self._blind(error)
                await asyncio.sleep(_AGAIN_S)
                continue
            self.last = probed
            if self._agree(probed) or self._impostor(probed):
                return probed
            await self._next_look(probed.again_s)
        return None

    async def _next_look(self, after_s: float) -> None:
        """That many seconds from now, or as soon as the ready line comes."""
        if self._announced.is_set():
            await asyncio.sleep(after_s)
            return
        try:
            await asyncio.wait_for(self._announced.wait(), after_s)
        except TimeoutError:
            pass

    def _agree(self, probed: Probed) -> bool:
        if probed.answer is not Answer.YES:
            self._answered_since = None
            return False
        if self._answered_since is None:
            self._answered_since = self._clock()
        waited = self._clock() - self._answered_since
        return not self._expects_line or self._announced_at is not None or waited >= _UNANNOUNCED_S

    def _impostor(self, probed: Probed) -> bool:
        """Whether it stays somebody else: a socket that goes away while it is looked for belongs to nobody."""
        if probed.answer is not Answer.NOT_OURS or self._announced_at is None:
            self._lost_since = None
            return False
        if self._lost_since is None:
            self._lost_since = self._clock()
        return self._clock() - self._lost_since >= _IMPOSTOR_S
