"""`supervise explain`: what people read, what programs read, and the exit status."""

from __future__ import annotations

import gzip
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from supervise.verbs.explain import explain_files
from tests.cli.test_golden import same, told
from tests.support.launcher import Supervise
from tests.support.waiting import DEADLINE_S, wait_until

CORPUS = Path(__file__).parent.parent / "corpus"
KEYS = [
    "version", "file", "fatal", "cause", "fingerprint", "engine", "attempts", "attempt", "unnamed", "others", "lines",
    "notes",
]  # fmt: skip
CAUSE_KEYS = [
    "text", "line", "process", "rank", "signature", "class", "phase", "meaning", "advice", "evidence",
]  # fmt: skip


@pytest.fixture
def logs(supervise: Supervise) -> Path:
    """One log of each kind, where the command line is started."""
    place = supervise.base
    for name, source in (
        ("failed.log", "vllm-bad-flag"),
        ("healthy.log", "vllm-good-and-stopped"),
        ("killed.log", "sglang-scheduler-killed"),
    ):
        shutil.copy(CORPUS / source / "log.txt", place / name)
    (place / "empty.log").touch()
    failed = (place / "failed.log").read_bytes()
    (place / "failed.log.gz").write_bytes(gzip.compress(failed))
    (place / "loop.log").write_bytes(failed * 2 + failed.replace(b"--no-such-flag", b"--another"))
    return place


def explain(capsys: pytest.CaptureFixture[str], *files: Path, end: int | None = None) -> tuple[int, list[Any], str]:
    """Status, the objects, and what was said besides."""
    status = explain_files([str(file) for file in files], as_json=True, exit_status=end, engine=None)
    said = capsys.readouterr()
    return status, [json.loads(line) for line in said.out.splitlines()], said.err


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("explain-failed", ["failed.log"]),
        ("explain-healthy", ["healthy.log"]),
        ("explain-killed", ["killed.log", "--exit-status", "-9"]),
        ("explain-empty", ["empty.log"]),
        ("explain-several", ["failed.log", "missing.log", "healthy.log", "."]),
        ("explain-attempts", ["loop.log"]),
        ("explain-json", ["failed.log", "--json"]),
        ("explain-engine-unknown", ["--engine", "nope", "failed.log"]),
        ("explain-no-file", []),
    ],
)
def test_what_people_read(supervise: Supervise, logs: Path, name: str, words: list[str]) -> None:
    launched = supervise.run("explain", *words)
    same(name, re.sub(r'(?<="fingerprint": )"[0-9a-f]+"', '"<id>"', told(launched, supervise.base)))


def piped(supervise: Supervise, stdin: int, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [supervise.python, "-m", "supervise", "explain", "-", *words],
        stdin=stdin,
        stdout=subprocess.PIPE,
        env=supervise.env,
        cwd=supervise.base,
        text=True,
    )


def test_standard_input(supervise: Supervise, logs: Path) -> None:
    with (logs / "failed.log.gz").open("rb") as packed, piped(supervise, packed.fileno(), "--json") as process:
        (told,) = map(json.loads, process.communicate(timeout=DEADLINE_S)[0].splitlines())
    assert process.returncode == 0
    assert (told["file"], told["cause"]["signature"]) == ("-", "argparse-error")


def test_whoever_pipes_a_log_that_never_ends_stops_it_and_is_told(supervise: Supervise, logs: Path) -> None:
    reading, writing = os.pipe()
    try:
        os.write(writing, (logs / "failed.log").read_bytes())
        with piped(supervise, reading) as process:
            wait_until(lambda: not readable(reading))
            process.send_signal(signal.SIGINT)
            said, _ = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0
        assert "interrupted" in said
        assert "unrecognized arguments" in said
    finally:
        os.close(reading)
        os.close(writing)


def readable(fd: int) -> bool:
    return bool(select.select([fd], [], [], 0)[0])


def test_the_shape_of_the_object(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, (told,), _ = explain(capsys, logs / "failed.log")
    assert status == 0
    assert list(told) == KEYS
    assert (told["version"], told["fatal"], told["engine"], told["attempts"]) == (1, True, "vllm", 1)
    cause = told["cause"]
    assert list(cause) == CAUSE_KEYS
    lines = (logs / "failed.log").read_text().splitlines()
    assert cause["text"] == lines[cause["line"] - 1]
    assert 1 <= len(cause["evidence"]) <= 5
    for quoted in cause["evidence"]:
        assert quoted["text"] == lines[quoted["line"] - 1]


def test_the_text_is_the_whole_line_without_colours(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, (told,), _ = explain(capsys, CORPUS / "vllm-coloured-no-kv-memory" / "log.txt")
    assert told["cause"]["text"].startswith(
        "(EngineCore pid=3) ERROR 11-30 05:00:00 [core.py:1510] ValueError: No avail"
    )


def test_a_failure_without_a_cause_says_what_is_known(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, (told,), _ = explain(capsys, logs / "killed.log", end=137)
    assert (status, told["fatal"], told["cause"]) == (3, True, None)
    assert "SIGKILL" in told["unnamed"]["meaning"]
    assert told["unnamed"]["advice"]


def test_healthy_and_empty(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, (told,), _ = explain(capsys, logs / "healthy.log")
    assert (status, told["fatal"], told["cause"], told["unnamed"]) == (1, False, None, None)
    status, (told,), _ = explain(capsys, logs / "empty.log")
    assert (status, told["fatal"], told["lines"]) == (3, False, 0)


def test_the_worst_decides(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    failed, healthy, killed, missing = (logs / f"{name}.log" for name in ("failed", "healthy", "killed", "missing"))
    assert explain(capsys, healthy, failed)[0] == 0
    assert explain(capsys, failed, killed, healthy)[0] == 3
    status, objects, said = explain(capsys, missing, failed, killed)
    assert (status, [each["file"] for each in objects]) == (2, [str(failed), str(killed)])
    assert said == f"supervise: {missing}: No such file or directory\n"


def test_what_is_no_log_is_one_clear_line(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = logs / "screen.png"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n")
    assert explain(capsys, picture) == (2, [], f"supervise: {picture}: a picture: the log's text is needed\n")


def test_an_archive_that_is_cut_off_is_noted(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cut = logs / "cut.log.gz"
    cut.write_bytes((logs / "failed.log.gz").read_bytes()[:-6])
    status, (told,), _ = explain(capsys, cut)
    assert (status, told["cause"]["signature"]) == (0, "argparse-error")
    assert "cut off" in told["notes"][0]


@pytest.mark.parametrize("keep", [-6, 400])
def test_what_could_not_be_read_to_its_end_is_not_healthy(
    logs: Path, capsys: pytest.CaptureFixture[str], keep: int
) -> None:
    cut = logs / "cut.log.gz"
    cut.write_bytes(gzip.compress((logs / "healthy.log").read_bytes())[:keep])
    status, (told,), _ = explain(capsys, cut)
    assert (status, told["fatal"], told["cause"]) == (3, False, None)
    assert "cut off" in told["notes"][0]
    assert explain_files([str(cut)], as_json=False, exit_status=None, engine=None) == 3
    assert "healthy" not in capsys.readouterr().out


def test_a_damaged_archive_beside_the_log_is_noted(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = logs / "log"
    log.write_bytes(b"bye\n")
    (logs / "log.gz").write_bytes(gzip.compress((logs / "healthy.log").read_bytes())[:-20])
    (logs / "log.map").write_text(json.dumps({"version": 1, "start": 0, "moved": 1 << 20, "moving": False}))
    status, (told,), _ = explain(capsys, log)
    assert (status, told["fatal"]) == (3, False)
    assert "cut off" in told["notes"][0]


class Gone:
    """Standard output of which nobody reads any more, or that has no room: /dev/full answers as a full disk does."""

    def __init__(self, name: str) -> None:
        self.fd = os.open("/dev/full", os.O_WRONLY) if name == "full" else self._left()

    def _left(self) -> int:
        reading, writing = os.pipe()
        os.close(reading)
        return writing

    def __enter__(self) -> int:
        return self.fd

    def __exit__(self, *error: object) -> None:
        os.close(self.fd)


@pytest.mark.parametrize(
    ("name", "options", "status"),
    [("failed", [], 0), ("failed", ["--json"], 0), ("healthy", [], 1), ("killed", ["--exit-status", "137"], 3)],
)
def test_a_reader_that_leaves_does_not_change_the_status(
    supervise: Supervise, logs: Path, name: str, options: list[str], status: int
) -> None:
    with Gone("pipe") as out:
        ended = written(supervise, out, f"{name}.log", *options)
    assert (ended.returncode, ended.stderr) == (status, "")


def test_a_full_disk_is_called_by_its_name(supervise: Supervise, logs: Path) -> None:
    with Gone("full") as out:
        ended = written(supervise, out, "failed.log")
    assert (ended.returncode, ended.stderr) == (125, "supervise: standard output: No space left on device\n")


def written(supervise: Supervise, out: int, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [supervise.python, "-m", "supervise", "explain", *words],
        stdout=out, stderr=subprocess.PIPE, env=supervise.env, cwd=supervise.base, text=True, timeout=DEADLINE_S,
        check=False,
    )  # fmt: skip


def test_a_complaint_that_cannot_be_written_does_not_change_the_status(supervise: Supervise) -> None:
    with Gone("full") as err:
        words = [supervise.python, "-m", "supervise", "explain", "missing.log"]
        ended = subprocess.run(
            words, stderr=err, env=supervise.env, cwd=supervise.base, timeout=DEADLINE_S, check=False
        )
    assert ended.returncode == 2


def test_a_socket_is_no_log(logs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(logs)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("here.sock")
        assert explain(capsys, Path("here.sock")) == (2, [], "supervise: here.sock: is a socket, no log\n")


OWN = """
[[signature]]
id = "licence-server-down"
role = "root"
literals = ["licence server"]
pattern = '^RuntimeError: licence server (?P<name>\\S+) does not answer$'
class = "transient"
fatal = true
meaning = "{name} does not answer."
advice = ["Start {name}."]
match = ["RuntimeError: licence server lic1 does not answer"]
nomatch = ["the licence server answers"]
"""


def test_what_the_user_knows_is_known(
    logs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(logs))
    own = logs / "supervise" / "signatures"
    own.mkdir(parents=True)
    (own / "mine.toml").write_text(OWN)
    (own / "broken.toml").write_text("[[signature]]\nid = 3\n")
    log = logs / "licence.log"
    log.write_text(
        'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    g()\n'
        "RuntimeError: licence server lic1 does not answer\n"
    )
    status, (told,), said = explain(capsys, log)
    assert (status, told["cause"]["signature"], told["cause"]["class"]) == (0, "licence-server-down", "transient")
    assert told["cause"]["advice"] == ["Start lic1."]
    assert said.count("\n") == 1
    assert f"supervise: {own / 'broken.toml'}: signature" in said


def test_a_log_of_ours_is_read_with_what_was_archived(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its file on disk no longer begins at the beginning; see supervise/attempts/log.py."""
    log = logs / "log"
    log.write_bytes(b"bye\n")
    archived = (logs / "failed.log").read_bytes()
    (logs / "log.gz").write_bytes(gzip.compress(archived))
    (logs / "log.map").write_text(json.dumps({"version": 1, "start": 0, "moved": len(archived), "moving": False}))
    status, (told,), _ = explain(capsys, log)
    assert (status, told["cause"]["line"], told["lines"]) == (0, 5, 6)
