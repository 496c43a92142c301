"""`supervise report`: the post-mortem that people read, the ticket, the JSON, and what damaged records come to."""

from __future__ import annotations

import errno
import gzip
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supervise.attempts.store import Run, Store
from supervise.host import files
from supervise.model.exits import Exit
from supervise.report.changes import changes, package_changes
from supervise.report.private import private
from supervise.verbs.report import report
from tests.cli.test_golden import same
from tests.support.launcher import Supervise

BEGAN = 1_764_480_000.0
ARGV = ["vllm", "serve", "/home/ann/models/tiny", "--port", "8000", "--max-model-len", "4096", "--api-key", "***"]
CAUSE = {
    "text": "ValueError: Following weights were not initialized from checkpoint: {'model.norm.weight'}",
    "line": 812,
    "process": "Worker_TP3",
    "rank": 3,
    "signature": "vllm-weights-missing",
    "class": "deterministic",
    "phase": "weights",
    "fingerprint": "6070cb0ef4ba",
    "meaning": "The checkpoint lacks model.norm.weight.",
    "advice": ["Compare the names in model.safetensors.index.json with the model's code."],
    "evidence": [
        {"line": 790, "text": "(Worker_TP3 pid=73) INFO args: api_key='s3cr3t' token hf_AbCdEfGhIjKlMnOp"},
        {"line": 791, "text": "(Worker_TP3 pid=73) ``` | <b> /home/ann/.cache/vllm"},
        {"line": 812, "text": "(Worker_TP3 pid=73) ERROR ValueError: Following weights were not initialized"},
    ],
}
HEALTHY = b"INFO started\n"
FAILED = b"usage: vllm [-h]\nvllm: error: unrecognized arguments: --no-such-flag\n"


def make(run: Run, *, cause: Any = None, log: bytes = HEALTHY, **more: Any) -> int:
    """Leave an attempt as a real one leaves it; `more` goes into its records."""
    attempt = run.open_attempt()
    number = attempt.number
    host = {"boot_id": "b", "pid_namespace": 1}
    record = {"began": BEGAN + 1000 * number, "profile": "vllm", "argv": ARGV, "cwd": "/srv", "python": "3.11.7"}
    record |= {"id": "x", "host": host, "ports": [8000], "tiers": ["subreaper"]}
    attempt.write("attempt", record | more.get("record", {}))
    Path(attempt.log).write_bytes(log)
    if "slate" in more:
        attempt.write("slate", more["slate"])
    if (outcome := more.get("outcome", {})) is None:
        return number
    told = {
        "outcome": "died" if cause else "asked",
        "exit_status": 93 if cause else 143,
        "signal": None if cause else 15,
    }
    told |= {"leader_status": 1 if cause else 0, "failed": bool(cause), "verified": True, "clean": True, "cause": cause}
    told |= {"ready_s": None if cause else 0.7, "phases": {} if cause else {"start": 0.5, "weights": 0.2}}
    told |= {"survivors": [], "left": [], "checks": ["port 8000 free"]}
    attempt.write("outcome", told | outcome)
    events(run, number, ready=not cause)
    return number


def events(run: Run, number: int, *, ready: bool) -> None:
    began = BEGAN + 1000 * number
    states = [(0.7, "ready")] * ready + [(4, "stopping"), (4.5, "killing"), (5, "done")]
    with open(os.path.join(run.path, "events.jsonl"), "a") as file:
        file.writelines(
            json.dumps({"version": 1, "time": began + at, "state": state, "attempt": number}) + "\n"
            for at, state in states
        )


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    made = Store(str(tmp_path / "supervise")).run("vllm-8000")
    made.create()
    return made


Told = Callable[..., tuple[int, str, str]]


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Told:
    def tell(name: str | None = None, number: int | None = None, **options: bool) -> tuple[int, str, str]:
        status = report(name, number, as_json=options.get("as_json", False), markdown=options.get("markdown", False))
        said = capsys.readouterr()
        return status, said.out, said.err

    return tell


def as_data(told: Told, number: int | None = None) -> dict[str, Any]:
    status, out, _ = told(None, number, as_json=True)
    assert status == Exit.OK
    data: dict[str, Any] = json.loads(out)
    return data


def golden(name: str, text: str, base: Path) -> None:
    same(name, re.sub(r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S+", "<moment>", text.replace(str(base), "<base>")))


# --- what people read -------------------------------------------------------------------------------------------------


@pytest.fixture
def failed_again(run: Run) -> Run:
    """A good one, one with another cause, and two of the same after changes."""
    make(run, slate={"checks": ["port 8000 bindable", "vllm 0.32.0 as in its wheel"], "remarks": []})
    make(run, cause={**CAUSE, "fingerprint": "000000000000"})
    make(run, cause=CAUSE)
    changed = ["vllm", "serve", "/home/ann/models/tiny", "--port=8000", "--max_model_len", "8192", "--enforce-eager"]
    number = make(
        run,
        cause=CAUSE,
        record={"argv": changed, "cwd": "/tmp"},
        slate={"checks": ["vllm 0.33.0 as in its wheel"], "remarks": []},
        outcome={"left": ["/dev/shm/psm_1"], "clean": False, "survivors": [{"pid": 7, "title": "w", "state": "D"}]},
    )
    evidence = Path(run.attempt(number).path) / "evidence"
    evidence.mkdir()
    for name in ("before-stop.json", "before-stop-stacks-73.txt", "note.txt"):
        (evidence / name).write_text("")
    return run


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_a_failure(form: str, failed_again: Run, told: Told, tmp_path: Path) -> None:
    status, out, err = told(markdown=form == "markdown")
    assert (status, err) == (Exit.OK, "")
    golden(f"report-failed-{form}", out, tmp_path)


def test_a_good_one(run: Run, told: Told, tmp_path: Path) -> None:
    make(run)
    make(run)
    golden("report-good", told()[1], tmp_path)


@pytest.mark.parametrize("secret", ["s3cr3t", "hf_AbCdEf", "/home/ann"])
def test_a_ticket_has_no_secrets(secret: str, failed_again: Run, told: Told) -> None:
    assert secret in told()[1]
    assert secret not in told(markdown=True)[1]


def test_no_line_of_a_log_ends_its_block(failed_again: Run, told: Told) -> None:
    out = told(markdown=True)[1]
    assert len(re.findall(r"^````(?:text)?$", out, re.MULTILINE)) == 2


# --- which attempt ----------------------------------------------------------------------------------------------------


def test_the_newest_run_and_its_newest_attempt(run: Run, told: Told) -> None:
    make(run)
    other = Store(os.path.dirname(run.path)).run("a-later-one")
    other.create()
    make(other, record={"began": BEGAN + 50_000})
    make(other, record={"began": BEGAN + 60_000})
    data = as_data(told)
    assert (data["run"], data["attempt"]) == ("a-later-one", 2)


def test_an_attempt_by_its_number(failed_again: Run, told: Told) -> None:
    assert as_data(told, 2)["cause"]["fingerprint"] == "000000000000"


@pytest.mark.parametrize(
    ("name", "number", "said"),
    [
        (None, 9, "supervise: run vllm-8000 has no attempt 9; kept: 1 to 1\n"),
        ("nope", None, "supervise: no run 'nope'; known: vllm-8000\n"),
    ],
)
def test_unknown(run: Run, told: Told, name: str | None, number: int | None, said: str) -> None:
    make(run)
    assert told(name, number) == (Exit.USAGE, "", said)


def test_nothing_there(run: Run, told: Told) -> None:
    assert told() == (Exit.USAGE, "", "supervise: no run yet\n")
    assert told("vllm-8000") == (Exit.USAGE, "", "supervise: run vllm-8000 has no attempt yet\n")


def test_the_command_line(supervise: Supervise) -> None:
    launched = supervise.run("report", "--json", "--markdown")
    assert launched.popen.returncode == Exit.USAGE
    assert "contradict" in launched.stderr


# --- one that lives, or whose supervise was killed ------------------------------------------------------------------


def test_one_that_runs(run: Run, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told of when it is asked for, or when there is no other."""
    good = make(run)
    number = make(run, outcome=None, log=FAILED)
    run.write_state({"state": "starting", "phase": "weights", "attempt": number})
    monkeypatch.setattr("supervise.verbs.report.is_live", lambda _: True)
    assert as_data(told)["attempt"] == good
    data = as_data(told, number)
    assert (data["live"], data["how"], data["outcome"], data["left"]) == (True, "starting (weights)", None, None)
    assert data["cause"]["signature"] == "argparse-error"
    assert data["seconds"] > 0


def test_one_whose_supervise_was_killed(run: Run, told: Told) -> None:
    make(run, outcome=None, log=FAILED)
    data = as_data(told)
    assert (data["live"], data["seconds"]) == (False, None)
    assert data["how"] == "no record of how it ended: its supervise was killed, or could not write"
    assert data["cause"]["line"] == 2
    assert data["notes"] == ["the cause was told from the log alone: there is no record of its end"]


def test_one_after_which_the_run_went_on(run: Run, told: Told) -> None:
    """What the run ended of is told with the last attempt, and only with that."""
    first, last = make(run, cause=CAUSE), make(run, cause=CAUSE)
    run.write_state({"state": "done", "ended": {"exit_status": 143, "why": "stopped by SIGTERM while it waited"}})
    assert as_data(told, last)["notes"] == ["after it: stopped by SIGTERM while it waited, exit 143"]
    assert as_data(told, first)["notes"] == []


def test_the_wait_after_it_is_not_its_own_time(run: Run, told: Told) -> None:
    number = make(run, cause=CAUSE)
    before = as_data(told)
    with open(os.path.join(run.path, "events.jsonl"), "a") as file:
        file.write(json.dumps({"time": BEGAN + 1000 * number + 600, "state": "done", "attempt": number}) + "\n")
    assert (before["seconds"], as_data(told)["seconds"]) == (5.0, 5.0)
    assert as_data(told)["timeline"] == before["timeline"]


def test_one_that_supervise_could_not_go_on_with(run: Run, told: Told) -> None:
    make(run, outcome=None)
    run.write_state({"state": "done", "ended": {"exit_status": 125, "why": "the relaunch failed: disk full"}})
    assert as_data(told)["how"] == "no record of how it ended; the relaunch failed: disk full, exit 125"


def test_a_healthy_log_is_no_cause(run: Run, told: Told) -> None:
    make(run, outcome=None)
    assert as_data(told)["cause"] is None


# --- next to other attempts -------------------------------------------------------------------------------------------


def test_history(failed_again: Run, told: Told) -> None:
    assert as_data(told)["same_cause_as"] == [3]
    assert "\nhistory  new cause\n" in told(None, 3)[1]
    assert "\nhistory  no earlier failure is kept\n" in told(None, 2)[1]
    assert "\nhistory " not in told(None, 1)[1]


def test_history_of_what_nobody_explained(run: Run, told: Told) -> None:
    silent = {**CAUSE, "text": None, "signature": None, "fingerprint": None, "end": "exited with 4"}
    make(run, cause=silent)
    make(run, cause={**silent, "end": "killed by SIGKILL"})
    make(run, cause=silent)
    assert as_data(told)["same_cause_as"] == [1]
    assert "\nhistory  same cause as attempt 1\n" in told()[1]
    assert "\nhistory " not in told(None, 2)[1]


def test_nothing_differs(run: Run, told: Told) -> None:
    make(run)
    make(run, cause=CAUSE)
    assert as_data(told)["changes"] == []
    assert "nothing recorded differs from attempt 1" in told()[1]


def test_nothing_to_compare_with(run: Run, told: Told) -> None:
    make(run, cause=CAUSE)
    assert as_data(told)["changes"] is None
    assert "no earlier attempt that is kept had been ready" in told()[1]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (["--a", "1"], ["--a", "2"], ["--a 1 -> 2"]),
        (["--a", "1"], ["--a=1"], []),
        (["--a_b", "1"], ["--a-b", "1"], []),
        (["--a", "-1"], ["--a", "-2"], ["--a -1 -> -2"]),
        ([], ["--eager"], ["added --eager"]),
        (["--eager", "--x", "1"], ["--eager"], ["removed --x 1"]),
        (["vllm", "serve", "a"], ["vllm", "serve", "b"], ["command: vllm serve a -> vllm serve b"]),
        (["--a", "1", "2"], ["--a", "1"], ["--a 1 2 -> 1"]),
        (["--a", "--b"], ["--b", "--a"], []),
    ],
)
def test_command_lines(before: list[str], after: list[str], said: list[str]) -> None:
    assert changes({"argv": before}, {"argv": after}) == said


@pytest.mark.parametrize(
    ("before", "after", "count"),
    [
        ({"cwd": "/a"}, {"cwd": "/b"}, 1),
        ({"cwd": "/a"}, {"cwd": "/a"}, 0),
        ({"cwd": "/a"}, {}, 0),
        ({"python": "3.10.1", "ports": [1]}, {"python": "3.12.1", "ports": [2, 3]}, 2),
        ({"host": {"boot_id": "a"}}, {"host": {"boot_id": "b"}}, 1),
        ({"host": 7}, {"host": []}, 0),
    ],
)
def test_circumstances(before: dict[str, Any], after: dict[str, Any], count: int) -> None:
    assert len(changes(before, after)) == count


def test_packages() -> None:
    wheel = {"checks": ["vllm 0.32.0 as in its wheel (3 large files by size)"]}
    patched = {
        "checks": [],
        "remarks": [{"kind": "package", "subject": "vllm 0.32.0: 1 modified", "evidence": ["a.py"]}],
    }
    assert package_changes(wheel, patched) == [
        "package vllm: 0.32.0 as in its wheel (3 large files by size) -> 0.32.0: 1 modified (a.py)"
    ]
    assert package_changes(wheel, wheel) == []
    assert package_changes(wheel, {"checks": ["port 8000 free"], "remarks": "damaged"}) == []


# --- damage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"version": 1, "exit_status": 1e999, "argv": "x"}', b"\xff\0"])
@pytest.mark.parametrize("name", ["attempt.json", "outcome.json", "slate.json"])
def test_a_damaged_file_is_told(name: str, damage: bytes, run: Run, told: Told) -> None:
    make(run)
    number = make(run, cause=CAUSE, slate={"checks": []})
    (Path(run.attempt(number).path) / name).write_bytes(damage)
    for options in ({}, {"markdown": True}, {"as_json": True}):
        assert told(None, number, **options)[::2] == (Exit.OK, "")
    if name == "outcome.json":
        assert "outcome.json is damaged; nothing in it is believed" in as_data(told)["notes"]


@pytest.mark.parametrize(
    "outcome",
    [
        {"survivors": [{"pid": "x"}, 7, {"pid": 1, "title": "a", "state": "S", "ports": 5}]},
        {"phases": {"a": -1, "b": "x", "c": True, "d": 10**400}},
        {"phases": [], "checks": {}, "left": 7, "ready_s": 1e999, "leader_status": "x", "signal": 10**30},
        {"cause": {"text": "x", "line": "y", "evidence": [{"line": 1}, 7], "advice": 5, "class": []}},
        {"cause": {"evidence": [{"line": True, "text": "a"}], "meaning": None}},
        {"outcome": "from the future", "exit_status": 77},
    ],
)
def test_values_of_another_kind(outcome: dict[str, Any], run: Run, told: Told) -> None:
    number = make(run, cause=CAUSE)
    path = Path(run.attempt(number).path) / "outcome.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | outcome))
    for options in ({}, {"markdown": True}, {"as_json": True}):
        assert told(**options)[::2] == (Exit.OK, "")


def test_damaged_events_are_counted(run: Run, told: Told) -> None:
    make(run)
    with open(os.path.join(run.path, "events.jsonl"), "ab") as file:
        file.write(b'\xff\n{"time": "x"}\n' + b"[" * 100_000 + b"\n")
    data = as_data(told)
    assert data["notes"] == ["events.jsonl: 3 damaged lines"]
    assert data["timeline"][-1] == {"at_s": 5.0, "name": "over", "took_s": None}


def test_without_a_log(run: Run, told: Told) -> None:
    number = make(run, outcome=None)
    os.unlink(run.attempt(number).log)
    assert as_data(told)["cause"] is None
    number = make(run, cause=CAUSE)
    os.unlink(run.attempt(number).log)
    assert as_data(told)["notes"] == ["server.log is missing"]


def test_a_log_that_is_a_pipe_is_not_waited_for(run: Run, told: Told) -> None:
    log = run.attempt(make(run, outcome=None)).log
    os.unlink(log)
    os.mkfifo(log)
    data = as_data(told)
    assert (data["cause"], data["notes"]) == (None, ["server.log: is no regular file"])


def test_a_damaged_archive_of_the_log_is_noted(run: Run, told: Told) -> None:
    log = run.attempt(make(run, outcome=None, log=FAILED)).log
    Path(f"{log}.gz").write_bytes(gzip.compress(HEALTHY)[:-4])
    Path(f"{log}.map").write_text(json.dumps({"version": 1, "start": 0, "moved": 4096, "moving": False}))
    assert "the archive is damaged or cut off" in as_data(told)["notes"][0]


@pytest.mark.parametrize("state", ["damaged", "unreadable", "missing"])
def test_how_it_ended_is_not_made_up(run: Run, told: Told, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    number = make(run, cause=CAUSE)
    path = Path(run.attempt(number).path) / "outcome.json"
    if state == "damaged":
        path.write_text("{")
    elif state == "missing":
        path.unlink()
    else:
        refuse(monkeypatch, "outcome.json")
    data = as_data(told)
    assert ("killed" in data["how"]) == (state == "missing")
    assert data["how"].startswith("no record of how it ended")
    noted = {"damaged": "outcome.json is damaged; nothing in it is believed", "missing": ""}
    assert noted.get(state, "outcome.json: Permission denied") in "\n".join(data["notes"])


@pytest.mark.parametrize("name", ["attempt.json", "events.jsonl"])
def test_what_may_not_be_read_is_not_called_damaged(
    run: Run, told: Told, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(run, cause=CAUSE)
    refuse(monkeypatch, name)
    assert as_data(told)["notes"] == [f"{name}: Permission denied"]


def refuse(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Root may read everything: files of this name answer as they do to others."""
    reads = files.read_regular

    def read(path: str, limit: int) -> bytes:
        if path.endswith(name):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return reads(path, limit)

    monkeypatch.setattr(files, "read_regular", read)


def test_an_earlier_failure_of_which_nothing_is_known_is_kept_all_the_same(run: Run, told: Told) -> None:
    make(run, outcome={"failed": True, "exit_status": 91})
    make(run, cause=CAUSE)
    assert "history  1 earlier failure, of which no cause is known" in told()[1]


# --- the JSON ---------------------------------------------------------------------------------------------------------


def test_the_shape_of_the_object(failed_again: Run, told: Told) -> None:
    data = as_data(told)
    documented = re.findall(r"^\| `(\w+)`", (Path(__file__).parents[2] / "docs/report.md").read_text(), re.MULTILINE)
    assert list(data) == documented
    assert (data["version"], data["attempt"], data["exit_status"], data["good_attempt"]) == (1, 4, 93, 1)
    assert data["cause"] == CAUSE
    assert data["model"] == "/home/ann/models/tiny"


# --- secrets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "hf_SECRETSECRET", "sk-SECRETSECRET", "ghp_SECRETSECRETSECRET", "AKIASECRETSECRETSEC1",
        "nvapi-SECRETSECRETSECRET",
        "Authorization: Bearer SECRETSECRET", "--api-key SECRET", "--api-key=SECRET", "--api-key a SECRET --port 1",
        "--admin_api_key SECRET", "api_key='SECRET'", "'api_key': ['SECRET', 'SECRET']", '{"token": "SECRET"}',
        "HF_TOKEN=SECRET", "OPENAI_API_KEY=SECRET", "aws_secret_access_key = SECRET/x+y", "password: SECRET",
        "http://ann:SECRET@proxy:1/", "https://x/y?X-Amz-Signature=SECRET&a=1", "eyJSECRETS.SECRET.SECRET",
        "/home/SECRET/x", "/Users/SECRET",
    ],
)  # fmt: skip
def test_a_secret_is_taken_out(text: str) -> None:
    assert "SECRET" in text
    assert "SECRET" not in private(f"before {text} after")


@pytest.mark.parametrize(
    "text",
    [
        "max_num_batched_tokens=8192 tokenizer='/models/x' eos_token='</s>' token_ids=[1, 2]",
        "KeyError: 'model.layers.0.mlp.w1'",
        "api_key=None token: None",
        "got 123 tokens, key cache full",
        "http://10.0.0.1:8000/v1/models",
        "/models/tiny and /rooted/x",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert private(text) == text
