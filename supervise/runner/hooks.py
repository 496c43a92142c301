"""Commands of the user's that are run when something happens to a run.

They are told, and nothing more: the server waits for none of them, and what becomes of them changes nothing. A porter
(group/porter.py) runs them, one after the other in the order of the events. But an end does not wait long for one that
goes on and on: a second porter then runs the hooks of ends beside it.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from supervise.group.errand import TERM_S
from supervise.model.telling import Hook, Occasion
from supervise.report.occasions import Occasions, variables
from supervise.report.private import private
from supervise.runner.carrier import Carrier
from supervise.text import plural, printable, shorten

if TYPE_CHECKING:
    from supervise.group import wire
    from supervise.model.news import News
    from supervise.report.console import Console

"""Beginnings of the names of variables that no command of the user's beside the server gets."""
_MOST_WAITING = 64
_TITLE_WIDTH = 160
_TITLES_WIDTH = 240
# The events of an end, and how long their hooks wait for others at most: to take a server out of a balancer there is
# little time.
_ENDS = (Occasion.HANG, Occasion.CRASH, Occasion.STOP, Occasion.GIVEUP)
_PATIENCE_S = 1.0
# The porter's own way out, once a hook's time is over: SIGTERM, SIGKILL, and a reading of who is left.
_LEAVING_S = 10.0
# Of a time that is bounded: the part for SIGTERM, and what SIGKILL and the last words of a porter take.
_TERM_PART, _KILL_PART, _KILL_S = 0.3, 0.2, 0.5


@dataclass(slots=True)
class _Asked:
    """A hook that is to be run: which, what it is called, whether for an end, the request, and whether it has begun."""

    hook: int
    title: str
    ends: bool
    request: wire.Message
    since: float = field(default_factory=time.monotonic)
    begun: bool = False


class Hooks:
    """Listens, and has hooks run.

    Args:
        hooks: the user's.
        timeout_s: how long each may take, and all that are not over when supervise wants to leave.
        run: name of the run.
        engine: name of its profile.
        directory: the run's; hooks.log is kept in it.
        console: where people read of what went wrong.
        env: our environment.
        now: seconds since the epoch.

    Raises:
        OSError: the porter cannot be started.
    """

    def __init__(
        self,
        hooks: tuple[Hook, ...],
        timeout_s: float,
        run: str,
        engine: str,
        directory: str,
        console: Console,
        *,
        env: Mapping[str, str] = os.environ,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._hooks, self._timeout_s, self._console, self._now = hooks, timeout_s, console, now
        self._occasions = Occasions(run, engine)
        self._log = os.path.join(directory, "hooks.log")
        self._env = dict(env)
        self._porter = self._carrier()
        self._beside: Carrier | None = None
        self._asked: dict[int, _Asked] = {}
        self._count = self._dropped = 0
        self._failed: set[int] = set()
        self._too_many = self._patient = self._said_killed = False
        self._timer: asyncio.TimerHandle | None = None
        self._leave_at: float | None = None
        self._term_s = TERM_S

    def hear(self, news: News) -> None:
        """Something has happened."""
        self._porter.listen()
        happening = self._occasions.hear(news, self._now())
        if happening is None:
            return
        for number, hook in enumerate(self._hooks):
            if hook.on in (happening.occasion, Occasion.ANY):
                self._run(number, hook, happening.told)

    def close(self) -> None:
        """Nothing more will happen; what has begun is ended, unless it has been waited for: see `finished`."""
        if self._timer is not None:
            self._timer.cancel()
        for porter in self._porters:
            porter.finish(0.0, TERM_S)

    async def finished(self, most_s: float | None = None) -> None:
        """Wait until nothing of any hook runs, for as long as one may take; `hurry` cuts that short.

        Args:
            most_s: no longer than so many seconds, in which whoever ignores SIGTERM has got SIGKILL as well.
        """
        self._porter.listen()
        within_s, self._term_s = _times(self._timeout_s, most_s)
        self._leave_at = time.monotonic() + within_s
        if self._asked:
            self._say_what_is_waited_for(within_s)
        for porter in self._porters:
            porter.finish(within_s, self._term_s)
        try:
            async with asyncio.timeout(within_s + _LEAVING_S if most_s is None else most_s):
                # One more may have begun meanwhile.
                await self._porter.gone()
                if self._beside is not None:
                    await self._beside.gone()
        except TimeoutError:
            # It sees the end of file, and is on its own: a hook that cannot be killed must not hold us.
            self._console.error(f"hooks: something of them cannot be ended; see {self._log}")
        finally:
            self._leave()

    def hurry(self) -> None:
        """End what runs now."""
        for porter in self._porters:
            porter.hurry()

    # --- what is asked of the porters ---------------------------------------------------------------------------------

    @property
    def _porters(self) -> tuple[Carrier, ...]:
        return (self._porter,) if self._beside is None else (self._porter, self._beside)

    def _carrier(self) -> Carrier:
        return Carrier(self._log, self._env, self._heard, self._killed)

    def _run(self, number: int, hook: Hook, told: dict[str, Any]) -> None:
        if self._porter.is_gone:
            # What runs them was killed, and that was said.
            return
        if len(self._asked) >= _MOST_WAITING:
            if not self._too_many:
                self._console.error(f"hooks: {_MOST_WAITING} wait for those before them; more are left out meanwhile")
            self._too_many = True
            return
        self._too_many = False
        self._count += 1
        attempt = told["attempt"]
        about = told["event"] if attempt is None else f"{told['event']} (attempt {attempt})"
        title = f"{about}: {_title(hook)}"
        request = {
            "id": self._count,
            "title": title,
            "command": hook.command,
            "env": variables(told),
            "told": json.dumps(told) + "\n",
            "timeout_s": self._timeout_s,
        }
        asked = self._asked[self._count] = _Asked(number, title, told["event"] in _ENDS, request)
        if asked.ends and self._beside is not None:
            self._beside.run(request)
            return
        self._porter.run(request)
        if asked.ends:
            self._overtake_later(_PATIENCE_S)

    def _overtake_later(self, after_s: float) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(after_s, self._overtake)

    def _overtake(self) -> None:
        """Have ends not wait any longer for what they wait for, unless that is of an end itself."""
        self._timer = None
        waiting = [asked for asked in self._asked.values() if asked.ends and not asked.begun]
        if not waiting or self._patient or self._beside is not None:
            return
        left_s = waiting[0].since + _PATIENCE_S - time.monotonic()
        if left_s <= 0 and any(asked.begun and not asked.ends for asked in self._asked.values()):
            self._porter.skip()
        self._overtake_later(max(left_s, _PATIENCE_S / 4))

    def _skipped(self, ids: list[int]) -> None:
        """What has not begun: ends are run beside, what was told before the first of them is not so any more."""
        first = next((id_ for id_ in ids if self._asked[id_].ends), 0)
        beside = self._second() if first else None
        late: list[str] = []
        for id_ in ids:
            asked = self._asked[id_]
            if beside is not None and id_ < first:
                late.append(self._asked.pop(id_).title)
            elif beside is not None and asked.ends:
                beside.run(asked.request)
            else:
                self._porter.run(asked.request)
        if late:
            self._console.error(f"{plural(len(late), 'hook')} left out, one before goes on and on: {_titles(late)}")
        if beside is not None and self._leave_at is not None:
            beside.finish(max(0.0, self._leave_at - time.monotonic()), self._term_s)

    def _second(self) -> Carrier | None:
        """Another porter, None if there can be none; it is tried once."""
        try:
            self._beside = self._carrier()
        except OSError as error:
            self._console.error(f"hooks: no second process to run them: {error.strerror}")
            self._patient = True
            return None
        self._beside.listen()
        return self._beside

    # --- what is heard of them ----------------------------------------------------------------------------------------

    def _heard(self, message: wire.Message) -> None:
        match message["event"]:
            case "began":
                if message["id"] in self._asked:
                    self._asked[message["id"]].begun = True
            case "skipped":
                self._skipped([id_ for id_ in message["ids"] if id_ in self._asked])
            case "dropped":
                self._dropped += len(message["ids"])
                for id_ in message["ids"]:
                    self._asked.pop(id_, None)
            case "over" if (asked := self._asked.pop(message["id"], None)) is not None:
                self._ended(asked.hook, message["failure"])

    def _ended(self, number: int, failure: str | None) -> None:
        """One is over; what is wrong with it is said once."""
        if failure and number not in self._failed:
            self._failed.add(number)
            hook = self._hooks[number]
            self._console.error(f"hook --on {hook.on} {_title(hook)}: {failure}; see {self._log}")

    def _killed(self) -> None:
        self._asked.clear()
        if not self._said_killed:
            self._console.error("hooks are not run any more: what runs them was killed")
        self._said_killed = True

    def _say_what_is_waited_for(self, within_s: float) -> None:
        titles = [asked.title for asked in self._asked.values()]
        told = f"waiting for {plural(len(titles), 'hook')}, at most {round(within_s, 1):g} s: {_titles(titles)}"
        self._console.line("hooks", told)

    def _leave(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for porter in self._porters:
            porter.leave()
        if self._dropped:
            self._console.error(f"{plural(self._dropped, 'hook')} not run any more, supervise leaves")
        self._dropped = 0
        self._asked.clear()


def _times(timeout_s: float, most_s: float | None) -> tuple[float, float]:
    """When what runs gets SIGTERM, in seconds from now, and how many seconds after that SIGKILL."""
    if most_s is None:
        return timeout_s, TERM_S
    term_s = min(TERM_S, most_s * _TERM_PART)
    return min(timeout_s, most_s - term_s - min(_KILL_S, most_s * _KILL_PART)), term_s


def _title(hook: Hook) -> str:
    return shorten(printable(private(hook.command)), _TITLE_WIDTH)


def _titles(titles: list[str]) -> str:
    return shorten("; ".join(titles), _TITLES_WIDTH)
