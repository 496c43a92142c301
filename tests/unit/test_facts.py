"""What people who watch a run are told, news by news."""

from __future__ import annotations

import pytest

from supervise.lifecycle.patience import Limits, Watch, look_again
from supervise.model import news
from supervise.model.effort import Effort, Look
from supervise.model.process import ProcessId
from supervise.runner.facts import Facts, after

NOW = 1000.0


def entered(state: str, attempt: int | None = None, phase: str | None = None, cause: str | None = None) -> news.Entered:
    return news.Entered(state, attempt, phase, cause, NOW)


def progressed(percent: float | None, eta_s: float | None = None, phase: str = "loading weights") -> news.Progressed:
    return news.Progressed(phase, percent, None, None, 1.0, eta_s, new=False)


ENDED = news.Ended(3, 1, "died", "boom", "unknown", None, None, None, {}, 0.1, 0, 10, asked=False, log="/l")
STARTING = Facts(state="starting", attempt=3, phase="loading weights", percent=40.0, ready_at=NOW + 30)


def heard(*told: news.News, first: Facts = Facts()) -> Facts:  # noqa: B008 - it is frozen
    facts = first
    for each in told:
        facts = after(facts, each, NOW)
    return facts


@pytest.mark.parametrize(
    ("before", "told", "expected"),
    [
        (Facts(), entered("sweeping"), Facts(state="sweeping")),
        (
            STARTING._replace(cause="boom", log="/l", pid=7, ready_s=2.0, relaunch_at=1.0),
            entered("sweeping"),
            Facts(state="sweeping", attempt=3),
        ),
        (STARTING, news.Launched(4, "/l", 7), STARTING._replace(attempt=4, log="/l", pid=7)),
        (STARTING._replace(stalled="x"), progressed(41.5, 20.0), STARTING._replace(percent=41.5, ready_at=NOW + 20)),
        (STARTING, progressed(None), STARTING._replace(percent=None, ready_at=None)),
        (STARTING, news.Stalled("p", "no progress for 4 min"), STARTING._replace(stalled="no progress for 4 min")),
        (STARTING._replace(stalled="x"), news.Working("p", 1.0, 240.0), STARTING),
        (STARTING._replace(stalled="x"), news.Working("p", 1.0, 240.0, "y"), STARTING._replace(stalled="y")),
        (STARTING, entered("ready", 3), STARTING._replace(state="ready", percent=None, ready_at=None)),
        (STARTING, news.WasFatal("boom", "it means"), STARTING._replace(cause="boom")),
        (STARTING, news.WasHung(("a", "b")), STARTING._replace(cause="a; b")),
        (
            STARTING,
            news.Ending("SIGTERM", asked=True, restarts=False, within_s=9.0),
            STARTING._replace(why="SIGTERM", within_s=9.0),
        ),
        (STARTING._replace(pid=7), ENDED, STARTING._replace(cause="boom")),
        (
            STARTING,
            news.Relaunching(3, 4.0, "may help", "boom", "unknown"),
            STARTING._replace(relaunch_at=NOW + 4, why="may help", cause="boom"),
        ),
        (STARTING, news.Over(96, "gave up", None), STARTING._replace(exit_status=96, why="gave up")),
    ],
)
def test_each_of_the_news(before: Facts, told: news.News, expected: Facts) -> None:
    assert after(before, told, NOW) == expected


def test_ready_knows_how_long_it_took() -> None:
    assert heard(news.BecameReady(3, 12.34, {}), first=STARTING).ready_s == 12.3


def test_a_status_of_zero_is_an_end_as_well() -> None:
    assert heard(news.Over(0, None, None)).over
    assert not STARTING.over


def test_what_nobody_wants_to_be_told_of() -> None:
    assert not STARTING._replace(percent=40.9, ready_at=5.0).differ(STARTING)
    assert STARTING._replace(percent=41.0).differ(STARTING)
    assert STARTING._replace(stalled="x").differ(STARTING)


def test_an_estimate_is_told_from_now_on_and_is_never_negative() -> None:
    assert STARTING.to_data(NOW + 10)["eta_s"] == 20.0
    assert STARTING.to_data(NOW + 100)["eta_s"] == 0.0
    assert "ready_at" not in STARTING.to_data(NOW)


def test_one_that_is_busy_and_gets_nowhere_stays_stalled():
    busy, watch, facts = ProcessId(1, 1), None, STARTING
    for second in range(0, 900, 5):
        look = Look({busy: Effort(100.0 + second, 0, 0, 0)})
        if watch is None:
            watch = Watch(look)
            continue
        watch, verdict = look_again(watch, look, "weights", Limits(600.0), seconds=5.0, period_s=5.0)
        facts = after(facts, news.Working("weights", verdict.clock_s, verdict.patience_s, verdict.text), NOW)
        if verdict.news:
            facts = after(facts, news.Stalled("weights", verdict.text), NOW)
    assert facts.stalled is not None
    assert facts.stalled.startswith("no progress for 15 min in weights"), "it grows"


def test_of_a_stall_every_minute_is_told_and_not_every_figure() -> None:
    stalled = STARTING._replace(stalled="no progress for 4 min in p; CPU 1 %")
    assert not stalled._replace(stalled="no progress for 4 min in p; CPU 2 %").differ(stalled)
    assert stalled._replace(stalled="no progress for 5 min in p; CPU 1 %").differ(stalled)
