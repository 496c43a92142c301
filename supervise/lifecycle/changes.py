"""What becomes of a change of a watched file, and when it is looked for. Pure: the time is an argument."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from supervise.model.watch import OnChange


class Then(StrEnum):
    """What becomes of it: the stop path and a relaunch, the same later, a word to people, or nothing."""

    RELAUNCH = "relaunch"
    LATER = "later"
    ASK = "ask"
    NOTHING = "nothing"


# Whatever changes before the launch is what is launched; after the end nothing is.
_UNMOVED = ("sweeping", "done")


def follows(on_change: OnChange, state: str, *, ending: bool) -> Then:
    """Decide about a change.

    Args:
        on_change: the user's choice.
        state: of the run, named as in run.json.
        ending: whether the stop path is under way because somebody has asked for the end, or for a relaunch.
    """
    if state in _UNMOVED or ending:
        return Then.NOTHING
    if on_change is OnChange.ASK:
        return Then.ASK
    if on_change is OnChange.AFTER_READY and state == "starting":
        return Then.LATER
    return Then.RELAUNCH


@dataclass(frozen=True, slots=True)
class Pace:
    """How often is looked, in seconds: once it has been quiet for `quiet_s`, after `most_s` also if it never is.

    Without a notice every `idle_s`. Looks may take up `share` of the time, those without a notice a tenth of that.
    """

    quiet_s: float = 0.4
    most_s: float = 5.0
    idle_s: float = 10.0
    share: float = 0.1


DEAF = Pace(idle_s=1.0)
"""Where there are no notices."""
_IDLE = 10


class Debounce:
    """When the next look is due.

    Args:
        pace: how often.
        now: monotonic seconds.
    """

    def __init__(self, pace: Pace, now: float) -> None:
        self.pace = pace
        self._first: float | None = None
        self._last = self._looked = now
        self._cost_s = 0.0

    def noticed(self, now: float) -> None:
        """Something may have changed."""
        self._first, self._last = now if self._first is None else self._first, now

    def looked(self, began: float, now: float) -> None:
        """A look is over; what was noticed before it began is known now."""
        self._cost_s, self._looked = now - began, now
        if self._last <= began:
            self._first = None

    @property
    def awaited(self) -> bool:
        """Whether there was a notice that no look has followed."""
        return self._first is not None

    @property
    def due(self) -> float:
        """When the next look is due, in monotonic seconds."""
        pace = self.pace
        if self._first is None:
            return self._looked + max(pace.idle_s, self._cost_s * _IDLE / pace.share)
        rested = self._looked + self._cost_s / pace.share
        return max(rested, min(self._last + pace.quiet_s, self._first + pace.most_s))
