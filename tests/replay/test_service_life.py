"""Histories of a service that is asked to begin anew, that hangs, and that others listen to."""

from __future__ import annotations

import asyncio
import signal

import pytest

from supervise import lifecycle as life
from supervise.model import news
from supervise.model.exits import Exit
from supervise.model.restart import Policy, When
from supervise.probes import Answer, Probed
from supervise.profiles.load import load
from supervise.report.console import Console
from supervise.runner.audience import Audience
from supervise.runner.listeners import Company
from supervise.runner.plan import Options, Plan
from supervise.runner.service import Service
from tests.replay.test_histories import NEED, UP, asked, ended, leader, log, wait
from tests.replay.test_restarts import PORT_TAKEN, Stage, failing

RETURNS = (asked(signal.SIGTERM), leader(0), ended())


class Ear:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.heard: list[news.News] = []

    def hear(self, told: news.News) -> None:
        self.heard.append(told)

    def close(self) -> None:
        self.heard.append("closed")

    def of(self, kind):
        return [each for each in self.heard if isinstance(each, kind)]


class Deaf(Ear):
    """Fails at the second thing that it is told."""

    def hear(self, told: news.News) -> None:
        super().hear(told)
        if len(self.heard) == 2:
            raise OSError(28, "No space left on device")


class Listened(Stage):
    """The same stage with listeners."""

    def __init__(self, *arguments) -> None:
        super().__init__(*arguments)
        self.listeners = [Ear()]

    @property
    def ear(self) -> Ear:
        return self.listeners[0]

    async def _run(self, acts) -> life.Done:
        plan = Plan(load("vllm"), NEED, {}, Options(restart=self.policy))
        console = Console(self.out)
        audience = Audience(self.listeners, console)
        company = Company(audience)
        service = Service(["vllm", "serve", "m"], "/bin/vllm", plan, self.run_, console, self, company)
        self.loop = service
        playing = asyncio.ensure_future(self._play(acts))
        try:
            return await service.run()
        finally:
            playing.cancel()


@pytest.fixture
def stage(tmp_path, short_dir, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(short_dir))
    return Listened(tmp_path / "state", None)


def up(stage):
    stage.probed = Probed(Answer.YES)


def again(stage):
    stage.loop.post(life.RestartAsked())


def hung(stage):
    stage.loop.post(life.Hung(("3 requests run and no token came for 6 min", "the canary got no answer in 60 s")))


def obedient(stage):
    """From now on the group ends as soon as it is told to."""
    stage.keeper.stop = lambda _deadlines: (
        stage.keeper.asked.append("stop"),
        stage.keeper.say("leader", status=0),
        stage.keeper.ended(),
    )


def test_a_restart_is_the_stop_path_and_then_the_next_attempt(stage):
    done = stage.run(log(UP), up, wait, again, leader(0), ended(), wait, *RETURNS)
    assert done == life.Done(143, reraise=signal.SIGTERM)
    assert [keeper.asked for keeper in stage.keepers] == [["spawn", "stop"], ["spawn", "stop"]]
    first = stage.outcome(1)
    assert (first["outcome"], first["failed"], first["exit_status"]) == ("asked", False, 0)
    assert "restart  asked to restart: attempt 1 is over" in stage.out.getvalue()
    (relaunching,) = stage.ear.of(news.Relaunching)
    assert (relaunching.after_s, relaunching.failure) == (0.0, "asked")
    assert [ending.restarts for ending in stage.ear.of(news.Ending)] == [True, False]


def test_it_is_the_same_while_it_starts(stage):
    stage.run(again, leader(0), ended(), wait, *RETURNS)
    assert len(stage.keepers) == 2


def test_a_stop_takes_a_restart_back(stage):
    done = stage.run(again, asked(signal.SIGTERM), leader(0), ended(), wait)
    assert done == life.Done(143, reraise=signal.SIGTERM)
    assert len(stage.keepers) == 1


def test_a_restart_of_what_is_dying_begins_anew_whatever_the_policy(stage):
    done = stage.run(log(*PORT_TAKEN), leader(1), again, ended(), wait, *RETURNS)
    assert done.reraise == signal.SIGTERM
    assert len(stage.keepers) == 2
    assert (stage.outcome(1)["failed"], stage.outcome(1)["exit_status"]) == (True, 1)


def test_a_restart_ends_the_wait(stage):
    stage.policy = Policy(When.ON_FAILURE)
    stage.run(*failing(*PORT_TAKEN), again, wait, *RETURNS)
    assert len(stage.keepers) == 2


def test_nothing_begins_anew_where_something_survived(stage):
    survivor = {"pid": 9, "title": "x", "state": "D"}
    done = stage.run(again, leader(0), ended(survivor), wait)
    assert done == life.Done(Exit.SURVIVORS)
    assert len(stage.keepers) == 1


def test_a_hang_ends_with_its_proofs(stage):
    done = stage.run(log(UP), up, wait, obedient, hung, wait)
    assert done == life.Done(Exit.HUNG)
    outcome = stage.outcome(1)
    assert (outcome["outcome"], outcome["cause"]["end"]) == ("hung", "hung")
    assert "3 requests run and no token came for 6 min; the canary got no answer" in outcome["cause"]["meaning"]
    assert "it hangs: 3 requests run" in stage.out.getvalue()


def test_a_hang_is_tried_again_where_the_policy_has_it(stage):
    stage.policy = Policy(When.ON_FAILURE)
    done = stage.run(log(UP), up, wait, obedient, hung, *[wait] * 7, *RETURNS)
    assert done.reraise == signal.SIGTERM
    assert len(stage.keepers) == 2


def test_what_never_was_ready_does_not_hang(stage):
    stage.run(hung, wait, *RETURNS)
    assert stage.outcome(1)["outcome"] == "asked"


def test_a_stall_is_the_cause_of_not_being_ready(stage):
    done = stage.run(obedient, lambda stage: stage.loop.post(life.StartExpired("no progress for 4 min")), wait)
    assert done == life.Done(Exit.NOT_READY)
    assert stage.outcome(1)["cause"]["meaning"] == "no progress for 4 min"


def test_who_listens_hears_all_of_it_in_order(stage):
    stage.policy = Policy(When.ON_FAILURE)
    stage.run(*failing(*PORT_TAKEN), *[wait] * 6, log(UP), up, wait, *RETURNS)
    kinds = [type(each).__name__ for each in stage.ear.heard if not isinstance(each, news.Entered | news.Progressed)]
    kinds = [kind for kind in kinds if kind != "Working"]
    assert kinds == [
        *("Swept", "Launched", "WasFatal", "Ending", "Ended", "Relaunching"),
        *("Swept", "Launched", "BecameReady", "Ending", "Ended", "Over", "str"),
    ]
    first, second = stage.ear.of(news.Ended)
    assert (first.attempt, first.signature, first.failure, first.asked) == (1, "address-in-use", "transient", False)
    assert (second.attempt, second.cause, second.asked) == (2, None, True)
    states = [(each.state, each.attempt) for each in stage.ear.of(news.Entered)]
    assert states[:2] == [("sweeping", None), ("starting", 1)]
    assert ("waiting", 1) in states
    assert stage.ear.of(news.Over)[0].exit_status == 143


def test_one_who_fails_is_told_nothing_any_more_and_harms_nobody(stage):
    stage.listeners = [Ear(), Deaf()]
    done = stage.run(log(UP), up, wait, *RETURNS)
    assert done.reraise == signal.SIGTERM
    assert stage.out.getvalue().count("deaf fails and is not used any more") == 1
    assert len(stage.listeners[1].heard) == 2
    assert len(stage.ear.heard) > 8


def test_a_line_that_was_called_fatal_is_forgiven_to_what_serves(stage):
    fatal = ("Traceback (most recent call last):", "OSError: [Errno 98] Address already in use")
    seen: list = []
    done = stage.run(
        log(*fatal),
        wait,
        log(UP),
        up,
        wait,
        lambda stage: seen.append(stage.run_.read_state()),
        *[wait] * 120,
        *RETURNS,
    )
    assert done.reraise == signal.SIGTERM, "it was left alone for longer than a dying one would have been"
    assert (seen[0]["state"], seen[0].get("cause")) == ("ready", None)
    assert "it serves all the same" in stage.out.getvalue()
    assert [each.cause for each in stage.ear.of(news.Entered) if each.state == "ready"] == [None]


def test_what_it_says_after_that_counts_again(stage):
    fatal = ("Traceback (most recent call last):", "OSError: [Errno 98] Address already in use")
    core = "(EngineCore pid=3) ERROR 11-30 06:05:08 [core.py:1093] "
    frame = '  File "/x/vllm/v1/engine/core.py", line 1084, in run_engine_core'
    says = ("EngineCore encountered a fatal error.", "Traceback (most recent call last):", frame, "RuntimeError: boom")
    dead = [core + text for text in says]
    done = stage.run(log(*fatal), wait, log(UP), up, wait, wait, obedient, log(*dead), *[wait] * 120, *RETURNS)
    assert done.status == Exit.HUNG
    assert stage.outcome(1)["outcome"] == "fatal"
