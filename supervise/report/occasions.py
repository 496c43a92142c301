"""What a hook is run on, and what it is told. Pure but for the clock, which is an argument."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from supervise.model import news as told
from supervise.model.exits import Exit
from supervise.model.telling import Occasion
from supervise.report.private import private
from supervise.text import printable

if TYPE_CHECKING:
    from supervise.model.news import News

VERSION = 1
_OUTCOME_HUNG = "hung"
_VARIABLES = {
    "event": "EVENT",
    "run": "RUN_NAME",
    "engine": "ENGINE",
    "attempt": "ATTEMPT_NUMBER",
    "state": "STATE",
    "log": "LOG",
    "exit_status": "EXIT_STATUS",
    "cause": "CAUSE",
    "class": "CLASS",
    "signature": "SIGNATURE",
}
# The end of a run by a signal is one that somebody asked for: 128 and its number.
_SIGNALLED = 128


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that hooks are run on, and what they are told of it as JSON."""

    occasion: Occasion
    told: dict[str, Any]


class Occasions:
    """Hears what happens, and tells which of it is an occasion.

    A crash is an attempt that failed, asked by nobody; one that hung is no crash, it was told of before. Somebody gives
    up where supervise leaves and nobody wanted it to.

    Args:
        run: name of the run.
        engine: name of its profile.
    """

    def __init__(self, run: str, engine: str) -> None:
        self._common = {"version": VERSION, "run": run, "engine": engine}
        self._state: str | None = None
        self._attempt: int | None = None
        self._log: str | None = None
        self._asked = False

    def hear(self, news: News, now: float) -> Happening | None:
        """Something has happened.

        Args:
            news: what.
            now: seconds since the epoch.

        Returns:
            What hooks are to be told, None if it is none of their occasions.
        """
        self._remember(news)
        if (found := self._occasion(news)) is None:
            return None
        occasion, more = found
        common = {**self._common, "event": occasion.value, "time": round(now, 3)}
        said = {**common, **_EMPTY, **self._where(), **more}
        # Nothing to say is said in one way only.
        return Happening(occasion, {name: None if value == "" else value for name, value in said.items()})

    def _remember(self, news: News) -> None:
        match news:
            case told.Entered(state=state):
                self._state = state
            case told.Launched(attempt, log, _):
                self._attempt, self._log, self._asked = attempt, log, False
            case told.Ending(asked=asked) | told.Ended(asked=asked):
                self._asked = asked

    def _where(self) -> dict[str, Any]:
        return {"state": self._state, "attempt": self._attempt, "log": self._log}

    def _occasion(self, news: News) -> tuple[Occasion, dict[str, Any]] | None:
        match news:
            case told.Launched(pid=pid):
                return Occasion.LAUNCH, {"pid": pid}
            case told.BecameReady(seconds=seconds, phases=phases):
                return Occasion.READY, {"ready_s": round(seconds, 3), "phases": _rounded(phases)}
            case told.Stalled(phase, text):
                return Occasion.STALL, {"phase": phase, "why": private(text)}
            case told.WasHung(proofs):
                return Occasion.HANG, {"why": private("; ".join(proofs))}
            case told.Ending(why=why, asked=True, restarts=restarts, within_s=within_s):
                return Occasion.STOP, {"why": private(why), "restarts": restarts, "within_s": within_s}
            case told.Relaunching(_, after_s, why, cause, failure):
                more = {"why": private(why), "cause": private(cause), "class": failure}
                return Occasion.RELAUNCH, {**more, "after_s": None if after_s is None else round(after_s, 3)}
            case _:
                return self._end(news)

    def _end(self, news: News) -> tuple[Occasion, dict[str, Any]] | None:
        match news:
            case told.Ended(asked=False, outcome=outcome) if outcome != _OUTCOME_HUNG:
                return Occasion.CRASH, _ended(news)
            case told.Over(status, why, cause) if not self._asked and status != Exit.OK and not _signalled(news):
                more = {"exit_status": int(status), "why": _private(why), "cause": _private(cause)}
                return Occasion.GIVEUP, more
        return None


_EMPTY: dict[str, Any] = dict.fromkeys(
    (
        "state", "attempt", "pid", "phase", "log", "outcome", "exit_status", "cause", "class", "signature", "advice",
        "why", "ready_s", "phases", "stop_s", "survivors", "after_s", "within_s", "restarts",
    )
)  # fmt: skip
"""Every key is in every object, so that whoever reads it need not ask."""


def _ended(news: told.Ended) -> dict[str, Any]:
    return {
        "attempt": news.attempt,
        "log": news.log,
        "outcome": news.outcome,
        "exit_status": int(news.exit_status),
        "cause": _private(news.cause),
        "class": news.failure,
        "signature": news.signature,
        "advice": [private(advice) for advice in news.advice],
        "ready_s": news.ready_s,
        "phases": _rounded(news.phases),
        "stop_s": round(news.stop_s, 3),
        "survivors": news.survivors,
    }


def _signalled(news: told.Over) -> bool:
    """Whether it was stopped while it waited: no attempt says so then."""
    return news.exit_status - _SIGNALLED in (1, 2, 3, 15) and news.why is None and news.cause is None


def _private(text: str | None) -> str | None:
    return None if text is None else private(text)


def _rounded(phases: Any) -> dict[str, float]:
    return {name: round(seconds, 3) for name, seconds in phases.items()}


def variables(told: Mapping[str, Any]) -> dict[str, str]:
    """What a hook is told in its environment: the same, for those that read no JSON."""
    return {
        f"SUPERVISE_{name}": printable(str(told[key])) for key, name in _VARIABLES.items() if told.get(key) is not None
    }
