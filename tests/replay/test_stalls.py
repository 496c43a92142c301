"""Histories of servers that stand still while they start, and of those that only seem to: a clock that jumps."""

from __future__ import annotations

import json
import re
import signal
from functools import partial
from pathlib import Path

import pytest

from supervise.model.effort import Effort, Look
from supervise.model.exits import Exit
from supervise.model.process import ProcessId
from supervise.probes import Answer
from supervise.runner.plan import Options
from supervise.runner.world import World
from tests.replay import test_histories as histories
from tests.replay.test_histories import UP, Stage, asked, ended, leader, log, once_more, probe, wait

WEIGHTS = "(Worker pid=3) INFO 07-30 12:00:00 [gpu_worker.py:1] Starting to load model m..."
CONFIG = "INFO 07-30 12:00:00 [utils.py:233] non-default args: {}"
LEADER = ProcessId(7, 70)


class Group:
    """What the looks of a history see: so much CPU and so many bytes more per look, and how often they looked."""

    def __init__(self) -> None:
        self.cpu_s = self.read = 0.0
        self.looks = 0
        self.broken = False

    def look(self, _root: int, _gpus: bool) -> Look:
        self.looks += 1
        if self.broken:
            raise OSError(24, "Too many open files")
        return Look({LEADER: Effort(5 + self.cpu_s * self.looks, 0, 2**20, int(self.read * self.looks))})


@pytest.fixture
def group(monkeypatch) -> Group:
    made = Group()
    monkeypatch.setattr(histories, "World", partial(World, effort=made.look))
    return made


@pytest.fixture
def stage(tmp_path, short_dir, monkeypatch, group):
    monkeypatch.setenv("TMPDIR", str(short_dir))
    return Stage(tmp_path / "state", options=Options(stall_timeout_s=100.0))


def sets(group: Group, **what):
    return lambda _stage: [setattr(group, name, value) for name, value in what.items()]


def told(stage: Stage) -> str:
    return stage.out.getvalue()


def test_a_stall_is_said_then_acted_upon(stage):
    done = stage.run(log(CONFIG, WEIGHTS), *[wait] * 130, leader(0), ended())
    assert done.status == Exit.NOT_READY
    assert "stalled  no progress for 4" in told(stage)
    assert " in weights; disk reads 0, network 0, CPU 0 %\n" in told(stage)
    assert "unless something moves (--stall-timeout)" in told(stage)
    said, acted = told(stage).index("stalled  "), told(stage).index("stop     ")
    assert said < acted
    outcome = stage.outcome()
    assert (outcome["outcome"], outcome["exit_status"], outcome["failed"]) == ("not-ready", 90, True)
    assert "no progress for 2 min in weights" in json.dumps(outcome["cause"])


def test_it_is_taken_back_when_something_moves(stage, group):
    acts = (log(WEIGHTS), *[wait] * 45, sets(group, read=2**20), *[wait] * 45, sets(group, read=0.0))
    stage.run(*acts, asked(signal.SIGTERM), leader(0), ended())
    assert told(stage).count("stalled  ") == 1
    assert "loading  goes on again after" in told(stage)
    assert stage.keeper.asked == ["spawn", "stop"]


@pytest.mark.parametrize("moving", [{"read": 2**20}, {"cpu_s": 5.0}], ids=["reads a file", "burns a CPU"])
def test_one_that_is_silent_but_works_is_left_alone(stage, group, moving):
    stage.run(log(WEIGHTS), sets(group, **moving), *[wait] * 140, log(UP), probe(Answer.YES), *[wait] * 3,
              asked(signal.SIGTERM), leader(0), ended())  # fmt: skip
    assert "ready    in" in told(stage)


def test_one_that_spins_for_ever_is_not(stage, group):
    done = stage.run(log(WEIGHTS), sets(group, cpu_s=5.0), *[wait] * 330, leader(0), ended())
    assert done.status == Exit.NOT_READY
    assert "CPU 100 %" in json.dumps(stage.outcome()["cause"])
    assert "it is ended in 3 min unless something moves (--stall-timeout)" in told(stage), "180 of its 300 s are left"


def test_the_total_deadline_may_come_first(stage):
    stage.options = Options(stall_timeout_s=100.0, ready_timeout_s=60.0)
    stage.run(log(WEIGHTS), *[wait] * 70, leader(0), ended())
    assert re.search(r"it is ended in 1\d s \(--ready-timeout\)", told(stage))


def test_a_line_now_and_then_that_means_progress_keeps_it(stage):
    bars = [
        (log(f"Loading safetensors checkpoint shards: {p}% Completed | {p}/100 [00:00<?, ?it/s]"), *[wait] * 15)
        for p in range(1, 10)
    ]
    stage.run(log(WEIGHTS), *[act for bar in bars for act in bar], log(UP), probe(Answer.YES), *[wait] * 3,
              asked(signal.SIGTERM), leader(0), ended())  # fmt: skip
    assert "ready    in" in told(stage)
    assert "stalled" not in told(stage)


def test_who_wants_it_only_said_gets_no_end(stage):
    stage.options = Options(stall_timeout_s=0.0)
    stage.run(log(CONFIG), *[wait] * 350, asked(signal.SIGTERM), leader(0), ended())
    assert "stalled  no progress for 4 min in config" in told(stage)
    assert stage.keeper.asked == ["spawn", "stop"]


def test_where_nothing_can_be_read_the_total_deadline_is_left(stage, group):
    group.broken = True
    stage.options = Options(stall_timeout_s=20.0, ready_timeout_s=100.0)
    done = stage.run(log(WEIGHTS), *[wait] * 130, leader(0), ended())
    assert done.status == Exit.NOT_READY
    assert "stalled" not in told(stage)
    assert "--ready-timeout" in json.dumps(stage.outcome()["cause"])


def test_once_it_is_ready_it_may_be_as_silent_as_it_likes(stage):
    stage.run(log(WEIGHTS), wait, log(UP), probe(Answer.YES), *[wait] * 250,
              asked(signal.SIGTERM), leader(0), ended())  # fmt: skip
    assert "ready    in" in told(stage)
    assert "stalled" not in told(stage)
    assert stage.keeper.asked == ["spawn", "stop"]


def test_the_second_time_it_is_known_how_long_it_takes(stage):
    life = (log(CONFIG), *[wait] * 5, log(WEIGHTS), *[wait] * 9, log(UP), probe(Answer.YES), *[wait] * 3)
    stage.run(*life, asked(signal.SIGTERM), leader(0), ended())
    assert "ETA" not in told(stage)
    stage = once_more(stage)
    stage.probed = histories.Probed(Answer.SILENT)
    seen: list[dict] = []
    stage.run(log(CONFIG), wait, wait, lambda stage: seen.append(stage.run_.read_state()), *life[6:],
              asked(signal.SIGTERM), leader(0), ended())  # fmt: skip
    assert "loading  config  +1.0 s  ETA 17 s\n" in told(stage)
    assert "loading  weights  +5.0 s  ETA 11 s\n" in told(stage)
    launched_at = Path(stage.run_.latest().path, "server.log").stat().st_mtime
    assert seen[0]["ready_eta"] - launched_at == pytest.approx(17, abs=10)
