"""A server that is up: announced to everybody, and looked after until it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from supervise import lifecycle as life
from supervise.model.news import BecameReady, WasHung

if TYPE_CHECKING:
    from supervise.report.console import Console
    from supervise.runner.attempt import Opened
    from supervise.runner.audience import Audience
    from supervise.runner.liveness import Liveness
    from supervise.runner.loop import Loop
    from supervise.runner.plan import Plan
    from supervise.runner.startup import Startup
    from supervise.runner.world import World


class Serving:
    """Belongs to one attempt.

    Args:
        loop: where events are posted.
        plan: what is run.
        startup: what led to it.
        console: where people read.
        audience: who else listens.
        world: the outside.
    """

    def __init__(
        self, loop: Loop, plan: Plan, startup: Startup, console: Console, audience: Audience, world: World
    ) -> None:
        self._loop, self._plan, self._startup = loop, plan, startup
        self._console, self._audience, self._world = console, audience, world
        self._liveness: Liveness | None = None

    def begin(self, opened: Opened | None) -> None:
        """All proofs of readiness agree.

        Args:
            opened: the attempt.
        """
        self._startup.announce_ready()
        if opened is None:
            return
        number, log = opened.attempt.number, opened.attempt.log
        self._audience.tell(BecameReady(number, self._startup.ready_s or 0.0, self._startup.phases))
        # Whatever looks after a server that serves is imported once it does.
        from supervise.runner.liveness import liveness

        self._liveness = liveness(self._plan, self._world, opened.keeper.pid, log, tell=self._note, post=self._hung)
        if self._liveness is not None:
            self._liveness.start()

    def entered(self, state: life.State) -> None:
        """A new state: what ends is not looked after any more."""
        if self._liveness is not None and not isinstance(state, life.Ready):
            self._liveness.stop()
            self._liveness = None

    def _note(self, text: str) -> None:
        self._console.line("note", text)

    def _hung(self, event: life.Event) -> None:
        if isinstance(event, life.Hung):
            self._audience.tell(WasHung(event.proofs))
        self._loop.post(event)
