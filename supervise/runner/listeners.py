"""Everybody who listens to a run: only who is wanted is made, and nothing is imported for the others."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from supervise.model.news import Launched
from supervise.runner.audience import Audience, Listener
from supervise.runner.threads import in_thread

if TYPE_CHECKING:
    from supervise import lifecycle as life
    from supervise.attempts.store import Run
    from supervise.model.news import News
    from supervise.report.console import Console
    from supervise.runner.hooks import Hooks
    from supervise.runner.once import Once
    from supervise.runner.plan import Plan
    from supervise.runner.trial import Trying
    from supervise.runner.watcher import Watcher
    from supervise.runner.watchlist import Watchlist

Post = Callable[["life.Event"], None]
# A launch takes less; whoever looks at a slate for longer may be asked about it.
_LATEST_S = 2.0
# What hooks get at least after a stop path that must fit into somebody's time, and what of that time they leave to us.
_LAST_WORDS_S = 0.3
_FAREWELL_S = 0.7


class Company:
    """Those who listen from the first attempt to the last.

    Args:
        audience: they.
        joining: makes those that need a loop which runs, and somebody who takes events, where there are any to be made;
            in this order they are closed.
        hooks: the user's, if there are any: they are waited for while the others still listen and answer.
        finishing: what is waited for when nothing more is told.
        within_s: how long whoever stops us will wait, None if nobody says.
        stopped: told of each signal that asks for the end.
        once: takes what is asked for the next slate alone.
        watchlist: what is watched, None if nothing is.
    """

    def __init__(
        self,
        audience: Audience,
        joining: Sequence[Callable[[Post], Listener | None]] = (),
        *,
        hooks: Hooks | None = None,
        finishing: Sequence[Callable[[], Awaitable[None]]] = (),
        within_s: float | None = None,
        stopped: Callable[[int], None] | None = None,
        once: Once | None = None,
        watchlist: Watchlist | None = None,
    ) -> None:
        self.audience, self.once, self.watchlist = audience, once, watchlist
        self._stopped = stopped
        self._joining, self._hooks, self._finishing = joining, hooks, finishing
        self._allowance = _Allowance(within_s)
        self._ending = False

    def begin(self, post: Post) -> None:
        """The loop runs."""
        for make in self._joining:
            if (listener := make(post)) is not None:
                self.audience.join(listener)

    def asked(self, signum: int = 0) -> None:
        """Somebody wants the end; whoever wants it while only hooks are waited for wants theirs."""
        if self._stopped is not None:
            self._stopped(signum)
        self._allowance.begin()
        if self._ending and self._hooks is not None:
            self._hooks.hurry()

    async def end(self) -> None:
        """It is over; our signals are still taken over, and mean `asked`."""
        self._ending = True
        try:
            if self._hooks is not None:
                await self._hooks.finished(self._allowance.left())
        finally:
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
    audience, once = Audience((), console), None
    joining: list[Callable[[Post], Listener | None]] = []
    if env.get("NOTIFY_SOCKET"):
        _add_manager(planned, console, env, audience, joining)
    try:
        finishing = _add_metrics(planned, target, console, audience)
        trying = _add_trial(planned, console, joining)
        hooks = _add_hooks(planned, target, console, audience)
    except BaseException:
        audience.close()
        raise
    from supervise.runner import containers

    for listener in containers.listeners(planned.options, env, target, console):
        audience.join(listener)
    joining.append(lambda post: _Deferred(lambda: _control(planned, target, post, console)))
    watcher = _add_watcher(planned, target, console, audience, joining)
    if console.views:
        once = _add_view(planned, target, console, joining)
    return Company(
        audience,
        joining,
        hooks=hooks,
        finishing=(*finishing, *(each.finished for each in (trying, watcher) if each is not None)),
        within_s=planned.options.stop_within_s,
        stopped=None if trying is None else trying.stopped,
        once=once,
        watchlist=None if watcher is None else watcher.watchlist,
    )


def _add_manager(
    planned: Plan,
    console: Console,
    env: Mapping[str, str],
    audience: Audience,
    joining: list[Callable[[Post], Listener | None]],
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
        joining.append(lambda _: Heartbeat.from_environment(env, notify))


def _add_metrics(
    planned: Plan, target: Run, console: Console, audience: Audience
) -> Sequence[Callable[[], Awaitable[None]]]:
    telling, need = planned.options.telling, planned.need
    if telling is None or not telling.measured:
        return ()
    from supervise.runner.exposition import Exposition

    exposition = Exposition(telling, target.name, need.profile, need.ports, console)
    audience.join(exposition)
    return (exposition.finished,)


def _add_trial(planned: Plan, console: Console, joining: list[Callable[[Post], Listener | None]]) -> Trying | None:
    if (trial := planned.options.trial) is None:
        return None
    from supervise.runner.trial import Trying

    trying = Trying(trial, planned, console)
    joining.append(trying.begin)
    return trying


def _add_view(planned: Plan, target: Run, console: Console, joining: list[Callable[[Post], Listener | None]]) -> Once:
    from supervise.report.live import Terminal
    from supervise.runner.once import Once

    once = Once()

    def show(post: Post) -> Listener:
        from supervise.runner.showing import Showing

        assert isinstance(console, Terminal)
        return Showing(planned, target, console, post, once, lambda: in_thread(_foreseen, planned, target.path))

    joining.append(lambda post: _Deferred(lambda: show(post)))
    return once


def _add_watcher(
    planned: Plan, target: Run, console: Console, audience: Audience, joining: list[Callable[[Post], Listener | None]]
) -> Watcher | None:
    if not planned.options.watch:
        return None
    from supervise.runner.comparing import Comparing
    from supervise.runner.watcher import Watcher
    from supervise.runner.watchlist import Watchlist

    watchlist = Watchlist(planned.options.watch, but=os.path.dirname(target.path))
    foreseen = partial(_foreseen, planned, target.path)
    watcher = Watcher(planned, watchlist, audience.tell, console, target.name, foreseen)
    joining.append(watcher.begin)
    joining.append(lambda _: Comparing(target, console))
    return watcher


def _add_hooks(planned: Plan, target: Run, console: Console, audience: Audience) -> Hooks | None:
    telling, engine = planned.options.telling, planned.need.profile
    if telling is None or not telling.hooks:
        return None
    from supervise.runner.hooks import Hooks

    hooks = Hooks(telling.hooks, telling.hook_timeout_s, target.name, engine, target.path, console)
    audience.join(hooks)
    return hooks


class _Allowance:
    """What is left of the time of whoever stops us; nobody's time runs while nobody has asked for an end.

    Args:
        within_s: all of it, None if nobody says.
        clock: monotonic seconds.
    """

    def __init__(self, within_s: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._within_s, self._clock = within_s, clock
        self._asked_at: float | None = None

    def begin(self) -> None:
        """Somebody asks; whoever asks again has no more time."""
        if self._asked_at is None:
            self._asked_at = self._clock()

    def left(self) -> float | None:
        """How long hooks may go on, until nothing of them runs, in seconds; None if nobody has set a time."""
        if self._within_s is None or self._asked_at is None:
            return None
        return max(_LAST_WORDS_S, self._asked_at + self._within_s - _FAREWELL_S - self._clock())


def _control(planned: Plan, target: Run, post: Post, console: Console) -> Listener:
    from supervise.runner.control import Control

    control = Control(target, post, console, lambda: in_thread(_foreseen, planned, target.path))
    control.start()
    return control


def _foreseen(planned: Plan, state_dir: str) -> str | None:
    from supervise.runner.foresight import sure_refusal

    return sure_refusal(planned, state_dir)


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
