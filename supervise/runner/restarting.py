"""From one attempt to the next: what is remembered of those that failed, and the wait in between."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from typing import TYPE_CHECKING, Any, TypeVar

from supervise import lifecycle as life
from supervise.group.reaping import Reaper
from supervise.host.signals import name as signal_name
from supervise.lifecycle.restart import Failure, Restarts, failure_of, remembered
from supervise.model.news import Relaunching
from supervise.model.restart import Policy
from supervise.runner.chronicle import entered
from supervise.runner.journal import cause_of
from supervise.runner.report import unlaunched
from supervise.runner.timers import Timers
from supervise.text import duration

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from supervise.model.diagnosis import Diagnosis
    from supervise.report.console import Console
    from supervise.runner.audience import Audience
    from supervise.runner.journal import Journal
    from supervise.runner.loop import Loop
    from supervise.runner.watchlist import Watchlist

    InThread = Callable[..., Awaitable[Any]]

_T = TypeVar("_T")

# Where the files are on a file system whose server is gone, nobody waits for it.
_PATIENCE_S = 10.0
_AWAITED = "waits for a change of a watched file"


class Memory:
    """What supervise remembers of attempts that it has relaunched, and of the files that the present one began with.

    Args:
        policy: the user's; without one a failure waits for a change.
        watchlist: files and directories of which a change allows a relaunch, None where there are none.
        clock: monotonic seconds.
        chance: a random number from 0 to 1.
    """

    def __init__(
        self,
        policy: Policy | None,
        watchlist: Watchlist | None = None,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._policy, self._clock, self._chance = policy or Policy(), clock, chance
        self._watchlist = watchlist
        self._history: tuple[Failure, ...] = ()

    @property
    def next(self) -> str:
        """What is about to be launched, for people."""
        return "the relaunch" if self._history else "the launch"

    async def launching(self, in_thread: InThread) -> bool:
        """An attempt is about to begin: look at the files before it does.

        Returns:
            Whether there are more of them than are looked at.
        """
        return self._watchlist is not None and bool(await _within(in_thread, self._watchlist.begin))

    async def facts(self, attempt: int, up_s: float | None, in_thread: InThread) -> Restarts:
        """What a decision about the next attempt depends on.

        Args:
            attempt: number of the one that is over.
            up_s: how long it had been ready, None if it never was.
            in_thread: runs what blocks.
        """
        watchlist, changed = self._watchlist, False
        if watchlist is not None:
            changed = bool(await _within(in_thread, watchlist.changes)) and not watchlist.broken
        waits = watchlist is not None
        return Restarts(self._policy, self._history, attempt, self._clock(), up_s, changed, self._chance(), waits)

    def relaunched(self, diagnosis: Diagnosis | None, facts: Restarts) -> None:
        """The attempt of these facts is followed by another one."""
        self._history = remembered(self._policy, (*self._history, failure_of(diagnosis, facts)))


async def _within(in_thread: InThread, look: Callable[[], _T]) -> _T | None:
    try:
        seen: _T = await asyncio.wait_for(in_thread(look), _PATIENCE_S)
    except TimeoutError:
        return None
    return seen


class Pause:
    """The wait for the next attempt: nothing of ours runs but ourselves, and whoever asks us to stop is heard at once.

    Args:
        loop: where events are posted; its state is the wait.
        waiting: that state.
        journal: of the attempt that failed.
        console: where people read.
        failure: what it failed of, as far as anybody knows.
        audience: who else listens.
    """

    def __init__(
        self,
        loop: Loop,
        waiting: life.Waiting,
        journal: Journal,
        console: Console,
        failure: Diagnosis | None,
        audience: Audience,
    ) -> None:
        self._loop, self._waiting, self._journal, self._console = loop, waiting, journal, console
        self._audience, self._failure = audience, None if waiting.asked else failure
        self._timers = Timers(asyncio.get_running_loop())
        self._reaper = Reaper()
        self.passing = Idle(self._timers)
        self._told: dict[str, Any] = {
            "relaunch_at": None if waiting.after_s is None else round(time.time() + waiting.after_s, 3),
            "why": waiting.why,
            **self._cause(),
        }

    def begin(self) -> None:
        """Tell people, and count down."""
        waiting = self._waiting
        if waiting.asked:
            self._console.line("restart", f"{waiting.why}: attempt {waiting.attempt} is over, the next one begins")
        elif waiting.after_s is None:
            self._console.line("watch", f"attempt {waiting.attempt} failed: {waiting.cause}")
            self._console.note(f"{waiting.why}; " * bool(waiting.why) + f"{_AWAITED}; Ctrl-C ends supervise")
        else:
            follows = f"relaunch in {duration(waiting.after_s)} ({waiting.why})"
            self._console.line("restart", f"attempt {waiting.attempt} failed: {waiting.cause}; {follows}")
        failure = self._failure.failure.value if self._failure else ("asked" if waiting.asked else "unknown")
        self._audience.tell(Relaunching(waiting.attempt, waiting.after_s, waiting.why, waiting.cause, failure))
        # Guard and keeper of the attempt that failed: the next one shall not take them for strangers.
        self.reap()
        if waiting.after_s is not None:
            self._timers.later(waiting.after_s, lambda: self._loop.post(life.RelaunchDue()))

    def entered(self, state: life.State) -> None:
        """Publish the wait, or that it was the end."""
        more = self._told
        if isinstance(state, life.Done):
            awaited = "a change of a watched file" if self._waiting.after_s is None else "the relaunch"
            more = unlaunched(state, awaited, waited=True)
            if state.reraise is not None:
                asked = state.why or signal_name(state.reraise)
                self._console.line("stop", f"{asked}: nothing runs, and nothing follows")
        self._journal.enter(state, None, **more)
        self._audience.tell(entered(state, self._waiting.attempt, None, self._waiting.cause or None))

    def _cause(self) -> dict[str, Any]:
        if self._waiting.asked:
            return {}
        return cause_of(self._failure) if self._failure else {"cause": {"text": None, "meaning": self._waiting.cause}}

    def reap(self) -> None:
        """Reap every child that has ended."""
        self._reaper.reap()

    def perform(self, effect: life.Effect) -> None:
        """There is nothing to be done to nothing."""

    def broken(self, error: BaseException) -> None:
        """Something of ours raised."""
        self._journal.broken(error)
        self._loop.post(life.Broken())

    def release(self) -> None:
        """Forget the deadline."""
        self._timers.cancel()


class Idle:
    """Signals that mean a server, while there is none."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers

    def signal(self, signum: int) -> None:
        """One for the leader: there is none."""

    def suspend(self) -> None:
        """Ctrl-Z stops us alone; the wait goes on where it was when somebody continues us."""
        with self._timers.paused():
            os.kill(os.getpid(), signal.SIGSTOP)
