"""What is known of a run at this moment, told from the news. Pure: the clock is an argument."""

from __future__ import annotations

from typing import Any, NamedTuple

from supervise.model import news


class Facts(NamedTuple):
    """What people want to know of a run that lives; `None` where it is not known or makes no sense now.

    `ready_at` and `relaunch_at` are in seconds since the epoch, `within_s` is how long its stop path may take once it
    has begun, `exit_status` is that of supervise once it is over.
    """

    state: str | None = None
    attempt: int | None = None
    phase: str | None = None
    percent: float | None = None
    ready_at: float | None = None
    stalled: str | None = None
    cause: str | None = None
    log: str | None = None
    pid: int | None = None
    ready_s: float | None = None
    relaunch_at: float | None = None
    within_s: float | None = None
    exit_status: int | None = None
    why: str | None = None

    @property
    def over(self) -> bool:
        """Whether supervise is about to leave."""
        return self.exit_status is not None

    def differ(self, before: Facts) -> bool:
        """Whether anybody would want to be told; a percentage counts as whole ones, an estimate does not count."""
        return _told(self) != _told(before)

    def to_data(self, now: float) -> dict[str, Any]:
        """As it is sent.

        Args:
            now: seconds since the epoch.
        """
        said = self._asdict()
        ready_at = said.pop("ready_at")
        return {**said, "eta_s": None if ready_at is None else round(max(0.0, ready_at - now), 1), "over": self.over}


def _told(facts: Facts) -> Facts:
    percent = None if facts.percent is None else float(int(facts.percent))
    # Of a stall how long it lasts, not every figure of the CPU.
    stalled = facts.stalled and facts.stalled.partition(";")[0]
    return facts._replace(percent=percent, stalled=stalled, ready_at=None, relaunch_at=None)


def after(facts: Facts, heard: news.News, now: float) -> Facts:
    """What is known once this has been heard.

    Args:
        facts: what was known.
        heard: what has happened.
        now: seconds since the epoch.
    """
    match heard:
        case news.Entered():
            return _entered(facts, heard)
        case news.Launched(attempt, log, pid):
            return facts._replace(attempt=attempt, log=log, pid=pid)
        case news.Progressed():
            ready_at = None if heard.eta_s is None else now + heard.eta_s
            return facts._replace(phase=heard.phase, percent=heard.percent, ready_at=ready_at, stalled=None)
        case news.Working():
            return facts._replace(stalled=heard.stall)
        case news.Stalled(_, text):
            return facts._replace(stalled=text)
        case news.BecameReady(attempt, seconds, _):
            return facts._replace(attempt=attempt, ready_s=round(seconds, 1), **_UNDERWAY)
        case news.WasFatal(text, meaning):
            return facts._replace(cause=text or meaning)
        case news.WasHung(proofs):
            return facts._replace(cause="; ".join(proofs) or facts.cause)
        case _:
            return _ended(facts, heard, now)


_UNDERWAY: dict[str, Any] = {"percent": None, "ready_at": None, "stalled": None}


def _entered(facts: Facts, heard: news.Entered) -> Facts:
    if heard.state == "sweeping":
        # Another attempt: what is known of the last one belongs to that.
        return Facts(state=heard.state, attempt=facts.attempt)
    known = facts._replace(
        state=heard.state,
        attempt=heard.attempt or facts.attempt,
        phase=heard.phase or facts.phase,
        cause=heard.cause or facts.cause,
    )
    return known if heard.state == "starting" else known._replace(**_UNDERWAY)


def _ended(facts: Facts, heard: news.News, now: float) -> Facts:
    match heard:
        case news.Ending(why=why, within_s=within_s):
            return facts._replace(why=why, within_s=within_s)
        case news.Ended():
            return facts._replace(cause=heard.cause or facts.cause, pid=None)
        case news.Relaunching():
            relaunch_at = None if heard.after_s is None else round(now + heard.after_s, 1)
            return facts._replace(relaunch_at=relaunch_at, why=heard.why, cause=heard.cause or None)
        case news.Over(exit_status, why, cause):
            return facts._replace(exit_status=exit_status, why=why or facts.why, cause=cause or facts.cause, pid=None)
    return facts
