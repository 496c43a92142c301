"""What becomes of an attempt, state by state: written down, told to people, and to everybody else who listens."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from supervise import lifecycle as life
from supervise.group.members import told
from supervise.model import news
from supervise.runner import launch
from supervise.runner.audience import Audience
from supervise.runner.journal import name_of
from supervise.runner.report import Account, answer, conclude, how, why

if TYPE_CHECKING:
    from supervise.attempts.store import Run
    from supervise.model.diagnosis import Diagnosis, Fatal
    from supervise.report.console import Console
    from supervise.runner.ended import Ended
    from supervise.runner.journal import Journal
    from supervise.runner.plan import Plan
    from supervise.runner.startup import Startup
    from supervise.runner.world import World


class Chronicle:
    """Belongs to one attempt.

    Args:
        journal: where states are written down.
        startup: knows phase and fatal line.
        plan: what is run.
        console: where people read.
        audience: who else listens.
        world: the outside.

    Attributes:
        reason: why it is ending, None while it is not.
        ended_at: when that began, monotonic seconds.
    """

    def __init__(
        self, journal: Journal, startup: Startup, plan: Plan, console: Console, audience: Audience, world: World
    ) -> None:
        self.reason: life.Reason | None = None
        self.ended_at = 0.0
        self._journal, self._startup, self._plan = journal, startup, plan
        self._console, self._audience, self._world = console, audience, world
        self._fatal_told: Fatal | None = None
        self._stopping = False

    def entered(self, state: life.State) -> bool:
        """Publish a state; tell people why it is ending.

        Returns:
            Whether the leader has just died without having been asked to.
        """
        if isinstance(state, life.Ready) and not state.fatal:
            self._startup.forgive()
        fatal = self._startup.fatal
        if self._journal.opened is not None or not isinstance(state, life.Starting):
            self._journal.enter(state, self._startup.phase, fatal)
            self._audience.tell(entered(state, self._attempt, self._startup.phase, fatal.text if fatal else None))
        if fatal is not None and fatal is not self._fatal_told:
            self._fatal_told = fatal
            self._audience.tell(news.WasFatal(fatal.text, fatal.meaning))
        if isinstance(state, life.Sweeping) and state.why:
            self._console.line("restart", f"{state.why}: waits no longer, the next attempt begins")
        begins = self.reason is None
        if isinstance(state, life.Capturing | life.Stopping | life.Killing | life.Verifying):
            self._ends(state.reason)
        if isinstance(state, life.Stopping) and not self._stopping:
            self._stopping = True
            self._console.stopping(why(state.reason))
        if begins and isinstance(state, life.Killing) and state.reason.cause is life.Cause.DIED:
            self._console.leader_exited(how(state.reason.status or 0))
            return True
        return False

    def _ends(self, reason: life.Reason) -> None:
        """Tell what of it is new."""
        before, self.reason = self.reason, reason
        if before is None:
            self.ended_at = self._world.clock()
            self._audience.tell(self._ending(reason))
        elif told := answer(before, reason):
            self._console.note(told)

    @property
    def unblamed(self) -> bool:
        """Whether its end is no failure of the server's: somebody asked for it, or we have failed."""
        reason = self.reason
        return reason is None or reason.signum is not None or reason.cause in (life.Cause.ASKED, life.Cause.BROKEN)

    def conclude(self, run: Run, ended: Ended, diagnosis: Diagnosis | None, end: life.Done | life.Waiting) -> None:
        """Write down how it ended; what is to be followed by another attempt is over all the same."""
        if self._journal.opened is None or self.reason is None:
            return
        attempt, startup = self._journal.opened.attempt, self._startup
        account = Account(self.reason, ended, diagnosis, startup.ready_s, startup.phases, startup.effect())
        conclude(run, attempt, account, end, self._console, self._journal.write)
        done = end.done if isinstance(end, life.Waiting) else end
        failure = account.failure
        self._audience.tell(
            news.Ended(
                attempt=attempt.number,
                exit_status=int(done.status),
                outcome=self.reason.cause.value,
                cause=self._cause(failure),
                failure=failure.failure.value if failure else None,
                signature=failure.signature if failure else None,
                fingerprint=failure.fingerprint if failure else None,
                ready_s=account.ready_s,
                phases=account.phases,
                stop_s=ended.seconds,
                survivors=len(ended.survivors),
                log_bytes=_size(attempt.log),
                asked=self.reason.cause is life.Cause.ASKED,
                log=attempt.log,
                advice=tuple(failure.advice) if failure else (),
                survived=tuple(map(told, ended.survivors)),
            )
        )

    @property
    def _attempt(self) -> int | None:
        return self._journal.opened.attempt.number if self._journal.opened else None

    def _cause(self, failure: Diagnosis | None) -> str | None:
        """What it failed of; a command that could not be executed has no log that says so."""
        if failure is not None:
            return failure.text or failure.meaning
        reason, opened = self.reason, self._journal.opened
        if reason is None or opened is None or reason.cause is not life.Cause.NOT_LAUNCHED:
            return None
        return launch.explain_errno(opened.command[0], reason.status or 0)

    def _ending(self, reason: life.Reason) -> news.Ending:
        asked = reason.cause is life.Cause.ASKED
        return news.Ending(why(reason), asked, reason.again, self._plan.deadlines.total_s)


def entered(state: life.State, attempt: int | None, phase: str | None, cause: str | None) -> news.Entered:
    """A new state as news."""
    cut_short = state.why if isinstance(state, life.Sweeping) else ""
    return news.Entered(name_of(state), attempt, phase, cause, time.time(), cut_short)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
