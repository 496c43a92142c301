"""Whole histories through the real runner, with a stand-in keeper, host and clock: no process, no waiting."""

from __future__ import annotations

import asyncio
import errno
import io
import json
import os
import shutil
import signal
import socket
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from supervise import lifecycle as life
from supervise.attempts.store import Run
from supervise.group import wire
from supervise.model.exits import Exit
from supervise.model.need import Need, Port
from supervise.model.process import ProcessId
from supervise.model.slate import Finding, Ownership, SlateResult
from supervise.model.tier import Tier, Tiers
from supervise.probes import Answer, Probed
from supervise.profiles.load import load
from supervise.report.console import Console
from supervise.runner.loop import Loop
from supervise.runner.performer import Performer
from supervise.runner.plan import Options, Plan
from supervise.runner.world import World
from supervise.slate.aftermath import Aftermath
from tests.support.virtual import play

NEED = Need("vllm", "r", (), (), ports=(Port(8000, "", "http", "default"),))
UP = "INFO:     Application startup complete."
FATAL = "(Worker pid=3) ERROR 11-30 06:05:08 [multiproc_executor.py:953] "
TRACEBACK = [
    FATAL + "WorkerProc failed to start.",
    FATAL + "Traceback (most recent call last):",
    FATAL + '  File "vllm/model_executor/models/llama.py", line 412, in load_weights',
    FATAL + "KeyError: 'model.layers.0.mlp.experts.w13_weight_scale'",
]


class StandInKeeper:
    """Speaks the keeper's protocol over a real socketpair, as the history tells it to."""

    def __init__(self) -> None:
        self.channel, self._far = socket.socketpair()
        self.channel.setblocking(False)
        self.id, self.guard, self.leaf = ProcessId(2**22 + 1, 1), ProcessId(2**22 + 2, 1), None
        self.segments_before: frozenset = frozenset()
        self.strangers: frozenset = frozenset()
        self.asked: list[str] = []
        self._splitter = wire.Splitter()

    def say(self, event: str, **more) -> None:
        self._far.send(wire.encode({"event": event, **more}))

    def ended(self, survivors=()) -> None:
        self.say("ended", survivors=list(survivors), pids=[7], sent=[[7, 15]], seconds=1.0, removed=[], left=[])

    def events(self):
        try:
            data = self.channel.recv(65536)
        except BlockingIOError:
            return []
        return self._splitter.feed(data) if data else None

    def spawn(self, program, argv, env, **more) -> None:
        self.asked.append("spawn")
        self.env = env
        self.say("spawned", pid=7, ticks=70)

    def stop(self, deadlines) -> None:
        self.asked.append("stop")

    def escalate(self) -> None:
        self.asked.append("escalate")

    def note(self) -> None:
        pass

    def proceed(self) -> None:
        self.asked.append("proceed")

    def helpers(self) -> frozenset:
        return frozenset()

    def signal(self, signum) -> None:
        self.asked.append(f"signal {signum}")

    def hang_up(self) -> None:
        self._far.close()

    def close(self) -> None:
        self.channel.close()
        self._far.close()


def result(*obstacles: Finding) -> SlateResult:
    return SlateResult("r", (), obstacles, (), ("port 8000 bindable",), 0.1)


@dataclass
class Stage:
    """One history's world: what the slate says, what probes find, and the acts that drive it."""

    path: Path
    slate: SlateResult | Exception = field(default_factory=result)
    probed: Probed = field(default_factory=lambda: Probed(Answer.SILENT))
    keeper: StandInKeeper = field(default_factory=StandInKeeper)
    out: io.StringIO = field(default_factory=io.StringIO)
    options: Options = field(default_factory=Options)

    def run(self, *acts) -> life.Done:
        return play(self._run(acts))

    async def _run(self, acts) -> life.Done:
        run = Run(str(self.path), "r")
        run.create()
        io_loop = asyncio.get_running_loop()
        self.loop = Loop(life.Sweeping())
        plan = Plan(load("vllm"), NEED, {}, self.options)
        world = World(
            sweep=self._sweep,
            start_keeper=lambda: self.keeper,
            tiers=Tiers((Tier.SUBREAPER,), None, {}),
            probe=lambda _members: self.probed,
            aftermath=lambda _gpus, _pids: Aftermath(("port 8000 free",)),
            clock=io_loop.time,
            in_thread=self._at_once,
        )
        self.run_ = run
        performer = Performer(self.loop, plan, ["vllm", "serve", "m"], "/bin/vllm", run, Console(self.out), world)
        io_loop.set_exception_handler(lambda _, context: performer.broken(context["exception"]))
        performer.begin()
        playing = asyncio.ensure_future(self._play(acts))
        try:
            done = await self.loop.run(performer)
            performer.conclude(done)
            return done
        finally:
            playing.cancel()
            performer.release()

    async def _play(self, acts) -> None:
        await asyncio.sleep(1)
        for act in acts:
            act(self)
            await asyncio.sleep(1)

    async def _at_once(self, function, *arguments):
        return function(*arguments)

    def _sweep(self, _cancelled, _helpers) -> SlateResult:
        if isinstance(self.slate, Exception):
            raise self.slate
        return self.slate

    def outcome(self) -> dict:
        attempt = self.run_.latest()
        assert attempt is not None
        return attempt.read("outcome")


def log(*lines: str):
    def act(stage: Stage) -> None:
        with open(stage.run_.latest().log, "a") as file:
            file.writelines(f"{line}\n" for line in lines)

    return act


def probe(answer: Answer, detail: str = ""):
    return lambda stage: setattr(stage, "probed", Probed(answer, detail))


def asked(signum: int):
    return lambda stage: stage.loop.post(life.StopAsked(signum))


def leader(status: int):
    return lambda stage: stage.keeper.say("leader", status=status)


def ended(*survivors):
    return lambda stage: stage.keeper.ended(survivors)


def wait(_stage: Stage) -> None:
    pass


def hang_up(stage: Stage) -> None:
    stage.keeper.hang_up()


@pytest.fixture
def stage(tmp_path, short_dir, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(short_dir))
    return Stage(tmp_path / "state")


def once_more(stage: Stage) -> Stage:
    """The same run, started again."""
    stage.keeper.close()
    stage.keeper = StandInKeeper()
    return stage


def test_a_good_life(stage):
    done = stage.run(log(UP), probe(Answer.YES), wait, asked(signal.SIGTERM), leader(0), ended())
    assert done == life.Done(143, reraise=signal.SIGTERM)
    assert stage.keeper.asked == ["spawn", "stop"]
    outcome = stage.outcome()
    assert (outcome["outcome"], outcome["failed"], outcome["verified"]) == ("asked", False, True)
    assert "ready    in" in stage.out.getvalue()
    assert "verified 0 processes left, port 8000 free" in stage.out.getvalue()


def test_the_ready_line_alone_is_not_ready(stage):
    done = stage.run(log(UP), wait, wait, asked(signal.SIGTERM), leader(0), ended())
    assert done.reraise == signal.SIGTERM
    assert stage.outcome()["ready_s"] is None


def test_an_answer_alone_is_ready_only_after_a_while(stage):
    stage.run(probe(Answer.YES), *[wait] * 15, asked(signal.SIGTERM), leader(0), ended())
    assert stage.outcome()["ready_s"] > 10


def test_death_while_loading_is_named_and_deterministic(stage):
    done = stage.run(log(*TRACEBACK), leader(1), ended())
    assert done.status == Exit.DETERMINISTIC
    cause = stage.outcome()["cause"]
    assert cause["text"] == "KeyError: 'model.layers.0.mlp.experts.w13_weight_scale'"
    assert (cause["process"], cause["class"]) == ("Worker", "deterministic")


def test_death_with_status_0_after_ready_is_a_failure(stage):
    done = stage.run(log(UP), probe(Answer.YES), wait, leader(0), ended())
    assert done.status == Exit.ENDED_BY_ITSELF
    assert stage.outcome()["failed"]


def test_a_fatal_line_that_lingers_ends_the_group(stage):
    stage.keeper.stop = lambda _deadlines: (stage.keeper.asked.append("stop"), stage.keeper.ended())
    done = stage.run(log(*TRACEBACK))
    assert stage.keeper.asked == ["spawn", "stop"]
    assert done.status == Exit.DETERMINISTIC
    assert stage.outcome()["outcome"] == "fatal"


def test_a_stop_after_a_fatal_line_does_not_make_it_unsaid(stage):
    done = stage.run(log(*TRACEBACK), wait, asked(signal.SIGTERM), log("KeyError: 'late'"), leader(0), ended())
    assert done == life.Done(143, reraise=signal.SIGTERM)
    outcome = stage.outcome()
    assert (outcome["outcome"], outcome["exit_status"], outcome["failed"]) == ("asked", 143, True)
    assert outcome["cause"]["text"] == "KeyError: 'model.layers.0.mlp.experts.w13_weight_scale'"
    assert "cause    KeyError" in stage.out.getvalue()


@pytest.mark.parametrize("mine", [True, False])
def test_frames_of_what_is_watched_are_the_user_s(stage, tmp_path, mine):
    (patched := tmp_path / "lib/site-packages/helper/a.py").parent.mkdir(parents=True)
    stage.options = Options(watch=(str(patched.parent),) if mine else ())
    calls = [f'  File "{patched}", line 3, in patched', '  File "/x/site-packages/numpy/b.py", line 9, in deep']
    stage.run(log("Traceback (most recent call last):", *calls, "OddError: 1"), leader(1), ended())
    assert ("in patched (helper/a.py:3)" in stage.outcome()["cause"]["meaning"]) is mine


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ((), "The server exited with 4. Its log could not be written, the disk is full: whatever the server said"),
        (("loading",), "The server exited with 4 and its log names no cause. But the disk of the log is full: its"),
    ],
)
def test_a_log_that_could_not_be_written(stage, monkeypatch, lines, said):
    monkeypatch.setattr("supervise.host.space.is_full", lambda _directory: True)
    stage.run(log(*lines), leader(4), ended())
    cause = stage.outcome()["cause"]
    assert cause["meaning"].startswith(said)
    assert cause["advice"][0].startswith("Make room for ")
    assert ("matches no known failure" in " ".join(cause["advice"])) is bool(lines)


def test_a_log_that_could_be_written(stage):
    stage.run(leader(4), ended())
    assert stage.outcome()["cause"]["meaning"] == "The server exited with 4 and its log names no cause."


def test_not_ready_in_time_ends_the_group(stage):
    stage.keeper.stop = lambda _deadlines: stage.keeper.ended()
    assert stage.run().status == Exit.NOT_READY
    assert stage.outcome()["cause"]["meaning"] == "not ready after 60 min (--ready-timeout)"


def test_somebody_else_on_the_port_is_not_our_readiness(stage):
    stage.keeper.stop = lambda _deadlines: stage.keeper.ended()
    done = stage.run(probe(Answer.NOT_OURS, "pid 9 nginx"), log(UP))
    assert done.status == Exit.HUNG
    assert "answered by pid 9 nginx" in stage.out.getvalue()
    assert "it is ended in 60 s" in stage.out.getvalue()
    listener = "the server says it is up, but its port is answered by pid 9 nginx"
    assert stage.outcome()["effect"] == {"listener": listener}


@pytest.mark.parametrize("line", [(), (UP,)], ids=["loads", "says it is up"])
def test_who_answers_instead_is_the_cause_at_the_deadline_as_well(stage, line):
    stage.options = Options(ready_timeout_s=14.0)
    stage.keeper.stop = lambda _deadlines: stage.keeper.ended()
    done = stage.run(probe(Answer.NOT_OURS, "a server of 'stale', while this launch serves 'm'"), log(*line))
    assert done.status == Exit.NOT_READY
    said = "not ready after 14 s (--ready-timeout): its port is answered by a server of 'stale', while this launch"
    assert stage.outcome()["cause"]["meaning"].startswith(said)


def test_a_rival_that_has_left_is_no_cause(stage):
    stage.options = Options(ready_timeout_s=14.0)
    stage.keeper.stop = lambda _deadlines: stage.keeper.ended()
    stage.run(probe(Answer.NOT_OURS, "pid 9 nginx"), wait, wait, probe(Answer.SILENT))
    assert "effect" not in stage.outcome()
    assert stage.outcome()["cause"]["meaning"] == "not ready after 14 s (--ready-timeout)"


def test_a_dirty_slate_launches_nothing(stage):
    stage.slate = result(Finding("port", "port 8000", Ownership.FOREIGN, ("held by pid 9",), remedy="kill 9"))
    assert stage.run().status == Exit.SLATE
    assert stage.keeper.asked == []
    assert stage.run_.numbers() == []
    assert "kill 9" in stage.out.getvalue()


def test_a_full_disk_is_said_once_and_ends_no_server(stage):
    def fill(stage: Stage) -> None:
        def full(_state: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        stage.run_.write_state = full

    done = stage.run(fill, log(UP), probe(Answer.YES), wait, asked(signal.SIGTERM), leader(0), ended())
    assert done.reraise == signal.SIGTERM
    assert stage.out.getvalue().count("No space left on device") == 1
    assert stage.outcome()["verified"]


def test_a_slate_that_cannot_look_launches_nothing(stage):
    stage.slate = OSError(errno.EMFILE, "Too many open files")
    assert stage.run().status == Exit.INTERNAL
    assert stage.keeper.asked == []


def test_a_second_request_escalates(stage):
    done = stage.run(asked(signal.SIGINT), asked(signal.SIGINT), leader(-9), ended())
    assert stage.keeper.asked == ["spawn", "stop", "escalate"]
    assert done == life.Done(130, reraise=signal.SIGINT)


def test_a_keeper_that_does_not_answer_is_replaced(stage):
    patience = 30 + 10 + 1 + 15 + 10
    done = stage.run(asked(signal.SIGTERM), *[wait] * (patience + 2), hang_up)
    assert "the keeper does not answer" in stage.out.getvalue()
    assert done.reraise == signal.SIGTERM
    assert stage.outcome()["verified"]


def test_a_lost_keeper_is_our_failure_not_the_server_s(stage):
    done = stage.run(log(UP), probe(Answer.YES), wait, hang_up)
    assert done == life.Done(Exit.INTERNAL)
    assert (stage.outcome()["outcome"], stage.outcome()["cause"]) == ("keeper-lost", None)


def test_crash_looking_lines_after_our_own_stop_are_no_crash(stage):
    done = stage.run(log(UP), probe(Answer.YES), wait, asked(signal.SIGTERM), log(*TRACEBACK), leader(0), ended())
    assert done.reraise == signal.SIGTERM
    assert stage.outcome()["cause"] is None
    assert "cause" not in stage.out.getvalue()


def test_survivors_outrank_everything(stage):
    survivor = {"pid": 9, "ticks": 1, "title": "VLLM::Worker", "state": "D"}
    done = stage.run(asked(signal.SIGTERM), leader(0), ended(survivor))
    assert done == life.Done(Exit.SURVIVORS)
    assert "survived  pid 9 VLLM::Worker  state D" in stage.out.getvalue()
    assert not stage.outcome()["verified"]


@pytest.mark.parametrize(("code", "status"), [(errno.ENOENT, 127), (errno.ENOEXEC, 126), (errno.EACCES, 126)])
def test_what_cannot_be_executed(stage, code, status):
    stage.keeper.spawn = lambda *_a, **_k: stage.keeper.say("failed", errno=code, error=os.strerror(code))
    assert stage.run().status == status


def test_a_dead_attempt_leaves_a_complete_record(stage):
    stage.run(log(*TRACEBACK), leader(1), ended())
    attempt = stage.run_.latest()
    record = json.loads(Path(attempt.path, "attempt.json").read_text())
    assert (record["run"], record["attempt"], record["leader"]) == ("r", 1, {"pid": 7, "ticks": 70})
    events = Path(stage.run_.path, "run.json").read_text()
    assert '"state": "done"' in events


def test_numbers_go_on_and_never_come_back(stage):
    for number in (1, 2, 3):
        once_more(stage).run(leader(1), ended())
        assert stage.run_.latest().number == number
    shutil.rmtree(stage.run_.latest().path)
    once_more(stage).run(leader(1), ended())
    assert stage.run_.latest().number == 4


def test_the_marker_is_in_the_environment_and_what_is_ours_alone_is_not(stage, monkeypatch):
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/x")
    monkeypatch.setenv("WATCHDOG_USEC", "1")
    stage.run(leader(1), ended())
    env = stage.keeper.env
    assert (env["SUPERVISE_RUN"], env["SUPERVISE_ATTEMPT"], env["SPT_NOENV"]) == ("r", "1", "1")
    assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC"} & set(env)
    assert env["TMPDIR"] == env["VLLM_RPC_BASE_PATH"]
