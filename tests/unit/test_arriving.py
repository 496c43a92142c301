"""Whether what was set for a trial has arrived, and what a refused launch says of it."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from supervise.host import procfs
from supervise.model.need import Need, Port
from supervise.model.preflight import Check, Level
from supervise.model.slate import Finding, Outcome, Ownership, SlateResult, Verdict
from supervise.model.trial import Course, Setting, judge
from supervise.model.trial import Verdict as Tried
from supervise.profiles.load import load_all
from supervise.runner.arriving import Arriving, _carries, _environment, _printed, _Seen
from supervise.runner.blame import blamed, lasting, refusal
from supervise.runner.worlds import _edited

PROFILES = load_all()
SEED = Setting(frozenset({"--seed"}), ("5",))
SIZES = Setting(frozenset({"--sizes"}), ("1", "2"))
OFF = Setting(frozenset({"--eager"}), absent=True)
VARIABLE = Setting(frozenset({"VLLM_X"}), ("a",), variable=True)


@pytest.mark.parametrize(
    ("words", "setting", "carried"),
    [
        ("x --seed 5", SEED, True),
        ("x --seed=5", SEED, True),
        ("x --seed 1 --seed 5", SEED, True),
        ("x --seed 50", SEED, False),
        ("x --seed", SEED, False),
        ("x seed 5", SEED, False),
        ("x --more_seed 5", SEED, False),
        ("x --sizes 1 2 --y", SIZES, True),
        ("x --sizes 1", SIZES, False),
        ("x", OFF, True),
        ("x --eager", OFF, False),
    ],
)
def test_words_of_a_command_line(words: str, setting: Setting, carried: bool) -> None:
    assert _carries(words.split(), setting) is carried


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("non-default args: {'max_num_seqs': 5, 'model': 'm'}", True),
        ("ServerArgs(model='m', max_num_seqs=5, x=1)", True),
        ("ServerArgs(max_num_seqs='5')", True),
        ("ServerArgs(max_num_seqs=50)", False),
        ("ServerArgs(max_num_seqs=5.5)", False),
        ("ServerArgs(my_max_num_seqs=5)", False),
        # A script says so of itself.
        ("starting with --max-num-seqs=5 --max_num_seqs 5", False),
        ("", False),
    ],
)
def test_settings_in_a_log(text: str, printed: bool) -> None:
    assert _printed(text, Setting(frozenset({"--max-num-seqs"}), ("5",))) is printed


def arriving(log: Path, *seen: _Seen, sure: bool = False) -> Arriving:
    made = Arriving.__new__(Arriving)
    state: dict[str, Any] = {"_seen": set(seen), "_log": str(log), "_sure": sure}
    for name, value in state.items():
        setattr(made, name, value)
    return made


SCRIPT = _Seen(("start.py", "--seed", "5"), frozenset({"VLLM_X=a"}), engine=False)
ENGINE = _Seen(("vllm", "serve", "m"), frozenset({"VLLM_X=b"}), engine=True)


@pytest.mark.parametrize(
    ("setting", "seen", "sure", "why"),
    [
        (SEED, (SCRIPT,), False, None),
        (SEED, (), False, "nobody can tell"),
        (SEED, (), True, None),
        # Whoever starts an engine may have kept the flag for himself.
        (SEED, (SCRIPT, ENGINE), False, "did not arrive"),
        (SEED, (ENGINE._replace(argv=("vllm", "serve", "m", "--seed=5")),), False, None),
        (VARIABLE, (SCRIPT,), False, None),
        (VARIABLE, (SCRIPT, ENGINE), False, "another value"),
        (VARIABLE, (ENGINE,), True, "another value"),
        (VARIABLE, (ENGINE._replace(env=frozenset({"A=1"})),), True, "did not arrive"),
        # Another process of the engine may have been given more.
        (VARIABLE, (ENGINE, ENGINE._replace(env=frozenset({"VLLM_X=a"}))), True, None),
        (VARIABLE, (ENGINE._replace(env=None),), True, None),
        (VARIABLE, (), False, "nobody can tell"),
    ],
)
def test_what_is_missing(
    tmp_path: Path, setting: Setting, seen: tuple[_Seen, ...], sure: bool, why: str | None
) -> None:
    said = arriving(tmp_path / "log", *seen, sure=sure)._missing(setting)
    assert (said is None) == (why is None)
    assert (why or "") in (said or "")
    assert "VLLM_X=" not in (said or "")


def test_a_log_that_tells_it_is_believed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("args: {'seed': 5}\n")
    assert arriving(log)._missing(SEED) is None
    assert arriving(log)._missing(SEED._replace(words=("6",))) is not None


def test_an_environment_is_read() -> None:
    assert any(each.startswith("PATH=") for each in _environment(os.getpid()) or ())
    assert procfs.read(os.getpid()) is not None
    assert _environment(2**22 + 1) is None


# --- refused before the launch ----------------------------------------------------------------------------------------

LENGTH = Check("length", Level.REFUSAL, "a context of 9999 tokens is longer than the model's 2048", "set VLLM_LONG=1")
DISK = Check("disk", Level.REFUSAL, "state directory /x: no room for a log")
TAKEN = Finding("port", "port 8000", Ownership.FOREIGN, ("held",))
CONTEXT = Setting(frozenset({"--max-model-len"}), ("9999",))
RANKS = Setting(frozenset({"--tensor-parallel-size"}), ("5",))
DEVICES = Setting(frozenset({"CUDA_VISIBLE_DEVICES"}), ("9",), variable=True)
NEED = Need("vllm", "r", (), (), ports=(Port(8000, "", "http", "--port"),))


def result(*checks: Check, obstacles: tuple[Finding, ...] = (), outcomes: tuple[Outcome, ...] = ()) -> SlateResult:
    return SlateResult("r", outcomes, obstacles, (), (), 0.0, preflight=checks)


@pytest.mark.parametrize(
    ("slate", "setting", "fails"),
    [
        (result(LENGTH), CONTEXT, True),
        (result(LENGTH), Setting(frozenset({"VLLM_LONG"}), ("0",), variable=True), True),
        (result(LENGTH), SEED, False),
        (result(DISK), CONTEXT, False),
        (result(DISK, LENGTH), CONTEXT, True),
        (result(obstacles=(TAKEN,)), CONTEXT, False),
        (result(Check("heads", Level.REFUSAL, "12 heads")), RANKS, True),
        (result(Check("gpus", Level.REFUSAL, "9 GPUs")), RANKS, True),
        (result(Check("gpus", Level.REFUSAL, "9 GPUs")), DEVICES, True),
        (result(Check("length", Level.WARNING, "9999")), CONTEXT, False),
    ],
)
def test_a_refusal_that_the_value_has_brought_about_fails_it(slate: SlateResult, setting: Setting, fails: bool) -> None:
    why = blamed(slate, (setting,), PROFILES["vllm"])
    course = Course(refusal=refusal(slate), blamed=why)
    assert judge(course).verdict is (Tried.FAIL if fails else Tried.SKIP)
    assert blamed(slate, (), PROFILES["vllm"]) is None


def test_whoever_holds_the_port_holds_it_for_every_value() -> None:
    taken = result(obstacles=(TAKEN,))
    assert lasting(taken, (CONTEXT,), NEED)
    assert not lasting(taken, (Setting(frozenset({"--port"}), ("8000",)),), NEED)
    assert not lasting(result(LENGTH), (CONTEXT,), NEED)
    assert not lasting(result(obstacles=(Finding("gpu", "GPU 0", Ownership.FOREIGN, ("60 GiB",)),)), (CONTEXT,), NEED)
    left = Finding("process", "pid 7", Ownership.STALE, ("ours",))
    assert lasting(result(outcomes=(Outcome(left, Verdict.REMAINS, "", 1.0),)), (CONTEXT,), NEED)
    gone = result(outcomes=(Outcome(left, Verdict.GONE, "", 1.0),))
    assert not lasting(gone, (CONTEXT,), NEED)
    assert "pid 7" not in refusal(gone)


@pytest.mark.parametrize("skipped", [(), ("effect",), ("all",)])
def test_what_is_left_out_before_the_launch_is_looked_at_after_it(skipped: tuple[str, ...]) -> None:
    planned: Any = SimpleNamespace(
        profile=PROFILES["vllm"], options=SimpleNamespace(no_preflight=frozenset(skipped), watch=())
    )
    assert _edited(planned, SimpleNamespace(path="/x")) is not None  # type: ignore[arg-type]
    planned.profile = PROFILES["generic"]
    assert _edited(planned, SimpleNamespace(path="/x")) is None  # type: ignore[arg-type]
