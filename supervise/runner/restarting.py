"""From one attempt to the next: what is remembered of those that failed, and the wait in between."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from typing import TYPE_CHECKING, Any

from supervise import lifecycle as life
from supervise.group.reaping import Reaper
from supervise.lifecycle.restart import Failure, Restarts, failure_of, remembered
from supervise.runner.timers import Timers
from supervise.text import duration

if TYPE_CHECKING:
    from collections.abc import Callable

    from supervise.model.diagnosis import Diagnosis
    from supervise.model.restart import Policy
    from supervise.report.console import Console
    from supervise.runner.journal import Journal
    from supervise.runner.loop import Loop


class Memory:
    """What supervise remembers of the attempts that it has relaunched.

    Args:
        policy: the user's.
        clock: monotonic seconds.
        chance: a random number from 0 to 1.
    """

    def __init__(
        self, policy: Policy, clock: Callable[[], float] = time.monotonic, chance: Callable[[], float] = random.random
    ) -> None:
        self._policy, self._clock, self._chance = policy, clock, chance
        self._history: tuple[Failure, ...] = ()

    def facts(self, attempt: int, up_s: float | None) -> Restarts:
        """What a decision about the next attempt depends on.

        Args:
            attempt: number of the one that is over.
            up_s: how long it had been ready, None if it never was.
        """
        return Restarts(self._policy, self._history, attempt, self._clock(), up_s, jitter=self._chance())

    def relaunched(self, diagnosis: Diagnosis | None, facts: Restarts) -> None:
        """The attempt of these facts is followed by another one."""
        self._history = remembered(self._policy, (*self._history, failure_of(diagnosis, facts)))


class Pause:
    """The wait for the next attempt: nothing of ours runs but ourselves, and whoever asks us to stop is heard at once.

    Args:
        loop: where events are posted; its state is the wait.
        waiting: that state.
        journal: of the attempt that failed.
        console: where people read.
    """

    def __init__(self, loop: Loop, waiting: life.Waiting, journal: Journal, console: Console) -> None:
        self._loop, self._waiting, self._journal, self._console = loop, waiting, journal, console
        self._timers = Timers(asyncio.get_running_loop())
        self._reaper = Reaper()
        self.passing = Idle(self._timers)
        self._told: dict[str, Any] = {
            "relaunch_at": round(time.time() + waiting.after_s, 3),
            "cause": {"text": waiting.cause},
            "why": waiting.why,
        }

    def begin(self) -> None:
        """Tell people, and count down."""
        waiting = self._waiting
        follows = f"relaunch in {duration(waiting.after_s)} ({waiting.why})"
        self._console.line("restart", f"attempt {waiting.attempt} failed: {waiting.cause}; {follows}")
        # Guard and keeper of the attempt that failed: the next one shall not take them for strangers.
        self.reap()
        self._timers.later(waiting.after_s, lambda: self._loop.post(life.RelaunchDue()))

    def entered(self, state: life.State) -> None:
        """Publish the wait, or that it was the end."""
        more = self._told if isinstance(state, life.Waiting) else {}
        self._journal.publish(state, None, **more)
        self._journal.append(state, **more)

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
