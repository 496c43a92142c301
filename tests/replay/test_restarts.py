"""Histories of several attempts through the real runner: stand-in keepers, a stand-in host, a clock that jumps."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
from pathlib import Path

import pytest

from supervise import lifecycle as life
from supervise.attempts.store import Run, StoreError
from supervise.lifecycle.restart import Restarts
from supervise.model.exits import Exit
from supervise.model.restart import Policy, When
from supervise.model.slate import Finding, Ownership
from supervise.model.tier import Tier, Tiers
from supervise.probes import Answer, Probed
from supervise.profiles.load import load
from supervise.report.console import Console
from supervise.runner.plan import Options, Plan
from supervise.runner.service import Service
from supervise.runner.world import World
from supervise.slate.aftermath import Aftermath
from tests.replay.test_histories import (
    NEED,
    TRACEBACK,
    UP,
    StandInKeeper,
    asked,
    ended,
    hang_up,
    leader,
    log,
    result,
    wait,
)
from tests.support.virtual import play

PORT_TAKEN = ("Traceback (most recent call last):", "OSError: [Errno 98] Address already in use")
ODD = ("Traceback (most recent call last):", '  File "x.py", line 1, in f', "OddError: 1")


class Stage:
    """One service's world, renewed for each attempt; what the acts do, they do to the present one."""

    def __init__(self, path: Path, policy: Policy | None) -> None:
        self.policy = policy
        self.watch: tuple[str, ...] = ()
        self.out = io.StringIO()
        self.keepers: list[StandInKeeper] = []
        self.slates = [result()]
        self.probed = Probed(Answer.SILENT)
        self.run_ = Run(str(path), "r")
        self.run_.create()

    @property
    def keeper(self) -> StandInKeeper:
        return self.keepers[-1]

    def run(self, *acts) -> life.Done:
        return play(self._run(acts))

    async def _run(self, acts) -> life.Done:
        plan = Plan(load("vllm"), NEED, {}, Options(restart=self.policy, watch=self.watch))
        service = Service(["vllm", "serve", "m"], "/bin/vllm", plan, self.run_, Console(self.out), self)
        self.loop = service
        playing = asyncio.ensure_future(self._play(acts))
        try:
            return await service.run()
        finally:
            playing.cancel()

    async def _play(self, acts) -> None:
        await asyncio.sleep(1)
        for act in acts:
            act(self)
            await asyncio.sleep(1)

    def world(self) -> World:
        self.probed = Probed(Answer.SILENT)
        self.keepers.append(keeper := StandInKeeper())
        return World(
            sweep=lambda _cancelled, _helpers: self.slates.pop(0) if len(self.slates) > 1 else self.slates[0],
            start_keeper=lambda: keeper,
            tiers=Tiers((Tier.SUBREAPER,), None, {}),
            probe=lambda _members: self.probed,
            aftermath=lambda _gpus, _pids: Aftermath(("port 8000 free",)),
            clock=asyncio.get_running_loop().time,
            in_thread=self._at_once,
        )

    def renew(self) -> None:
        assert self.keeper.channel.fileno() == -1, "what held the last attempt is let go of before the next one"

    async def _at_once(self, function, *arguments):
        return function(*arguments)

    def outcome(self, number: int) -> dict:
        return self.run_.attempt(number).read("outcome")

    def events(self) -> list[dict]:
        return [json.loads(line) for line in Path(self.run_.path, "events.jsonl").read_text().splitlines()]


@pytest.fixture
def stage(tmp_path, short_dir, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(short_dir))
    return Stage(tmp_path / "state", Policy(When.ON_FAILURE, most=3))


def failing(*lines):
    """One attempt that dies of that; the wait after it takes less than the acts' two seconds more."""
    return (log(*lines), leader(1), ended())


def waits(seconds: int):
    return [wait] * seconds


def look(into: list):
    return lambda stage: into.append(stage.run_.read_state())


def test_without_a_policy_there_is_one_attempt(stage):
    stage.policy = None
    assert stage.run(*failing(*PORT_TAKEN)) == life.Done(1)
    assert len(stage.keepers) == 1
    assert "restart" not in stage.out.getvalue()


def test_what_may_pass_is_tried_again_after_a_wait(stage):
    seen: list = []
    done = stage.run(*failing(*PORT_TAKEN), look(seen), *waits(6), asked(signal.SIGTERM), leader(0), ended())
    assert done == life.Done(143, reraise=signal.SIGTERM)
    assert [keeper.asked for keeper in stage.keepers] == [["spawn"], ["spawn", "stop"]]
    assert "restart  attempt 1 failed: address-in-use; relaunch in" in stage.out.getvalue()
    assert "(transient, 1 of 3)" in stage.out.getvalue()
    assert seen[0]["state"] == "waiting"
    assert seen[0]["cause"]["text"] == "OSError: [Errno 98] Address already in use"
    assert seen[0]["cause"]["signature"] == "address-in-use"
    assert seen[0]["relaunch_at"] > 0
    assert (stage.outcome(1)["exit_status"], stage.outcome(2)["outcome"]) == (1, "asked")
    assert {event["attempt"] for event in stage.events() if event["state"] == "starting"} == {1, 2}
    states = [event["state"] for event in stage.events()]
    assert states.count("waiting") == 1
    assert states[states.index("waiting") + 1] == "sweeping"
    (waiting,) = (event for event in stage.events() if event["state"] == "waiting")
    assert waiting["relaunch_at"] - waiting["time"] == pytest.approx(4.5, abs=0.6)


def test_each_attempt_has_its_own_marker_and_log(stage):
    stage.run(*failing(*PORT_TAKEN), *waits(6), asked(signal.SIGTERM), leader(0), ended())
    assert [keeper.env["SUPERVISE_ATTEMPT"] for keeper in stage.keepers] == ["1", "2"]
    assert len({keeper.env["SUPERVISE_ID"] for keeper in stage.keepers}) == 2
    logs = [Path(stage.run_.attempt(number).log).read_text() for number in (1, 2)]
    assert "Errno 98" in logs[0]
    assert logs[1] == ""


def test_what_would_fail_the_same_way_is_not(stage):
    assert stage.run(*failing(*TRACEBACK)).status == Exit.DETERMINISTIC
    assert len(stage.keepers) == 1
    assert "restart  no relaunch: it would fail the same way (deterministic)\nexit     93" in stage.out.getvalue()


def patch(path: Path):
    return lambda _stage: path.write_text("patched")


def test_what_was_patched_meanwhile_is_launched_again(stage, tmp_path):
    (model := tmp_path / "model.py").write_text("")
    stage.watch = (str(tmp_path),)
    term = asked(signal.SIGTERM)
    done = stage.run(log("loading"), patch(model), *failing(*TRACEBACK), *waits(6), *failing(*TRACEBACK), term)
    assert "(a file has changed, 1 of 3)" in stage.out.getvalue()
    assert (done.status, len(stage.keepers)) == (128 + signal.SIGTERM, 2)


def test_what_was_patched_before_the_launch_is_what_failed(stage, tmp_path):
    (model := tmp_path / "model.py").write_text("")
    stage.watch = (str(model),)
    term = asked(signal.SIGTERM)
    done = stage.run(*failing(*PORT_TAKEN), patch(model), *waits(6), *failing(*TRACEBACK), *waits(60), term)
    assert "waits for a change of a watched file" in stage.out.getvalue()
    assert (done.status, len(stage.keepers)) == (128 + signal.SIGTERM, 2)


def test_without_a_policy_a_failure_waits_for_a_change_and_begins_nothing_by_itself(stage, tmp_path):
    stage.policy, stage.watch = None, (str(tmp_path),)
    done = stage.run(*failing(*PORT_TAKEN), *waits(600), asked(signal.SIGTERM))
    assert (done.status, len(stage.keepers)) == (128 + signal.SIGTERM, 1)
    stage.watch = ()
    assert stage.run(*failing(*PORT_TAKEN)).status == 1


def test_two_deaths_alike_without_a_word(stage):
    done = stage.run(leader(4), ended(), *waits(6), leader(4), ended())
    assert done.status == Exit.GAVE_UP
    told = stage.out.getvalue()
    assert "attempt 1 failed: exited with 4; relaunch in" in told
    assert "history  same cause as attempt 1" in told
    assert "gave up: exited with 4, like attempt 1, and nobody printed a cause" in told
    assert (stage.outcome(2)["cause"]["fingerprint"], stage.outcome(2)["cause"]["end"]) == (None, "exited with 4")


def test_a_relaunch_that_fails_of_a_full_disk_is_on_record(stage):
    def full(stage):
        def refuse():
            raise StoreError("cannot begin an attempt in x: No space left on device")

        stage.run_.open_attempt = refuse

    with pytest.raises(StoreError):
        stage.run(*failing(*PORT_TAKEN), full, *waits(6))
    why = "the relaunch failed: cannot begin an attempt in x: No space left on device"
    assert stage.run_.read_state()["ended"] == {"exit_status": 125, "why": why}


def test_the_same_cause_twice_is_the_end(stage):
    done = stage.run(*failing(*PORT_TAKEN), *waits(6), *failing(*PORT_TAKEN))
    assert done.status == Exit.DETERMINISTIC
    assert "no relaunch: the same cause as attempt 1 at the same phase" in stage.out.getvalue()
    assert stage.out.getvalue().count("history  same cause as attempt 1") == 1
    assert (stage.outcome(2)["exit_status"], stage.outcome(2)["same_as"]) == (93, 1)


def test_what_has_served_for_long_in_between_may_fail_of_the_same_again(stage):
    def up(stage):
        stage.probed = Probed(Answer.YES)

    done = stage.run(
        *failing(*PORT_TAKEN),
        *waits(6),
        log(UP),
        up,
        *waits(610),
        *failing(*PORT_TAKEN),
        *waits(6),
        asked(signal.SIGTERM),
        leader(0),
        ended(),
    )
    assert done.reraise == signal.SIGTERM
    assert len(stage.keepers) == 3
    assert "attempt 2 failed" in stage.out.getvalue()


def test_enough_is_enough(stage):
    stage.policy = Policy(When.ALWAYS, most=2)
    done = stage.run(*failing(*ODD), *waits(6), *failing(*PORT_TAKEN), *waits(11), *failing(*ODD))
    assert done.status == Exit.GAVE_UP
    assert "restart  gave up after 2 restarts in 1 h: 2 x OddError: 1, 1 x address-in-use\nexit     96" in (
        stage.out.getvalue()
    )


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_while_it_waits_ends_it_at_once(stage, signum):
    done = stage.run(*failing(*PORT_TAKEN), asked(signum))
    assert done == life.Done(128 + signum, reraise=signum)
    assert len(stage.keepers) == 1
    state = stage.run_.read_state()
    assert (state["state"], state.get("relaunch_at")) == ("done", None)
    why = f"stopped by {signal.Signals(signum).name} while it waited for the relaunch"
    assert state["ended"] == {"exit_status": 128 + signum, "why": why}
    assert f"stop     {signal.Signals(signum).name}: nothing runs" in stage.out.getvalue()
    assert stage.outcome(1)["exit_status"] == 1


def test_a_stop_while_the_dead_are_buried_means_that_nothing_follows(stage):
    done = stage.run(log(*PORT_TAKEN), leader(1), asked(signal.SIGTERM), ended())
    assert done == life.Done(1)
    assert stage.keepers[0].asked == ["spawn", "escalate"]
    assert len(stage.keepers) == 1
    assert stage.out.getvalue().count("exited ") == 1


def test_a_stop_that_is_read_after_the_decision_ends_the_wait(stage):
    def both(stage):
        stage.loop.post(life.GroupEnded(0))
        stage.loop.post(life.Verified(None, 0, Restarts(stage.policy, (), 1, 0.0)))
        stage.loop.post(life.StopAsked(signal.SIGTERM))

    assert stage.run(log(*PORT_TAKEN), leader(1), both) == life.Done(143, reraise=signal.SIGTERM)
    assert len(stage.keepers) == 1


def test_signals_for_a_server_mean_nothing_while_there_is_none(stage):
    def usr1(stage):
        os.kill(os.getpid(), signal.SIGUSR1)

    def winch(stage):
        os.kill(os.getpid(), signal.SIGWINCH)

    done = stage.run(*failing(*PORT_TAKEN), usr1, winch, *waits(6), usr1, asked(signal.SIGTERM), leader(0), ended())
    assert done.reraise == signal.SIGTERM
    assert stage.keepers[0].asked == ["spawn"]
    assert stage.keepers[1].asked == ["spawn", f"signal {int(signal.SIGUSR1)}", "stop"]


def test_a_slate_that_cannot_be_made_clean_ends_it(stage):
    stage.slates = [result(), result(Finding("port", "port 8000", Ownership.FOREIGN, ("pid 9",)))]
    done = stage.run(*failing(*PORT_TAKEN), *waits(6))
    assert done == life.Done(Exit.SLATE)
    why = "the relaunch was refused, the slate is not clean"
    assert stage.run_.read_state()["ended"] == {"exit_status": 94, "why": why}
    assert len(stage.run_.numbers()) == 1


def test_our_own_failures_are_not_tried_again(stage):
    assert stage.run(wait, hang_up) == life.Done(Exit.INTERNAL)
    assert len(stage.keepers) == 1


def test_what_the_last_attempt_has_yet_to_say_means_nothing_to_the_next(stage):
    """Its readiness was being looked for when it died: an answer that comes now is not the new server's."""

    def late(stage):
        stage.probed = Probed(Answer.YES)

    stage.run(log(UP), *failing(*PORT_TAKEN), late, *waits(6), *waits(20), asked(signal.SIGTERM), leader(0), ended())
    assert [event["state"] for event in stage.events()].count("ready") == 0
    assert stage.outcome(2)["ready_s"] is None


def test_earlier_attempts_are_compared_with_without_a_policy_too(stage):
    stage.policy = None
    for lines in (PORT_TAKEN, ODD, PORT_TAKEN):
        stage.run(*failing(*lines))
    told = [line for line in stage.out.getvalue().splitlines() if line.startswith("history")]
    assert told == ["history  new cause", "history  same cause as attempt 1"]
    assert [stage.outcome(number)["same_as"] for number in (1, 2, 3)] == [None, None, 1]
