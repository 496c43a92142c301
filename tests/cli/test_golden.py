"""What people read, word for word. After a deliberate change: `UPDATE_GOLDEN=1 pytest tests/cli`, and read the diff."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import sys
from pathlib import Path

import pytest

from supervise.cli import VERBS
from supervise.model.exits import Exit
from tests.support.launcher import Launched, Supervise
from tests.support.readable import ROOT

GOLDEN = Path(__file__).parent / "golden"
CRASH = "KeyError: 'model.layers.0.mlp.experts.w13_weight_scale'"
# Durations that are measured; those that announce a limit ("it has 60 s") are part of the text.
_CHANGING = (
    (r"(?<!has )(?<!grace     )(?<!linger )(?<![\w.])\d+(\.\d+)? (s|min)\b", "<time>"),
    (r"(in <time>) \([\w ,]+\)", r"\1"),
    (r"\b\d\d-\d\d \d\d:\d\d:\d\d\b", "<clock>"),
    (r"\bpid[ =]\d+", "pid <pid>"),
    (r"\bkill \d+", "kill <pid>"),
    (r"\buid \d+", "uid <uid>"),
    (r"\b\d+\.\d [GMK]iB", "<size>"),
    (r"no NVIDIA driver here|GPU [\d,-]+ (free ≥ \d+%|read)", "<gpus>"),
    # Said or not: it depends on which of a dying group is the last.
    (r"(?m)^ +the leader is gone or late: .*\n", ""),
    (r"supervise \d+\.\d+\.\d+\S*", "supervise <version>"),
)


def normalise(text: str, base: Path, port: int = -1) -> str:
    """The same for every machine, user, directory, process and second."""
    for concrete, word in ((base, "<base>"), (ROOT, "<code>"), (sys.executable, "<python>")):
        text = text.replace(str(concrete), word)
    text = re.sub(rf"\b{port}\b", "<port>", text)
    for pattern, word in _CHANGING:
        text = re.sub(pattern, word, text)
    return text


def help_text(text: str) -> str:
    """A help text with every entry on one line, without what the parser's versions decorate in different ways."""
    usage, _, rest = text.partition("\n")
    usage = re.sub(r"[{}]|\.\.\.", "", usage).replace("[[", "[").replace("]]", "]")
    rest = re.sub(r" <(str|list\[str\])>", "", rest).replace("\\[", "[")
    rest = re.sub(r"(?<=\S)\n {10,}", " ", rest)
    rest = re.sub(r"(?<=\S) {2,}", "  ", rest)
    rest = re.sub(r" +(?=\[[a-z])", "  ", rest)
    return f"{usage}\n{rest}"


def same(name: str, text: str) -> None:
    """Compare with a golden text, or write it."""
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text(), f"differs from {path}"


def told(launched: Launched, base: Path, port: int = -1) -> str:
    """Everything that it said, with the status that it left with."""
    status = launched.popen.returncode
    parts = ((launched.stdout, ""), (launched.stderr, "-- standard error\n"))
    said = "".join(f"{head}{text}" for text, head in parts if text)
    return normalise(f"{said}-- exit {status}\n", base, port)


@pytest.mark.parametrize("words", [[], *([verb] for verb in VERBS)], ids=lambda words: "-".join(words) or "supervise")
def test_help(supervise: Supervise, words: list[str]) -> None:
    launched = supervise.run(*words, "--help")
    same(f"help-{'-'.join(words) or 'supervise'}", help_text(told(launched, supervise.base)))
    assert launched.popen.returncode == Exit.OK


def test_no_word_at_all_is_help(supervise: Supervise) -> None:
    bare, short, long = (supervise.run(*words) for words in ([], ["-h"], ["--help"]))
    assert (bare.stdout, bare.popen.returncode) == (short.stdout, 0) == (long.stdout, 0)


def test_clean_looks_at_the_host_where_there_is_no_run(supervise: Supervise) -> None:
    """What else it says depends on what others have left here."""
    assert "slate    (host): " in supervise.run("clean", "--dry-run").stderr
    runs = json.loads(supervise.run("clean", "--dry-run", "--json").stdout)["runs"]
    assert [run["run"] for run in runs] == ["(host)"]
    assert supervise.runs() == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("version", ["--version"]),
        ("status-nothing", ["status"]),
        ("status-nothing-json", ["status", "--json"]),
        ("status-unknown-run", ["status", "nope"]),
        ("logs-nothing", ["logs"]),
        ("logs-unknown-run", ["logs", "nope"]),
        ("stop-nothing", ["stop"]),
        ("stop-unknown-run", ["stop", "nope"]),
        ("profiles", ["profiles"]),
        ("profiles-vllm", ["profiles", "vllm"]),
        ("profiles-unknown", ["profiles", "nope"]),
        ("profile-unknown", ["--profile", "nope", "true"]),
        ("typo", ["clena"]),
        ("not-found", ["nonexistent-program", "--help"]),
    ],
)
def test_nothing_there_or_not_understood(supervise: Supervise, name: str, words: list[str]) -> None:
    same(name, told(supervise.run(*words), supervise.base))
    assert supervise.runs() == []


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--bogus", "true"], "--bogus"),
        (["status", "--bogus"], "--bogus"),
        (["--grace", "soon", "true"], "--grace"),
        (["--ready-timeout", "0", "true"], "--ready-timeout"),
        (["--keep"], "--keep"),
        (["run"], "COMMAND"),
        (["--name", "x"], "COMMAND"),
    ],
)
def test_usage(supervise: Supervise, words: list[str], named: str) -> None:
    """The sentences are the parser's; that the last one names what is wrong is ours to ask for."""
    launched = supervise.run(*words)
    assert launched.popen.returncode == Exit.USAGE
    assert named in launched.stderr.splitlines()[-1]
    assert (launched.stdout, supervise.runs()) == ("", [])


@pytest.mark.parametrize("what", ["directory", "plain-file"])
def test_not_executable(supervise: Supervise, what: str) -> None:
    path = supervise.base / "tmp" / what
    path.mkdir() if what == "directory" else path.write_text("#!/bin/sh\n")
    launched = supervise.run(path)
    same(f"not-executable-{what}", told(launched, supervise.base))
    assert launched.popen.returncode == Exit.CANNOT_EXECUTE
    assert supervise.runs() == []


@pytest.mark.parametrize(
    ("name", "text", "status"),
    [
        ("no-interpreter-line", "true\n", Exit.CANNOT_EXECUTE),
        ("missing-interpreter", "#!/nowhere/at/all\n", Exit.NOT_FOUND),
    ],
)
def test_the_kernel_refuses_to_execute(supervise: Supervise, name: str, text: str, status: Exit) -> None:
    """A missing interpreter is ENOENT, and as with any shell 127."""
    path = supervise.base / "tmp" / "program"
    path.write_text(text)
    path.chmod(0o755)
    launched = supervise.run("--name", "refused", path)
    same(f"not-executable-{name}", told(launched, supervise.base))
    assert launched.popen.returncode == status


def test_a_damaged_profile_is_one_line(supervise: Supervise) -> None:
    code = supervise.base / "code"
    for name in ("supervise", "profiles"):
        shutil.copytree(ROOT / name, code / name, ignore=shutil.ignore_patterns("__pycache__"))
    damaged = code / "profiles" / "vllm.toml"
    damaged.write_text("sumary = 'a slip'\n" + damaged.read_text())
    launched = supervise.run("true", env={"PYTHONPATH": str(code)})
    same("damaged-profile", told(launched, supervise.base))
    assert launched.popen.returncode == Exit.USAGE
    assert len(launched.stderr.splitlines()) == 1
    assert supervise.runs() == []


def test_a_good_run(supervise: Supervise, port: int) -> None:
    launched = supervise.start("--profile", "vllm", *supervise.standin("--load-s", 0.3, port=port))
    supervise.wait_state("ready")
    launched.wait_said("ready ")
    same("live-status", told(supervise.run("status"), supervise.base, port))
    launched.send(signal.SIGTERM)
    launched.wait()
    same("good-run", told(launched, supervise.base, port))
    same("good-run-status", told(supervise.run("status"), supervise.base, port))


def test_stop(supervise: Supervise, port: int) -> None:
    launched = supervise.start("--profile", "vllm", *supervise.standin("--load-s", 0.1, port=port))
    supervise.wait_state("ready")
    same("stop", told(supervise.run("stop"), supervise.base, port))
    assert launched.wait() == -signal.SIGTERM
    same("stop-again", told(supervise.run("stop", f"vllm-{port}"), supervise.base, port))


def test_a_crash(supervise: Supervise, port: int) -> None:
    crash = ("--load-s", 0.3, "--crash-at", "load", "--crash-text", CRASH)
    launched = supervise.run("--profile", "vllm", *supervise.standin(*crash, port=port))
    same("crash", told(launched, supervise.base, port))
    assert launched.popen.returncode == Exit.DETERMINISTIC
    same("crash-status", told(supervise.run("status", f"vllm-{port}"), supervise.base, port))
    assert supervise.run("logs").stdout_path.read_bytes() == (supervise.attempt() / "server.log").read_bytes()
    same("logs-no-such-attempt", told(supervise.run("logs", "--attempt", "7"), supervise.base, port))


def test_a_refused_slate(supervise: Supervise) -> None:
    with socket.socket() as foreign:
        foreign.bind(("127.0.0.1", 0))
        foreign.listen()
        port = foreign.getsockname()[1]
        server = supervise.standin(port=port)
        refused = supervise.run("--slate-timeout", "0.1", "--profile", "vllm", *server)
        cleaned = supervise.run("clean", "--profile", "vllm", "--slate-timeout", "0.1", *server)
        as_json = supervise.run("clean", "--dry-run", "--json", "--profile", "vllm", *server)
    holder = re.compile(r"held by pid <pid> .*?, uid")
    for name, launched in (("slate-refused", refused), ("clean-refused", cleaned)):
        same(name, holder.sub("held by pid <pid> <title>, uid", told(launched, supervise.base, port)))
        assert launched.popen.returncode == Exit.SLATE
    (run,) = json.loads(as_json.stdout)["runs"]
    assert (run["run"], run["clean"], as_json.popen.returncode) == (f"vllm-{port}", False, Exit.SLATE)
    assert [obstacle["ownership"] for obstacle in run["obstacles"]] == ["foreign"]
    assert list((supervise.run_directory() / "attempts").glob("[0-9]*")) == []


def test_clean_needs_no_program_and_touches_nothing(supervise: Supervise, port: int) -> None:
    server = ("/nowhere/vllm", "serve", "/models/tiny", "--port", port)
    same("clean-dry-run", told(supervise.run("clean", "--dry-run", *server), supervise.base, port))
    launched = supervise.run("clean", "--dry-run", "--json", *server)
    same("clean-dry-run-json", re.sub(r'("seconds": )[\d.]+', r"\1<time>", told(launched, supervise.base, port)))
    assert supervise.runs() == []
