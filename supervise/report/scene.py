"""What the live view tells at one moment, and the story that it is told from: kept from the news, without a clock."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from supervise.attempts import eta
from supervise.model import news as told
from supervise.model.news import News
from supervise.model.profile import BEFORE_PHASES
from supervise.text import roughly

_ENDING = frozenset({"capturing", "stopping", "killing", "verifying"})
_HIDDEN = frozenset({"sweeping", "done"})


class Phase(NamedTuple):
    """A part of start-up: the seconds that it took, or has taken until now; None if it is still to come.

    `usual_s` is what it took in earlier attempts, None where nobody knows.
    """

    name: str
    seconds: float | None
    usual_s: float | None = None


class Card(NamedTuple):
    """The memory of a GPU, in bytes."""

    label: str
    used: int
    total: int


@dataclass(frozen=True, slots=True)
class Scene:
    """What is shown. `state` is named as in run.json, `elapsed_s` are whole seconds since it is of interest.

    `phases` are in order; the present one is the last that has seconds. `percent`, `done` of `total` are how far that
    is, None where nobody knows. `why` says what the last restart came of, what the server is ended for, or what is
    waited for. `since` is when it became ready, as people say it. `keys` are those that are taken; `help`: they are
    explained.
    """

    run: str
    attempt: int
    state: str
    elapsed_s: int = 0
    eta: str = ""
    phases: tuple[Phase, ...] = ()
    percent: float | None = None
    done: int | None = None
    total: int | None = None
    fatal: str = ""
    why: str = ""
    restarts: int = 0
    restarted_for: str = ""
    url: str = ""
    since: str = ""
    log: tuple[str, ...] = ()
    cards: tuple[Card, ...] = ()
    keys: str = ""
    help: bool = False


@dataclass(slots=True)
class _Attempt:
    """Of one: `began` maps each phase to the moment it began, in order; moments are monotonic seconds."""

    number: int
    began: dict[str, float]
    progress: told.Progressed | None = None
    fatal: str = ""
    since: str = ""
    ending: str = ""
    ends_at: float = 0.0
    next_at: float | None = None
    before: Sequence[Mapping[str, float]] = field(default=())


class Story:
    """What has happened so far.

    Args:
        run: name of the run.
        url: where the server will answer.

    Attributes:
        cards: the GPUs, as they were read last.
        state: the run's, as in run.json.
    """

    def __init__(self, run: str, url: str) -> None:
        self.cards: tuple[Card, ...] = ()
        self.state = "sweeping"
        self._run, self._url = run, url
        self._restarts, self._restarted_for = 0, ""
        self._attempt: _Attempt | None = None

    @property
    def begun(self) -> bool:
        """Whether there is something to be shown: not while the slate may have to ask, and not in the end."""
        return self._attempt is not None and self.state not in _HIDDEN

    def hear(self, news: News, now: float) -> None:
        """Something has happened, at this moment (monotonic seconds)."""
        if isinstance(news, told.Launched):
            self._attempt = _Attempt(news.attempt, {BEFORE_PHASES: now})
        elif isinstance(news, told.Entered):
            self._enter(news, now)
        elif self._attempt is not None:
            self._add(self._attempt, news, now)

    def remember(self, attempt: int, before: Sequence[Mapping[str, float]]) -> None:
        """How long the phases of earlier attempts took, newest first."""
        if self._attempt is not None and self._attempt.number == attempt:
            self._attempt.before = before

    def scene(self, now: float) -> Scene | None:
        """What is to be seen at this moment; None if that is nothing."""
        attempt = self._attempt
        if attempt is None or not self.begun:
            return None
        scene = Scene(
            self._run,
            attempt.number,
            self.state,
            restarts=self._restarts,
            restarted_for=self._restarted_for,
            url=self._url,
            fatal=attempt.fatal,
            cards=self.cards,
        )
        if self.state == "ready":
            return replace(scene, since=attempt.since)
        if self.state == "waiting":
            left = None if attempt.next_at is None else max(0.0, attempt.next_at - now)
            return replace(scene, why=attempt.ending, eta="" if left is None else f"in {roughly(left)}")
        if self.state in _ENDING:
            return replace(scene, why=attempt.ending, elapsed_s=int(now - attempt.ends_at))
        return _starting(scene, attempt, now)

    def _enter(self, news: told.Entered, now: float) -> None:
        if self._attempt is not None and news.state in _ENDING and self.state not in _ENDING:
            self._attempt.ends_at = now
        self.state = news.state
        if news.cut_short:
            self._restarted_for = news.cut_short
        if self._attempt is not None and news.state == "ready":
            self._attempt.since = self._attempt.since or _moment(news.at)
            self._attempt.fatal = ""

    def _add(self, attempt: _Attempt, news: News, now: float) -> None:
        match news:
            case told.Progressed():
                attempt.began.setdefault(news.phase, now)
                attempt.progress = news
            case told.WasFatal():
                attempt.fatal = news.text
            case told.Ending():
                attempt.ending = news.why
            case told.Relaunching():
                self._restarts += 1
                self._restarted_for = attempt.ending = news.cause or news.why
                attempt.next_at = None if news.after_s is None else now + news.after_s


def _starting(scene: Scene, attempt: _Attempt, now: float) -> Scene:
    moments = [*attempt.began.values(), now]
    elapsed_s = now - moments[0]
    spent = {name: end - start for name, (start, end) in zip(attempt.began, pairwise(moments), strict=True)}
    usual = _usual(attempt.before)
    progress = attempt.progress
    percent = progress.percent if progress else None
    expected = eta.remaining(attempt.before, spent, percent)
    to_come = [name for name in usual if name not in spent]
    return replace(
        scene,
        elapsed_s=int(elapsed_s),
        eta=expected.told(elapsed_s),
        phases=(
            *(Phase(name, round(seconds, 1), usual.get(name)) for name, seconds in spent.items()),
            *(Phase(name, None, usual[name]) for name in to_come),
        ),
        percent=percent,
        done=progress.done if progress else None,
        total=progress.total if progress else None,
    )


def _usual(before: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The phases of the newest of them, in its order, with the middle one of what each took."""
    if not before:
        return {}
    return {name: median(phases[name] for phases in before if name in phases) for name in before[0]}


def _moment(at: float) -> str:
    """When that was, as a clock on the wall here would show it."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
