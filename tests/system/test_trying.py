"""`supervise try`: verdicts of real launches, a bisection, and a sweep that goes on where it was cut short."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.launcher import Launched, Supervise
from tests.support.readable import ROOT
from tests.support.waiting import wait_until

NOT_FREE = (
    "ValueError: Free memory on device cuda:0 (65.10/79.10 GiB) on startup is less than desired GPU memory utilization "
    "({value}, {wanted:.2f} GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."
)
# A vllm that takes a memory fraction, and does not find so much above 0.82.
FRACTION = f"""#!{sys.executable}
import os, sys
at = sys.argv.index("--gpu-memory-utilization")
value = float(sys.argv[at + 1])
words = sys.argv[1:at] + sys.argv[at + 2:]
if value > 0.82:
    words += ["--crash-at", "engine", "--crash-text", {NOT_FREE!r}.format(value=value, wanted=79.1 * value)]
os.execv(sys.executable, [sys.executable, "{ROOT}/supervise/demo/server.py", *words])
"""


def program(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def vllm(supervise: Supervise) -> str:
    """The stand-in, by a name that makes it an engine that serves completions."""
    server = f'exec {sys.executable} {ROOT}/supervise/demo/server.py "$@"'
    return program(supervise.base / "vllm", f"#!/bin/sh\n{server}\n")


def tried(supervise: Supervise, *arguments: object) -> tuple[int, dict[str, object], Launched]:
    """Exit status, the JSON, and what was launched."""
    launched = supervise.run("try", "--json", *arguments)
    assert "Traceback" not in launched.stderr, launched.stderr
    return launched.popen.returncode, json.loads(launched.stdout or "{}"), launched


def serve(vllm: str, port: int, *options: object) -> list[object]:
    return ["--", vllm, "serve", "m", "--port", port, "--load-s", 0.1, *options]


@pytest.mark.parametrize(
    ("asked", "behaviour", "status", "why"),
    [
        ((), (), 0, "The capital of France"),
        (("--expect-regex", "Pa+ris", "--max-ttft", "60"), ("--answer", " Paris."), 0, "first token after"),
        (("--expect", "Paris"), ("--answer", " Rome."), 1, "has no 'Paris'"),
        ((), ("--answer", "!" * 32), 1, "garbage"),
        ((), ("--crash-at", "load", "--crash-text", "KeyError: 'w'"), 1, "KeyError: 'w'"),
    ],
)
def test_verdict(
    supervise: Supervise,
    vllm: str,
    port: int,
    asked: tuple[str, ...],
    behaviour: tuple[str, ...],
    status: int,
    why: str,
) -> None:
    found, said, launched = tried(supervise, *asked, *serve(vllm, port, *behaviour))
    assert found == said["exit_status"] == status, launched.stderr
    assert why in str(said["why"])
    assert f"{why}" in launched.stderr
    assert supervise.outcome()["verified"]
    assert json.loads((supervise.attempt() / "trial.json").read_text())["verdict"] == said["verdict"]


def test_cannot_judge(supervise: Supervise, vllm: str, port: int) -> None:
    """What is nobody's fault here says nothing of the code: a taken port, a missing program, a wrong option."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        status, said, launched = tried(supervise, "--slate-timeout", 1, *serve(vllm, port))
    assert (status, said["attempt"]) == (125, None), launched.stderr
    assert f"{port}" in str(said["why"])
    assert tried(supervise, "--", supervise.base / "none", "serve")[0] == 125
    assert tried(supervise, "--no-such-option", *serve(vllm, port))[0] == 125
    assert tried(supervise, "--restart", "always", *serve(vllm, port))[0] == 125
    status, said, launched = tried(supervise, "--probe", "if true; then", *serve(vllm, port))
    assert (status, said) == (125, {})
    assert "yntax error" in launched.stderr


@pytest.mark.parametrize(
    ("command", "status", "why"),
    [
        ('test "$SUPERVISE_MODEL" = m && test -s "$SUPERVISE_LOG" && test -n "$SUPERVISE_URL"', 0, "ended with 0"),
        ("echo seen >&2; exit 3", 1, "exit status 3"),
        ("sleep 600 & echo $! > sleeper; sleep 600", 125, "not over after 0.5 s"),
    ],
)
def test_command(supervise: Supervise, vllm: str, port: int, command: str, status: int, why: str) -> None:
    found, said, launched = tried(supervise, "--probe", command, "--probe-timeout", 0.5, *serve(vllm, port))
    assert found == status, launched.stderr
    assert why in str(said["why"])
    assert ("| seen" in launched.stderr) == ("seen" in command)
    if "sleeper" in command:
        pid = int((supervise.base / "sleeper").read_text())
        assert not os.path.exists(f"/proc/{pid}"), launched.stderr


def test_a_server_that_dies_under_the_probe_has_failed(supervise: Supervise, vllm: str, port: int) -> None:
    ask = "import os, urllib.request as u; u.urlopen(os.environ['SUPERVISE_URL'] + '/v1/completions', b'{}')"
    waits = 'until grep -q boom "$SUPERVISE_LOG"; do sleep 0.05; done; sleep 600'
    probe = f'{sys.executable} -c "{ask}"; {waits}'
    status, said, launched = tried(
        supervise, "--probe", probe, "--probe-timeout", 60, *serve(vllm, port, "--crash-after-requests", 1)
    )
    assert (status, said["why"]) == (1, "RuntimeError: boom"), launched.stderr


def test_ctrl_c_is_no_verdict(supervise: Supervise, vllm: str, port: int) -> None:
    launched = supervise.start("try", "--probe", "sleep 600", *serve(vllm, port))
    launched.wait_said("ready")
    launched.send(signal.SIGINT)
    assert launched.wait() == -signal.SIGINT, launched.stderr
    assert "verdict" not in launched.stderr
    assert supervise.outcome()["verified"]


def test_bisection_finds_the_bad_commit(supervise: Supervise, vllm: str, port: int) -> None:
    """One commit on the way cannot be judged: what it launches is not there."""
    repository = supervise.base / "repository"
    repository.mkdir()
    quiet = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "PYTHONPATH": str(ROOT)}
    named = {f"GIT_{who}_{what}": "n@e" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    env = supervise.env | quiet | named

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=repository, env=env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    git("init", "-q")
    for number, answer in enumerate([" Paris.", " Paris!", " Paris?", " In Paris.", " Rome.", " Rome!"]):
        (repository / "answer").write_text(answer)
        (repository / "program").write_text("no-such-program" if number == 2 else vllm)
        git("add", ".")
        git("commit", "-q", "-m", f"commit {number}")
    asked = "--expect Paris --name bisected"
    serves = f'"$(cat program)" serve m --port {port} --load-s 0.1 --answer "$(cat answer)"'
    judge = program(supervise.base / "judge", f"#!/bin/sh\n{sys.executable} -m supervise try {asked} -- {serves}\n")
    git("bisect", "start", "HEAD", "HEAD~5")
    said = git("bisect", "run", judge)
    log = git("bisect", "log")
    assert "commit 4" in log.splitlines()[-1], said
    assert "first bad commit" in log.splitlines()[-1], said
    assert "# skip: " in log, said


def test_sweep_finds_the_largest_and_goes_on_after_a_kill(supervise: Supervise, port: int) -> None:
    vllm = program(supervise.base / "vllm", FRACTION)
    serves = serve(vllm, port, "--gpu-memory-utilization", 0.9)
    arguments = ("--set", "gpu-memory-utilization=0.95,0.8,0.7", *serves)
    first = supervise.start("try", "--json", *arguments)
    first.wait_said("3 of 3")
    wait_until(lambda: "0003" in {path.name for path in (supervise.run_directory() / "attempts").glob("0*")})
    first.send(signal.SIGKILL)
    assert first.wait() == -signal.SIGKILL

    status, said, launched = tried(supervise, *arguments)
    assert status == 0, launched.stderr
    # What another process was in the way of is asked again.
    assert "goes on where it was cut short, 1 of 3 done" in launched.stderr
    assert "3 of 3: --gpu-memory-utilization=0.7; about" in launched.stderr
    results = {str(each["values"]["--gpu-memory-utilization"]): each for each in said["results"]}  # type: ignore[attr-defined]
    assert {value: each["verdict"] for value, each in results.items()} == {"0.95": "skip", "0.8": "pass", "0.7": "pass"}
    assert said["largest"] == "0.8"
    assert [results[value]["attempt"] for value in ("0.95", "0.8", "0.7")] == [4, 2, 5]
    assert "0.95" in str(results["0.95"]["cause"])

    again = supervise.start("try", "--until-first", *arguments)
    assert again.wait() == 0, again.stderr
    assert "goes on" not in again.stderr
    assert "2 of 3" in again.stderr
    assert "3 of 3" not in again.stderr


def test_sweep_abandons_what_the_value_cannot_change(supervise: Supervise, vllm: str, port: int) -> None:
    failing = serve(vllm, port, "--crash-at", "load", "--crash-text", "KeyError: 'model.layers.0.mlp.gate.weight'")
    status, said, launched = tried(supervise, "--set", "shm=0,4096,8192", *failing)
    assert status == 1, launched.stderr
    verdicts = [each["verdict"] for each in said["results"]]  # type: ignore[attr-defined]
    assert verdicts == ["fail", "fail", "abandoned"]
    assert "abandoned: --shm=8192: it failed twice of the same cause" in launched.stderr


def test_sweep_of_a_variable(supervise: Supervise, vllm: str, port: int) -> None:
    pids = ("--pids-file", supervise.base / "pids")
    probe = "grep -qz '^VLLM_X=b$' /proc/$(sed -n 's/^leader //p' pids | tail -1)/environ"
    status, said, launched = tried(supervise, "--set", "env:VLLM_X=a,b", "--probe", probe, *serve(vllm, port, *pids))
    assert status == 0, launched.stderr
    assert [each["verdict"] for each in said["results"]] == ["fail", "pass"], launched.stderr  # type: ignore[attr-defined]


def verdicts(said: dict[str, object]) -> list[str]:
    return [each["verdict"] for each in said["results"]]  # type: ignore[attr-defined]


def test_sweep_of_secrets_whose_state_cannot_be_kept(supervise: Supervise, vllm: str, port: int) -> None:
    """Nothing of them is seen or kept, they are told apart, and what was found is not lost."""
    probe = 'test "$HF_TOKEN" = s3cret-b'
    sweep = ("--set", "env:HF_TOKEN=s3cret-a,s3cret-b", "--until-first", "--probe", probe)
    status, said, launched = tried(supervise, *sweep, *serve(vllm, port))
    assert (status, verdicts(said)) == (0, ["fail", "pass"]), launched.stderr
    kept = supervise.run_directory() / "sweep.json"
    state = kept.read_text()
    assert len(set(re.findall(r"\*\*\*[0-9a-f]{16}", state))) == 2
    assert "HF_TOKEN=***2" in launched.stderr
    assert "s3cret" not in launched.stderr + launched.stdout + state

    kept.unlink()
    kept.mkdir()
    status, said, launched = tried(supervise, *sweep, *serve(vllm, port))
    assert (status, verdicts(said)) == (0, ["fail", "pass"]), launched.stderr
    assert launched.stderr.count("sweep.json cannot be written: Is a directory") == 1
    assert launched.stderr.index("sweep.json cannot") < launched.stderr.index("1 of 2")
    assert "sweep.json is damaged: it begins anew" in launched.stderr


def test_what_a_script_keeps_for_itself_is_no_verdict(supervise: Supervise, port: int) -> None:
    server = f"{sys.executable} {ROOT}/supervise/demo/server.py serve m --port {port} --load-s 0.1"
    deaf = program(supervise.base / "deaf.sh", f"#!/bin/sh\n{server}\n")
    swept = ("--set", "shm=4096", "--probe", "true", "--")
    status, said, launched = tried(supervise, *swept, deaf, "--port", port)
    assert (status, verdicts(said)) == (125, ["skip"]), launched.stderr
    assert "--shm: nobody can tell whether it arrived" in launched.stderr
    passing_on = program(supervise.base / "on.sh", f'#!/bin/sh\n{server} "$@"\n')
    status, said, launched = tried(supervise, *swept, passing_on, "--port", port)
    assert (status, verdicts(said)) == (0, ["pass"]), launched.stderr
    changing = program(supervise.base / "vllm", f"#!/bin/sh\nVLLM_X=z exec {server}\n")
    status, said, launched = tried(supervise, "--set", "env:VLLM_X=a", "--probe", "true", *serve(changing, port))
    assert status == 125, launched.stderr
    assert "VLLM_X: another value arrived" in launched.stderr


def test_sweep_ends_where_nothing_can_be_launched(supervise: Supervise, vllm: str, port: int) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        swept = ("--slate-timeout", 1, "--set", "max-num-seqs=1,2,3")
        status, said, launched = tried(supervise, *swept, *serve(vllm, port))
    assert (status, verdicts(said)) == (125, ["skip"]), launched.stderr
    assert f"port {port}" in str(said["results"])
    live = supervise.start("run", "--name", "live", *serve(vllm, port))
    live.wait_said("ready")
    status, said, launched = tried(supervise, "--name", "live", "--set", "max-num-seqs=1,2", *serve(vllm, port))
    assert (status, verdicts(said)) == (125, ["skip"]), launched.stderr
    assert "run live is live: supervise pid" in str(said["results"])
    live.send(signal.SIGINT)
    live.wait()
