"""Everybody who listens to a run: only who is wanted is made, and nothing is imported for the others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from supervise.model.news import Ending, Launched, Over
from supervise.runner.audience import Audience, Listener

if TYPE_CHECKING:
    from supervise import lifecycle as life
    from supervise.attempts.store import Run
    from supervise.model.news import News
    from supervise.report.console import Console
    from supervise.runner.plan import Plan

Post = Callable[["life.Event"], None]
# A launch takes less; whoever looks at a slate for longer may be asked about it.
_LATEST_S = 2.0
# What hooks get at least after a stop path that must fit into somebody's time, and what of that time they leave: for
# SIGTERM and SIGKILL to one that does not end, and our own way out.
_LAST_WORDS_S = 0.5
_FAREWELL_S = 3.0
_SIGNALLED = (128 + 1, 128 + 2, 128 + 3, 128 + 15)


class Company:
    """Those who listen from the first attempt to the last.

    Args:
        audience: they.
        joining: makes those that need a loop which runs, and somebody who takes events.
        finishing: what is waited for when nothing more is told.
    """

    def __init__(
        self,
        audience: Audience,
        joining: Sequence[Callable[[Post], Listener]] = (),
        finishing: Sequence[Callable[[], Awaitable[None]]] = (),
    ) -> None:
        self.audience = audience
        self._joining, self._finishing = joining, finishing

    def begin(self, post: Post) -> None:
        """The loop runs."""
        for make in self._joining:
            self.audience.join(make(post))

    async def end(self) -> None:
        """It is over; our signals are still taken over."""
        self.audience.close()
        for finish in self._finishing:
            await finish()


def gather(planned: Plan, target: Run, console: Console, env: Mapping[str, str]) -> Company:
    """Make those that are wanted.

    Args:
        planned: what is to be run.
        target: the run; its lock is held.
        console: where people read.
        env: our environment.

    Raises:
        TellingError: an endpoint or file that was asked for cannot be had.
        OSError: hooks cannot be run.
    """
    audience = Audience((), console)
    joining: list[Callable[[Post], Listener]] = [lambda post: _Deferred(lambda: _control(target, post, console))]
    finishing: list[Callable[[], Awaitable[None]]] = []
    if env.get("NOTIFY_SOCKET"):
        _add_manager(planned, console, env, audience, joining)
    try:
        _add_tellers(planned, target, console, audience, finishing)
    except BaseException:
        audience.close()
        raise
    from supervise.runner import containers

    for listener in containers.listeners(planned.options, env, target, console):
        audience.join(listener)
    return Company(audience, joining, finishing)


def _add_manager(
    planned: Plan,
    console: Console,
    env: Mapping[str, str],
    audience: Audience,
    joining: list[Callable[[Post], Listener]],
) -> None:
    from supervise.report.notify import Notify
    from supervise.report.systemd import Systemd
    from supervise.runner.heartbeat import Heartbeat

    notify = Notify.from_environment(env, console.error)
    if notify is None:
        return
    slate_s, stop_s = planned.options.slate_timeout_s, planned.deadlines.attended().total_s
    audience.join(Systemd(notify, slate_s=slate_s, stop_s=stop_s))
    if env.get("WATCHDOG_USEC"):
        joining.append(lambda _: Heartbeat.from_environment(env, notify) or _Deaf())


def _add_tellers(
    planned: Plan,
    target: Run,
    console: Console,
    audience: Audience,
    finishing: list[Callable[[], Awaitable[None]]],
) -> None:
    telling, need = planned.options.telling, planned.need
    if telling is None:
        return
    if telling.measured:
        from supervise.runner.exposition import Exposition

        exposition = Exposition(telling, target.name, need.profile, need.ports, console)
        audience.join(exposition)
        finishing.append(exposition.finished)
    if telling.hooks:
        from supervise.runner.hooks import Hooks

        hooks = Hooks(telling.hooks, telling.hook_timeout_s, target.name, need.profile, target.path, console)
        within_s = planned.options.stop_within_s
        allowance = _Allowance()
        audience.join(hooks)
        audience.join(allowance)
        finishing.insert(0, lambda: hooks.finished(allowance.left(within_s)))


class _Allowance:
    """What is left of the time of whoever stops us; nobody's time runs while nobody has asked for an end."""

    def __init__(self) -> None:
        self._asked_at: float | None = None

    def hear(self, news: News) -> None:
        """Somebody wants the end, or wanted it while nothing ran."""
        match news:
            case Ending(asked=True, restarts=False):
                asked = True
            case Over(exit_status):
                asked = exit_status in _SIGNALLED
            case _:
                return
        if asked and self._asked_at is None:
            self._asked_at = time.monotonic()

    def left(self, within_s: float | None) -> float | None:
        """How long hooks may go on, in seconds; None if nobody has set a time."""
        if within_s is None or self._asked_at is None:
            return None
        return max(_LAST_WORDS_S, self._asked_at + within_s - _FAREWELL_S - time.monotonic())

    def close(self) -> None:
        """Nothing is left to be done."""


def _control(target: Run, post: Post, console: Console) -> Listener:
    from supervise.runner.control import Control

    control = Control(target, post, console)
    control.start()
    return control


class _Deferred:
    """One that is made once the server is on its way, and told then what has happened until then.

    The launch does not wait for its import.

    Args:
        make: makes it.
    """

    def __init__(self, make: Callable[[], Listener]) -> None:
        self._make = make
        self._missed: list[News] = []
        self._made: Listener | None = None
        self._timer = asyncio.get_running_loop().call_later(_LATEST_S, self._begin)

    def hear(self, news: News) -> None:
        """Something has happened."""
        if self._made is not None:
            self._made.hear(news)
            return
        self._missed.append(news)
        if isinstance(news, Launched):
            asyncio.get_running_loop().call_soon(self._begin)

    def close(self) -> None:
        """It is over."""
        self._timer.cancel()
        if self._made is not None:
            self._made.close()

    def _begin(self) -> None:
        self._timer.cancel()
        if self._made is None:
            self._made = self._make()
            for news in self._missed:
                self._made.hear(news)
            self._missed.clear()


class _Deaf:
    """Nobody."""

    def hear(self, news: News) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""
