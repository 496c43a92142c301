"""What there is to count about a run: heard in the loop's thread, read in others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from supervise.model import news as told
from supervise.model.diagnosis import FailureClass

if TYPE_CHECKING:
    from supervise.model.news import News

STATES = ("sweeping", "starting", "ready", "capturing", "stopping", "killing", "verifying", "waiting", "done")
ASKED = "asked"
CLASSES = (*(failure.value for failure in FailureClass), ASKED)
KILL_BOUNDS_S = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0)
# Ids of signatures are a bounded set, and so are kinds of findings; a user's own profile may still have a thousand.
_MOST_SERIES = 200
_OTHER = "other"

Labels = tuple[str, ...]


class Tally:
    """Hears what happens, and keeps of it what can be counted.

    Args:
        clock: monotonic seconds.

    Attributes:
        up: whether supervise is at work; `exit_status` is what it left with, None before.
        restarts: launches after the first, by class of what the attempt before failed of.
        failures: attempts that failed, by outcome, class and signature.
        findings: what dirtied a slate, by kind.
        ready_s: seconds until the newest attempt was ready, None if it is not or never was.
        log: path of its log; `log_bytes` is how long that was in the end, None before.
        kills: how many attempts were ended within each of KILL_BOUNDS_S.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.state, self.up = STATES[0], True
        self.exit_status: int | None = None
        self.attempt: int | None = None
        self.attempts = self.stalls = self.hangs = 0
        self.restarts: Counter[Labels] = Counter({(name,): 0 for name in CLASSES})
        self.failures: Counter[Labels] = Counter()
        self.findings: Counter[Labels] = Counter()
        self.ready_s: float | None = None
        self.kills: Counter[float] = Counter()
        self.ends, self.ends_s, self.survivors = 0, 0.0, 0
        self.log: str | None = None
        self.log_bytes: int | None = None
        self._clock = clock
        self._next_class = FailureClass.UNKNOWN.value
        self._phases: dict[str, float] = {}
        self._phase: tuple[str, float] | None = None

    def hear(self, news: News) -> None:
        """Something has happened."""
        match news:
            case told.Stalled():
                self.stalls += 1
            case told.WasHung():
                self.hangs += 1
            case told.Swept():
                self._swept(news)
            case told.Progressed(phase=phase):
                self._enter_phase(phase)
            case told.Ended():
                self._ended(news)
            case _:
                self._went_on(news)

    def phases(self) -> dict[str, float]:
        """Seconds in each phase of the newest attempt's start-up, with the one that goes on."""
        phase, closed = self._phase, self._phases
        if phase is None:
            return dict(closed)
        name, since = phase
        return {**closed, name: closed.get(name, 0.0) + self._clock() - since}

    def _went_on(self, news: News) -> None:
        match news:
            case told.Entered(state=state):
                self.state = state
            case told.Launched():
                self._launched(news)
            case told.BecameReady(seconds=seconds, phases=phases):
                self.ready_s = seconds
                self._close_phases(phases)
            case told.Relaunching(failure=failure) if failure in CLASSES:
                self._next_class = failure
            case told.Over(exit_status=status):
                self.state, self.up, self.exit_status = STATES[-1], False, status

    def _swept(self, news: told.Swept) -> None:
        for finding in (*(outcome.finding for outcome in news.result.outcomes), *news.result.obstacles):
            _count(self.findings, (finding.kind,))

    def _launched(self, news: told.Launched) -> None:
        """A relaunch counts once it has happened: until then it may still be called off."""
        if self.attempts:
            self.restarts[self._next_class,] += 1
        self.attempts += 1
        self.attempt, self.log, self.log_bytes = news.attempt, news.log, None
        self._phases, self._phase, self.ready_s = {}, None, None

    def _ended(self, news: told.Ended) -> None:
        failure = news.failure or FailureClass.UNKNOWN.value
        if news.failure is not None or not news.asked:
            _count(self.failures, (news.outcome, failure, news.signature or ""))
        self._next_class = ASKED if news.asked else failure
        self._close_phases(news.phases)
        self.ready_s = news.ready_s
        self.ends += 1
        self.ends_s += news.stop_s
        self.kills.update(bound for bound in KILL_BOUNDS_S if news.stop_s <= bound)
        self.survivors, self.log_bytes = news.survivors, news.log_bytes

    def _enter_phase(self, phase: str) -> None:
        if self._phase is None or self._phase[0] != phase:
            self._phases = self.phases()
            self._phase = (phase, self._clock())

    def _close_phases(self, phases: Mapping[str, float]) -> None:
        self._phases, self._phase = dict(phases) or self.phases(), None


def _count(counter: Counter[Labels], labels: Labels) -> None:
    """Count one more; where there are too many series already, under a common name for what tells them apart."""
    if labels not in counter and len(counter) >= _MOST_SERIES:
        labels = (*labels[:-1], _OTHER)
    counter[labels] += 1
