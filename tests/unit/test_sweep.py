"""A sweep: what is varied, what becomes of the command line, and what need not be tried."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from supervise.attempts import sweeps
from supervise.attempts.store import Run
from supervise.attempts.sweeps import State
from supervise.model.sweep import Axis, Result, SweepError, axes, conclusion, largest, pointless, points
from supervise.model.trial import Setting
from supervise.profiles.load import load_all
from supervise.profiles.substitution import aliases, substituted
from supervise.report.trial_table import summary, sweep_as_data, table
from supervise.verbs.secrets import Secrets
from supervise.verbs.sweep import _passing

PROFILES = load_all()
FRACTION = Axis("--gpu-memory-utilization", ("0.8", "0.9"))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["x=1,2"], (Axis("--x", ("1", "2")),)),
        (["--x=1,2"], (Axis("--x", ("1", "2")),)),
        (["-tp=1,2"], (Axis("-tp", ("1", "2")),)),
        (["x=1,2,1"], (Axis("--x", ("1", "2")),)),
        (["x=1", "y=a", "x=2"], (Axis("--x", ("1", "2")), Axis("--y", ("a",)))),
        (["env:VLLM_X=a,b"], (Axis("VLLM_X", ("a", "b"), variable=True),)),
        (['c={"a":1,"b":[2,3]},{}'], (Axis("--c", ('{"a":1,"b":[2,3]}', "{}")),)),
        (["x=a=b,c"], (Axis("--x", ("a=b", "c")),)),
        (["env:X=,1"], (Axis("X", ("", "1"), variable=True),)),
    ],
)
def test_axes(given: list[str], expected: tuple[Axis, ...]) -> None:
    assert axes(given) == expected


@pytest.mark.parametrize(
    "given",
    [
        "",
        "x",
        "x=",
        "=1",
        "--=1",
        "a b=1",
        "env:=1",
        "env:1X=1",
        "env:SUPERVISE_RUN=1",
        "x=" + ",".join(map(str, range(1001))),
    ],
)
def test_no_axis(given: str) -> None:
    with pytest.raises(SweepError):
        axes([given])


def test_grid_varies_the_last_axis_fastest() -> None:
    assert points(axes(["x=1,2", "y=a,b"])) == [("1", "a"), ("1", "b"), ("2", "a"), ("2", "b")]


@pytest.mark.parametrize(
    ("command", "flag", "expected"),
    [
        ("vllm serve m", "--gpu-memory-utilization", "vllm serve m --gpu-memory-utilization V"),
        ("vllm serve m --gpu-memory-utilization 0.9 -x", "--gpu-memory-utilization",
         "vllm serve m --gpu-memory-utilization V -x"),
        ("vllm serve m --gpu-memory-utilization=0.9 -x", "--gpu-memory-utilization",
         "vllm serve m --gpu-memory-utilization=V -x"),
        ("vllm serve m --gpu_memory_utilization 0.9", "--gpu-memory-utilization",
         "vllm serve m --gpu_memory_utilization V"),
        ("vllm serve m --tensor-parallel-size 2", "-tp", "vllm serve m --tensor-parallel-size V"),
        ("vllm serve m -tp 2", "--tensor-parallel-size", "vllm serve m -tp V"),
        ("vllm serve m --seed 1 --seed 2", "--seed", "vllm serve m --seed V --seed V"),
        ("vllm serve m --seed -1 --x", "--seed", "vllm serve m --seed V --x"),
        ("env A=--seed numactl -N 0 vllm serve m --seed 1", "--seed",
         "env A=--seed numactl -N 0 vllm serve m --seed V"),
        ("any.sh --seed 1 -- --seed 2", "--seed", "any.sh --seed V -- --seed 2"),
        ("any.sh -- x", "--seed", "any.sh --seed V -- x"),
        ("python -m sglang.launch_server --mem-fraction-static 0.9", "--mem-fraction-static",
         "python -m sglang.launch_server --mem-fraction-static V"),
    ],
)  # fmt: skip
def test_substitution(command: str, flag: str, expected: str) -> None:
    words, env, _ = substituted(command.split(), [Axis(flag, ("V",))], ("V",), PROFILES)
    assert " ".join(words) == expected
    assert not env


def test_a_value_that_looks_like_a_flag_is_joined_to_it() -> None:
    words = substituted(["vllm", "serve", "m"], [Axis("--x", ())], ("--y",), PROFILES).command
    assert words == ["vllm", "serve", "m", "--x=--y"]


@pytest.mark.parametrize(
    ("given", "value", "expected"),
    [
        ("vllm serve m", "on", "vllm serve m --enforce-eager"),
        ("vllm serve m --enforce-eager", "on", "vllm serve m --enforce-eager"),
        ("vllm serve --enforce_eager m", "off", "vllm serve m --no-enforce-eager"),
        ("vllm serve m", "off", "vllm serve m --no-enforce-eager"),
        ("vllm serve m --no-enforce-eager", "on", "vllm serve m --enforce-eager"),
        ("vllm serve m --no_enforce_eager -x", "off", "vllm serve m -x --no-enforce-eager"),
        ("vllm serve m -- --enforce-eager", "off", "vllm serve m --no-enforce-eager -- --enforce-eager"),
        # SGLang's take no form for off.
        ("python -m sglang.launch_server --trust-remote-code --x", "off", "python -m sglang.launch_server --x"),
    ],
)
def test_switch(given: str, value: str, expected: str) -> None:
    flag = "--trust-remote-code" if "sglang" in given else "--enforce-eager"
    words = substituted(given.split(), [Axis(flag, (value,))], (value,), PROFILES).command
    assert " ".join(words) == expected


@pytest.mark.parametrize(
    ("flag", "value", "expected"),
    [
        ("--no-enable-prefix-caching", "on", "--no-enable-prefix-caching"),
        ("--no-enable-prefix-caching", "off", "--enable-prefix-caching"),
        ("--disable-log-stats", "on", "--disable-log-stats"),
        ("--disable-log-stats", "off", ""),
    ],
)
def test_switch_with_and_without_a_form_for_off(flag: str, value: str, expected: str) -> None:
    words = substituted(["vllm", "serve", "m"], [Axis(flag, (value,))], (value,), PROFILES).command
    assert words[3:] == expected.split()


def test_switch_takes_no_other_value() -> None:
    with pytest.raises(SweepError, match="on,off"):
        substituted(["vllm", "serve", "m"], [Axis("--enforce-eager", ("2",))], ("2",), PROFILES)


def test_variable() -> None:
    axis = Axis("VLLM_X", ("a",), variable=True)
    setting = Setting(frozenset({"VLLM_X"}), ("a",), variable=True)
    serve = ["vllm", "serve", "m"]
    assert substituted(serve, [axis], ("a",), PROFILES) == (serve, {"VLLM_X": "a"}, (setting,))
    with pytest.raises(SweepError, match="leave it out"):
        substituted(["env", "VLLM_X=1", *serve], [axis], ("a",), PROFILES)
    with pytest.raises(SweepError, match="leave it out"):
        substituted(["env", "-u", "VLLM_X", *serve], [axis], ("a",), PROFILES)
    with pytest.raises(SweepError, match="clears its environment"):
        substituted(["nice", "env", "-i", *serve], [axis], ("a",), PROFILES)


@pytest.mark.parametrize(
    ("given", "value", "expected"),
    [
        ("vllm serve m", "1 2 4", "vllm serve m --cudagraph-capture-sizes 1 2 4"),
        ("vllm serve m --cudagraph-capture-sizes 8 16 -x", "1 2", "vllm serve m --cudagraph-capture-sizes 1 2 -x"),
        ("vllm serve m --cudagraph_capture_sizes=8", "1 2", "vllm serve m --cudagraph_capture_sizes 1 2"),
        ("vllm serve m --cudagraph_capture_sizes=8", "1", "vllm serve m --cudagraph_capture_sizes=1"),
    ],
)
def test_a_list_has_several_words(given: str, value: str, expected: str) -> None:
    axis = Axis("--cudagraph-capture-sizes", (value,))
    found = substituted(given.split(), [axis], (value,), PROFILES)
    assert " ".join(found.command) == expected
    assert found.settings[0].words == tuple(value.split())


@pytest.mark.parametrize(
    ("flag", "value"),
    [("--served-model-name", '{"a": 1}'), ("--chat-template", "a b"), ("--lora-modules", '[1, "a b"]')],
)
def test_what_is_no_list_of_words_stays_one_word(flag: str, value: str) -> None:
    assert substituted(["vllm", "serve", "m"], [Axis(flag, ())], (value,), PROFILES).command[-1] == value


# --- what need not be tried -------------------------------------------------------------------------------------------


def failed(*values: str, cause: str = "KeyError: 'w'", **more: Any) -> Result:
    said: dict[str, Any] = {"failure": "deterministic", "fingerprint": "f"} | more
    return Result(values, said.pop("verdict", "fail"), cause, cause=cause, **said)


X, Y = (Axis("--max-num-seqs", ("1", "2", "3")), Axis("--block-size", ("8", "16")))
NAMES = [aliases(X, PROFILES["vllm"]), aliases(Y, PROFILES["vllm"])]


@pytest.mark.parametrize(
    ("results", "abandoned"),
    [
        ([failed("1"), failed("2")], True),
        ([failed("1")], False),
        ([], False),
        ([failed("1"), failed("2", cause="KeyError: 'v'")], False),
        ([failed("1"), failed("2", fingerprint="g")], False),
        ([failed("1", fingerprint=None), failed("2", fingerprint=None)], False),
        ([failed("1", failure="unknown"), failed("2", failure="unknown")], False),
        ([failed("1", verdict="skip"), failed("2", verdict="skip")], False),
        ([failed("1", advice=("Lower --max-num-seqs.",)), failed("2", advice=("Lower --max-num-seqs.",))], False),
        ([failed("1", cause="try max_num_seqs"), failed("2", cause="try max_num_seqs")], False),
        ([failed("1", advice=("Lower --max-num-seqs-per-x.",)), failed("2")], False),
        ([failed("1", advice=("See --block-size.",)), failed("2", advice=("See --block-size.",))], True),
        ([failed("1"), Result(("2",), "pass", ""), failed("2")], True),
    ],
)
def test_pointless(results: list[Result], abandoned: bool) -> None:
    assert bool(pointless(("3",), results, NAMES[:1])) is abandoned


@pytest.mark.parametrize(
    ("results", "point", "abandoned"),
    [
        # That the block size does not matter is known of one batch size only.
        ([failed("1", "8"), failed("1", "16")], ("2", "8"), False),
        ([failed("1", "8"), failed("2", "8")], ("3", "8"), True),
        ([failed("1", "8"), failed("2", "8")], ("3", "16"), False),
        ([failed("1", "8"), failed("2", "16")], ("3", "8"), True),
        ([failed("1", "8"), failed("2", "16")], ("1", "16"), True),
    ],
)
def test_pointless_in_a_grid(results: list[Result], point: tuple[str, str], abandoned: bool) -> None:
    assert bool(pointless(point, results, NAMES)) is abandoned


@pytest.mark.parametrize(
    ("verdicts", "status"),
    [
        (["pass", "fail", "skip"], 0),
        (["fail", "skip", "abandoned"], 1),
        (["skip", "skip"], 125),
        ([], 125),
    ],
)
def test_conclusion(verdicts: list[str], status: int) -> None:
    assert conclusion([Result((str(at),), verdict, "") for at, verdict in enumerate(verdicts)]) == status


def test_of_a_sweep_that_cannot_go_on_nobody_knows_that_none_passes() -> None:
    failed_only = [Result(("1",), "fail", ""), Result(("2",), "skip", "")]
    assert conclusion(failed_only) == 1
    assert conclusion(failed_only, whole=False) == 125
    assert conclusion([*failed_only, Result(("3",), "pass", "")], whole=False) == 0


@pytest.mark.parametrize(
    ("result", "again"),
    [
        (Result(("1",), "skip", "", 1, failure="load"), True),
        (Result(("1",), "skip", "", 1, failure="transient"), True),
        (Result(("1",), "skip", "the slate is not clean"), True),
        (Result(("1",), "skip", "--x: nobody can tell whether it arrived", 1), False),
        (Result(("1",), "fail", "", 1, failure="transient"), False),
        (Result(("1",), "fail", "refused before the launch"), False),
        (Result(("1",), "pass", "", 1), False),
    ],
)
def test_what_was_unjudged_for_a_passing_reason_is_asked_again(result: Result, again: bool) -> None:
    assert _passing(result) is again


# --- secrets ----------------------------------------------------------------------------------------------------------

TOKEN, KEY = Axis("HF_TOKEN", ("s3cret-a", "s3cret-b"), variable=True), Axis("--api-key", ("s3cret-k",))


def test_secrets_are_numbered_where_they_are_seen_and_told_apart_where_they_are_kept() -> None:
    swept = (TOKEN, KEY, X)
    secrets = Secrets(swept, "r")
    tried = points(swept)
    assert secrets.shown(tried[0]) == ("***1", "***1", "1")
    assert secrets.shown(tried[-1]) == ("***2", "***1", "3")
    assert secrets.known([secrets.kept(Result(point, "pass", "")) for point in tried], tried) == [
        Result(point, "pass", "") for point in tried
    ]
    kept = str([secrets.kept(Result(point, "pass", "")) for point in tried])
    assert "s3cret" not in kept
    others = Secrets((Axis("HF_TOKEN", ("s3cret-c", "s3cret-d"), variable=True), KEY, X), "r")
    assert not others.known([secrets.kept(Result(tried[0], "pass", ""))], points(others_axes(KEY)))


def others_axes(key: Axis) -> tuple[Axis, ...]:
    return (Axis("HF_TOKEN", ("s3cret-c", "s3cret-d"), variable=True), key, X)


def test_a_secret_that_an_engine_repeats_is_hidden() -> None:
    found = Secrets((TOKEN,), "r").without(failed("s3cret-b", cause="401: s3cret-b", advice=("Check s3cret-b.",)))
    assert (found.why, found.cause, found.advice) == ("401: ***2", "401: ***2", ("Check ***2.",))


def test_what_is_no_secret_is_shown() -> None:
    axes_ = (Axis("--max-num-batched-tokens", ("1", "2")), Axis("URL", ("redis://u:pw@h",), variable=True))
    assert Secrets(axes_, "r").shown(("2", "redis://u:pw@h")) == ("2", "***1")


def test_largest_is_one_of_numbers_that_passed() -> None:
    results = [Result(("0.9",), "fail", ""), Result(("0.8",), "pass", ""), Result(("0.85",), "pass", "")]
    axis = Axis("--x", ("0.9", "0.8", "0.85"))
    assert largest([axis], results) == "0.85"
    assert largest([axis], results[:1]) is None
    assert largest([Axis("--x", ("0.9", "fp8"))], results) is None
    assert largest([axis, axis], results) is None


def test_table_is_aligned_and_harmless() -> None:
    results = [failed("0.9", cause="bad\x1b[31m\n  thing"), Result(("0.8",), "pass", "fine", 3, "asked", ready_s=61.0)]
    lines = table([FRACTION], results)
    assert [line.split()[1] for line in lines] == ["verdict", "failed", "passed"]
    assert len({line.index(word) for line, word in zip(lines, ("why", "bad", "fine"), strict=True)}) == 1
    assert "\x1b" not in "".join(lines)
    assert "has no 'a  b'" in table([FRACTION], [failed("0.9", cause="has no 'a  b'")])[1]
    assert summary([FRACTION], results) == "1 passed, 1 failed; the largest that passed: --gpu-memory-utilization=0.8"
    told = json.loads(json.dumps(sweep_as_data("r", [FRACTION], results, 0)))
    assert [each["values"] for each in told["results"]] == [{FRACTION.name: "0.9"}, {FRACTION.name: "0.8"}]
    assert (told["verdict"], told["exit_status"], told["largest"]) == ("pass", 0, "0.8")


# --- its state --------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = Run(str(tmp_path), "r")
    made.create()
    return made


def test_state_is_read_back(run: Run) -> None:
    assert sweeps.read(run) is None
    state = State("k", (failed("1", advice=("a",), ready_s=1.5), Result(("2",), "pass", "", 4, seconds=2.0)))
    sweeps.write(run, state)
    assert sweeps.read(run) == state


@pytest.mark.parametrize(
    "damage",
    [
        {"key": 1},
        {"finished": 0},
        {"results": {}},
        {"results": [{}]},
        {"results": [1]},
        *({"results": [Result(("1",), "pass", "")._asdict() | wrong]} for wrong in (
            {"values": "1"}, {"values": [1]}, {"verdict": "good"}, {"why": None}, {"attempt": "1"}, {"attempt": 0},
            {"advice": "x"}, {"ready_s": "1"}, {"ready_s": float("nan")}, {"seconds": None}, {"cause": 1},
            {"ttft_s": -1}, {"more": 1},
        )),
    ],
)  # fmt: skip
def test_damaged_state_is_none(run: Run, damage: dict[str, Any]) -> None:
    sound = {"version": 1, "key": "k", "results": [], "finished": False}
    path = Path(run.path) / "sweep.json"
    path.write_text(json.dumps(sound))
    assert sweeps.read(run) == State("k")
    path.write_text(json.dumps(sound | damage))
    assert sweeps.read(run) is None


def test_one_sweep_at_a_time(run: Run) -> None:
    with sweeps.alone(run) as first, sweeps.alone(run) as second:
        assert (first, second) == (True, False)
    with sweeps.alone(run) as third:
        assert third
