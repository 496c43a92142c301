"""What a server is asked for a sign of life, and what its answers mean."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from supervise.demo.forward import Count, Counters
from supervise.host import procfs, standstill
from supervise.lifecycle.hang import Seen
from supervise.model.effort import NO_LOAD, Effort, GpuLoad, Look
from supervise.model.need import Need
from supervise.model.probe import Answer, Probed
from supervise.model.process import Process, ProcessId
from supervise.probes import metrics
from supervise.probes.canary import Canary, flagged
from supervise.probes.http import MOST_BYTES, Response
from supervise.profiles.errors import ProfileError
from supervise.profiles.liveness import liveness
from supervise.profiles.load import load
from supervise.profiles.table import Table
from supervise.runner.looking import Looker

RULE = load("vllm").liveness
# As a vLLM 0.32 answers, with most of its other lines left out.
REAL = """\
# HELP python_info Python platform information
python_info{implementation="CPython",major="3",minor="11"} 1.0
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="tiny"} 1.0
vllm:num_requests_waiting{engine="0",model_name="tiny"} 0.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="tiny",reason="capacity"} 7.0
vllm:engine_sleep_state{engine="0",model_name="tiny",sleep_state="awake"} 1.0
vllm:engine_sleep_state{engine="0",model_name="tiny",sleep_state="weights_offloaded"} 0.0
vllm:kv_cache_usage_perc{engine="0",model_name="tiny"} 0.25
vllm:prompt_tokens_total{engine="0",model_name="tiny"} 10.0
vllm:prompt_tokens_created{engine="0",model_name="tiny"} 1.7960642e+09
vllm:generation_tokens_total{engine="0",model_name="tiny"} 294.0
vllm:iteration_tokens_total_bucket{engine="0",le="+Inf",model_name="tiny"} 294.0
vllm:iteration_tokens_total_count{engine="0",model_name="tiny"} 294.0
vllm:iteration_tokens_total_sum{engine="0",model_name="tiny"} 304.0
"""


def test_counters_of_a_real_server() -> None:
    told = metrics.parse(REAL, RULE)
    assert told.asleep is False
    assert (told.counters.running, told.counters.name) == (1.0, "vllm:generation_tokens_total")
    assert told.counters.progress[:3] == (294.0, 10.0, 294.0)


def test_of_several_engines_all_count() -> None:
    both = REAL + "".join(line.replace('"0"', '"1"') + "\n" for line in REAL.splitlines() if 'engine="0"' in line)
    told = metrics.parse(both, RULE)
    assert (told.counters.running, told.counters.progress[0]) == (2.0, 588.0)
    asleep = both.replace('engine="1",model_name="tiny",sleep_state="awake"} 1', 'engine="1",sleep_state="awake"} 0')
    assert metrics.parse(asleep, RULE).asleep is True


@pytest.mark.parametrize("moved", ["kv_cache_usage_perc", "iteration_tokens_total_count", "num_requests_waiting"])
def test_whatever_moves_is_progress(moved: str) -> None:
    """While a long prompt is read no token comes, but its cache fills up."""
    line = next(line for line in REAL.splitlines() if line.startswith(f"vllm:{moved}{{"))
    later = REAL.replace(line, line.rpartition(" ")[0] + " 0.5")
    assert metrics.parse(later, RULE).counters.progress != metrics.parse(REAL, RULE).counters.progress


@pytest.mark.parametrize(
    "text", ["", "<html>", "vllm:num_requests_running{ 1.0", 'vllm:num_requests_running{engine="0"} x']
)
def test_what_is_no_such_answer_tells_nothing(text: str) -> None:
    assert metrics.parse(text, RULE) == metrics.UNTOLD


def test_the_stand_in_tells_what_the_real_one_does() -> None:
    counters = Counters()
    counters.change(lambda _: Count(running=1, prompt=10, tokens=294, iterations=294, sleeping=0))
    assert metrics.parse(counters.metrics("tiny"), RULE).counters.progress[:3] == (294.0, 10.0, 294.0)
    assert metrics.parse(counters.metrics("tiny"), RULE).asleep is False
    counters.change(lambda count: count._replace(sleeping=1))
    assert metrics.parse(counters.metrics("tiny"), RULE).asleep is True


class Server:
    """Answers as told, or not at all; a question that is not answered takes all the time it is given."""

    def __init__(self, **answers: Response | None) -> None:
        self.answers = {f"/{path.replace('__', '/')}": answer for path, answer in answers.items()}
        self.asked: list[str] = []
        self.sent: object = None
        self.now = 0.0

    def get(self, path: str, timeout_s: float) -> Response | None:
        return self._answer(path, timeout_s)

    def post(self, path: str, json: object, timeout_s: float) -> Response | None:
        self.sent = json
        return self._answer(path, timeout_s)

    def _answer(self, path: str, timeout_s: float) -> Response | None:
        self.asked.append(path)
        answer = self.answers.get(path, Response(404, b""))
        self.now += timeout_s if answer is None else 0.1
        return answer


MODELS = Response(200, json.dumps({"data": [{"id": "tiny"}, {"id": "adapter"}]}).encode())


def canary(server: Server) -> Canary:
    return Canary(server, RULE, "/v1/models", lambda: server.now)


def test_a_canary_asks_the_model_for_one_token() -> None:
    server = Server(v1__models=MODELS, v1__completions=Response(200, b"{}"))
    bird = canary(server)
    assert bird.ask(60.0).answered
    assert (server.sent["model"], server.sent["max_tokens"]) == ("tiny", 1)
    bird.ask(60.0)
    assert server.asked == ["/v1/models", "/v1/completions", "/v1/completions"]


def test_a_canary_that_gets_no_answer_says_how_long_it_waited() -> None:
    asked = canary(Server(v1__models=MODELS, v1__completions=None)).ask(60.0)
    assert (asked.answered, asked.within_s) == (False, 60.0)


@pytest.mark.parametrize("status", [400, 401, 404])
def test_a_server_without_completions_is_not_asked_again(status: int) -> None:
    server = Server(v1__models=MODELS, v1__completions=Response(status, b""))
    bird = canary(server)
    assert bird.ask(60.0) is None
    assert bird.useless == f"POST /v1/completions is answered {status}"
    assert bird.ask(60.0) is None
    assert server.asked.count("/v1/completions") == 1


@pytest.mark.parametrize("status", [200, 429, 500, 503])
def test_whoever_answers_the_last_question_in_time_does_not_hang(status: int) -> None:
    """It drains, is full, or scales: that is an answer, though no token."""
    answered = canary(Server(v1__models=MODELS, v1__completions=Response(status, b""))).ask(60.0, last=True)
    assert answered is not None
    assert answered.answered
    draining = canary(Server(v1__models=Response(503, b""))).ask(60.0, last=True)
    assert draining is not None
    assert draining.answered


@pytest.mark.parametrize("status", [400, 401, 404])
def test_whoever_refuses_the_last_question_has_not_asked_its_engine(status: int) -> None:
    assert canary(Server(v1__models=MODELS, v1__completions=Response(status, b""))).ask(60.0, last=True) is None


def test_the_last_question_may_hang_as_well() -> None:
    asked = canary(Server(v1__models=MODELS, v1__completions=None)).ask(60.0, last=True)
    assert asked is not None
    assert not asked.answered
    assert canary(Server(v1__models=Response(200, b""))).ask(60.0, last=True) is None


def test_names_that_are_not_to_be_had_for_a_moment_make_no_canary_useless() -> None:
    server = Server(v1__models=Response(503, b""), v1__completions=Response(200, b""))
    bird = canary(server)
    assert bird.ask(60.0) is None
    server.answers["/v1/models"] = MODELS
    assert bird.ask(60.0).answered


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_server_with_too_much_to_do_has_answered_nothing_and_is_asked_again(status: int) -> None:
    bird = canary(Server(v1__models=MODELS, v1__completions=Response(status, b"")))
    assert bird.ask(60.0) is None
    assert bird.useless is None


def test_a_connection_that_is_refused_is_no_canary_that_waits() -> None:
    server = Server(v1__models=MODELS)
    server.post = lambda path, json, timeout_s: None
    assert canary(server).ask(60.0) is None


def test_a_server_says_that_it_holds_still() -> None:
    flags = {"/is_paused": "is_paused", "/is_sleeping": "is_sleeping"}
    assert flagged(Server(is_paused=None, is_sleeping=Response(200, b"[1")), flags) is None
    assert flagged(Server(is_paused=Response(200, b'{"is_paused": false}'), is_sleeping=None), flags) is None
    assert flagged(Server(is_sleeping=Response(200, b'{"is_sleeping": true}')), flags) == "/is_sleeping"


def test_where_a_server_does_not_tell_that_it_holds_still_it_is_not_asked_again() -> None:
    flags = {"/is_paused": "is_paused", "/is_sleeping": "is_sleeping"}
    assert flagged(Server(is_sleeping=Response(503, b"")), flags) is None
    assert list(flags) == ["/is_sleeping"]


# --- one look ---------------------------------------------------------------------------------------------------------

ENGINE, WORKER = ProcessId(5, 1), ProcessId(6, 1)


def process(pid: ProcessId, comm: str, state: str = "S") -> Process:
    return Process(pid, 1, 1, 1, state, comm, 0)


class Scene:
    """A group as a look finds it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, log: Path) -> None:
        self.members = [process(ENGINE, "VLLM::EngineCor"), process(WORKER, "VLLM::Worker")]
        self.efforts = {ENGINE: Effort(1.0, 0, 0, 0), WORKER: Effort(1.0, 0, 0, 0)}
        self.gpu: GpuLoad | None = NO_LOAD
        self.answer = Answer.YES
        self.debugger: int | None = None
        self.others = False
        self.log = log
        self.server = Server(
            metrics=Response(200, REAL.encode()), v1__models=MODELS, v1__completions=Response(200, b"")
        )
        there = "supervise.runner.looking.standstill."
        monkeypatch.setattr(there + "members", lambda _: self.members)
        monkeypatch.setattr(there + "debugged", lambda _: self.debugger)
        monkeypatch.setattr(there + "other_accelerators", lambda: self.others)
        clock = lambda: self.server.now  # noqa: E731 - short
        self.looker = Looker(
            RULE,
            Need("vllm", "r", (), ()),
            self.server,
            canary(self.server),
            1,
            lambda _: Probed(self.answer),
            lambda _root, _gpus: Look(self.efforts, 0, self.gpu),
            str(log),
            clock,
        )

    def look(self, *, canary_s: float | None = None, doubtful: bool = False) -> Seen:
        self.server.now += 10.0
        return self.looker.look(5.0, canary_s, doubtful)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Scene:
    log = tmp_path / "log"
    log.write_text("")
    return Scene(monkeypatch, log)


def test_a_look_at_a_server_in_good_health_asks_one_question(scene: Scene) -> None:
    seen = scene.look()
    assert scene.server.asked == ["/metrics"]
    assert (seen.health.answered, seen.canary, seen.excuse) == (True, None, None)


def test_the_last_question_of_a_look_takes_any_answer(scene: Scene) -> None:
    scene.server.answers["/v1/completions"] = Response(503, b"")
    assert scene.look(canary_s=60.0).canary is None
    assert scene.looker.last_question(60.0).canary.answered


def test_health_is_asked_where_the_counters_are_not_told(scene: Scene) -> None:
    scene.server.answers["/metrics"], scene.answer = None, Answer.NOT_YET
    seen = scene.look()
    assert (seen.counters, seen.health.answered) == (None, False)
    scene.answer = Answer.NOT_OURS
    assert scene.look().health is None


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Response(404, b""), "GET /metrics is answered 404: "),
        (Response(500, b""), "GET /metrics is answered 500: "),
        (Response(200, b"<html>"), "GET /metrics does not tell vllm:num_requests_running and vllm:gen"),
        (Response(200, REAL.encode().ljust(MOST_BYTES)), "GET /metrics is longer than 4 MiB: "),
    ],
)  # fmt: skip
def test_counters_that_cannot_be_read_are_told(scene: Scene, answer: Response, said: str) -> None:
    scene.server.answers["/metrics"] = answer
    seen = scene.look()
    assert seen.counters is None
    assert seen.note is not None
    assert seen.note.startswith(said)
    assert scene.look().health.answered
    assert scene.server.asked.count("/metrics") == (1 if answer.status == 404 else 2), "what is not there stays away"


def test_no_answer_is_no_unreadable_one(scene: Scene) -> None:
    scene.server.answers["/metrics"] = None
    assert scene.look().note is None


def test_a_name_is_told_whole_if_it_was_read_while_its_process_was_well(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []
    monkeypatch.setattr(
        "supervise.runner.looking.standstill.title", lambda each: (read.append(each.id), "VLLM::EngineCore_DP0")[1]
    )
    scene.members[1] = process(WORKER, "VLLM::Worker_TP", "D")
    scene.look()
    scene.look()
    assert read == [ENGINE], "once, and not of one that may hang"
    scene.members[0] = process(ENGINE, "VLLM::EngineCor", "T")
    assert scene.look().stopped == {ENGINE: "VLLM::EngineCore_DP0", WORKER: "VLLM::Worker_TP"}


def test_who_did_nothing_since_the_last_look_is_still(scene: Scene) -> None:
    assert scene.look().still is None
    assert scene.look().still is True
    scene.efforts = scene.efforts | {WORKER: Effort(9.0, 0, 0, 0)}
    assert scene.look().still is False
    scene.efforts = scene.efforts | {WORKER: Effort(9.0, 0, 0, 1 << 30)}
    assert scene.look().still is False
    scene.gpu = GpuLoad(8, 100, 1)
    assert scene.look().still is False
    scene.gpu = None
    assert scene.look().still is None
    scene.gpu, scene.others = NO_LOAD, True
    assert scene.look().still is None


def test_who_is_stopped_is_named_and_who_waits_for_the_disk_only_if_it_gets_nowhere(scene: Scene) -> None:
    scene.look()
    scene.members = [process(ENGINE, "VLLM::EngineCor", "T"), process(WORKER, "VLLM::Worker", "D")]
    scene.efforts = scene.efforts | {WORKER: Effort(1.5, 0, 0, 0)}
    assert scene.look().stopped == {ENGINE: "VLLM::EngineCor"}
    assert scene.look().stopped == {ENGINE: "VLLM::EngineCor", WORKER: "VLLM::Worker"}


def test_a_compiler_a_debugger_and_sleep_excuse_everything(scene: Scene) -> None:
    scene.members = [*scene.members, process(ProcessId(8, 1), "ptxas")]
    assert scene.look().excuse == "ptxas compiles"
    scene.members, scene.debugger = scene.members[:2], 5
    assert scene.look().excuse == "pid 5 has a debugger"
    scene.debugger = None
    slept = REAL.replace('sleep_state="awake"} 1', 'sleep_state="awake"} 0')
    scene.server.answers["/metrics"] = Response(200, slept.encode())
    assert scene.look(canary_s=60.0).excuse == "it sleeps"
    assert "/v1/completions" not in scene.server.asked


def test_whether_it_is_paused_is_asked_in_doubt_only(scene: Scene) -> None:
    scene.server.answers["/is_paused"] = Response(200, b'{"is_paused": true}')
    assert scene.look().excuse is None
    assert scene.look(doubtful=True).excuse == "/is_paused says so"


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["VLLM::EngineCore_DP0"], "VLLM::EngineCore_DP0"),
        (["VLLM::EngineCore_DP0", "-"], "VLLM::EngineCor"),
        (["-"], "VLLM::EngineCor"),
    ],
    ids=["renamed", "a command line", "something else"],
)
def test_only_a_title_is_told_whole(tmp_path: Path, argv: list[str], expected: str) -> None:
    (program := tmp_path / "VLLM::EngineCore_DP0").symlink_to(shutil.which("cat") or "")
    with subprocess.Popen(argv, executable=program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as cat:
        assert cat.stdin is not None
        assert cat.stdout is not None
        os.write(cat.stdin.fileno(), b"x")
        assert os.read(cat.stdout.fileno(), 1) == b"x", "it runs"
        seen = procfs.read(cat.pid)
        assert seen is not None
        assert seen.comm == "VLLM::EngineCor"
        assert standstill.title(seen) == expected
        assert standstill.title(replace(seen, id=ProcessId(cat.pid, 1))) == "VLLM::EngineCor", "another's pid by now"


def test_words_of_the_log_count_once_each_from_now_on(scene: Scene) -> None:
    line = "(Worker pid=6) INFO 11-30 [shm_broadcast.py:111] No available shared memory broadcast block found in 60 seconds.\n"  # noqa: E501
    scene.log.write_text(line)
    assert scene.look().said == 0
    with scene.log.open("a") as log:
        log.write(line + "something else\n" + line)
    assert scene.look().said == 2
    assert scene.look().said == 0
    scene.log.write_text("")
    assert scene.look().said == 0


# --- the profile ------------------------------------------------------------------------------------------------------


def table(**changes: object) -> Table:
    good = {"hang_timeout_s": 360, "metrics": "/metrics", "running": "r", "progress": ["p"]}
    return Table("x.toml", {**good, **changes})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hang_timeout_s": "long"}, "hang_timeout_s"),
        ({"metrics": "metrics"}, "absolute path"),
        ({"progress": []}, "progress"),
        ({"awake": {"metric": "m"}}, "label"),
        ({"paused": {"is_paused": "x"}}, "is_paused"),
        ({"says": ["("]}, "says"),
        ({"canary": 1}, "not a known key"),
    ],
)
def test_a_damaged_table_is_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ProfileError, match=said):
        liveness(table(**changes))


def test_no_table_means_that_nothing_is_known() -> None:
    assert liveness(Table("x.toml", {})) is None
    assert load("generic").liveness is None


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_the_time_outs_of_the_engines_come_first(name: str) -> None:
    assert load(name).liveness.hang_timeout_s > 300
    assert replace(load(name).liveness, metrics=None).completions == "/v1/completions"


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf"])
def test_what_is_no_count_is_not_counted(value: str) -> None:
    rule = load("vllm").liveness
    assert rule is not None
    assert (
        metrics.parse(f'{rule.running}{{engine="0"}} {value}\n{rule.progress[0]}{{engine="0"}} 1\n', rule).counters
        is None
    )
