"""The story that the live view tells: what it makes of the news, moment by moment."""

from __future__ import annotations

import pytest

from supervise.model import news
from supervise.report.scene import Phase, Story

BEFORE = {"start": 14.0, "config": 2.0, "weights": 60.0, "server": 4.0}


def entered(state: str) -> news.Entered:
    return news.Entered(state, 7, None, None, 1_700_000_000.0)


def progressed(phase: str, percent: float | None = None, *, new: bool = True) -> news.Progressed:
    return news.Progressed(phase, percent, None, None, 0.0, None, new)


@pytest.fixture
def story() -> Story:
    told = Story("X", "http://0.0.0.0:8000")
    told.hear(entered("starting"), 99.0)
    told.hear(news.Launched(7, "/log", 1), 100.0)
    return told


def test_nothing_is_seen_before_a_launch() -> None:
    assert Story("X", "").scene(0.0) is None


@pytest.mark.parametrize("state", ["sweeping", "done"])
def test_nothing_is_seen_while_the_slate_may_ask_nor_in_the_end(story: Story, state: str) -> None:
    assert story.begun
    story.hear(entered(state), 101.0)
    assert not story.begun
    assert story.scene(102.0) is None


def test_phases_have_the_seconds_that_they_took(story: Story) -> None:
    story.hear(progressed("config"), 110.0)
    story.hear(progressed("weights"), 112.0)
    scene = story.scene(113.0)
    assert scene is not None
    assert scene.elapsed_s == 13
    assert scene.phases == (Phase("start", 10.0), Phase("config", 2.0), Phase("weights", 1.0))
    assert scene.eta == ""


def test_those_still_to_come_are_known_from_earlier_attempts(story: Story) -> None:
    story.remember(7, [BEFORE])
    story.hear(progressed("config"), 114.0)
    story.hear(progressed("weights"), 116.0)
    scene = story.scene(126.0)
    assert scene is not None
    assert scene.phases[-2:] == (Phase("weights", 10.0, 60.0), Phase("server", None, 4.0))
    assert scene.eta == "ETA 54 s"


def test_those_of_another_attempt_are_not(story: Story) -> None:
    story.remember(6, [BEFORE])
    scene = story.scene(101.0)
    assert scene is not None
    assert scene.phases == (Phase("start", 1.0),)


def test_the_bar_is_better_than_what_was(story: Story) -> None:
    story.remember(7, [BEFORE])
    story.hear(progressed("weights", 50.0), 116.0)
    scene = story.scene(126.0)
    assert scene is not None
    assert (scene.percent, scene.eta) == (50.0, "ETA 14 s")


def test_ready_does_not_change_while_nothing_happens(story: Story) -> None:
    story.hear(entered("ready"), 160.0)
    assert story.scene(161.0) == story.scene(16_100.0)


def test_ready_takes_a_fatal_line_back(story: Story) -> None:
    story.hear(news.WasFatal("out of memory", None), 150.0)
    loading = story.scene(151.0)
    assert loading is not None
    assert loading.fatal == "out of memory"
    story.hear(entered("ready"), 160.0)
    ready = story.scene(161.0)
    assert ready is not None
    assert ready.fatal == ""


def test_the_stop_is_timed_from_its_beginning(story: Story) -> None:
    story.hear(entered("stopping"), 200.0)
    story.hear(news.Ending("SIGINT", asked=True, restarts=False, within_s=30), 200.0)
    story.hear(entered("killing"), 205.0)
    scene = story.scene(207.0)
    assert scene is not None
    assert (scene.elapsed_s, scene.why) == (7, "SIGINT")


def test_what_has_ended_the_wait_is_what_it_began_anew_for(story: Story) -> None:
    story.hear(news.Relaunching(7, None, "", "KeyError", "deterministic"), 200.0)
    story.hear(entered("sweeping")._replace(cut_short="a change: x.py"), 210.0)
    story.hear(entered("starting"), 211.0)
    story.hear(news.Launched(8, "/log", 2), 211.0)
    scene = story.scene(212.0)
    assert scene is not None
    assert (scene.restarts, scene.restarted_for) == (1, "a change: x.py")


@pytest.mark.parametrize(("after_s", "eta"), [(10.0, "in 8 s"), (None, "")])
def test_the_wait_counts_down_and_is_remembered(story: Story, after_s: float | None, eta: str) -> None:
    story.hear(news.Relaunching(7, after_s, "transient", "no memory", "transient"), 200.0)
    story.hear(entered("waiting"), 200.0)
    scene = story.scene(202.0)
    assert scene is not None
    assert (scene.eta, scene.why) == (eta, "no memory")
    story.hear(entered("starting"), 210.0)
    story.hear(news.Launched(8, "/log", 2), 210.0)
    again = story.scene(211.0)
    assert again is not None
    assert (again.attempt, again.restarts, again.restarted_for, again.fatal) == (8, 1, "no memory", "")
