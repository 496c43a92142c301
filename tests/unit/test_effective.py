"""What arrived of the flags that were given: real log lines, real command lines, and decoys that must say nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervise.diagnosis import printed
from supervise.diagnosis.effective import UNKNOWN, Effective, Fate, agrees, arrivals, same
from supervise.profiles import load
from supervise.profiles.arguments import Arguments, from_yaml, read

CORPUS = Path(__file__).parents[1] / "corpus"


def settings(profile: str, case: str) -> dict[str, object]:
    """What an engine printed in a log of the corpus."""
    rule = load.load(profile).settings
    assert rule is not None
    for line in (CORPUS / case / "log.txt").read_text(errors="replace").splitlines():
        if found := rule.line.search(line):
            said = printed.mapping(line[found.end() :])
            assert said is not None
            return said
    raise AssertionError(f"{case} has no such line")


def flags(profile: str, words: str) -> Arguments:
    return read(words.split(), load.load(profile))


@pytest.mark.parametrize(
    ("profile", "case", "key", "value"),
    [
        ("vllm", "real-healthy-cut-in-mid-line", "enforce_eager", True),
        ("vllm", "real-lora-rank-too-large", "lora_modules", UNKNOWN),
        ("vllm", "real-lora-rank-too-large", "port", 37761),
        ("sglang", "real-sglang-lfs", "mem_fraction_static", 0.1),
        ("sglang", "real-sglang-lfs", "model_loader_extra_config", "{}"),
        ("sglang", "gpu-illegal-access-sglang-rank-3", "tp_size", 4),
        ("sglang", "docker-json-sglang-shape", "disable_cuda_graph", False),
    ],
)
def test_the_settings_in_a_real_log(profile: str, case: str, key: str, value: object) -> None:
    assert settings(profile, case)[key] == value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{'a': 'x, y', 'b': [1, {'c': 2}], 'd': <Kind.A: 'a'>}", {"a": "x, y", "b": [1, {"c": 2}], "d": UNKNOWN}),
        ("ServerArgs(a='it\\'s', b=None) and more", {"a": "it's", "b": None}),
        ("{'a': 1, 'b': 'cut of", {"a": 1}),
        ("nothing", None),
        ("{}", {}),
    ],
)
def test_a_mapping_as_python_prints_it(text: str, said: dict[str, object] | None) -> None:
    assert printed.mapping(text) == said


@pytest.mark.parametrize(
    ("one", "two", "equal"),
    [
        ("256", "256", True),
        ("256", "128", False),
        ("1e3", "1000", True),
        ("8k", "8000", True),
        ("8K", "8192", True),
        ("8k", "9000", False),
        ("0.90", "0.9", True),
        ('{"a": 1, "b": 2}', '{"b":2,"a":1}', True),
        ('{"a": 1}', '{"a": 2}', False),
        ("./m", "/data/m", True),
        ("m/q", "/data/m/q", True),
        ("/data/m", "/data/n", False),
        ("True", "true", True),
        ("auto", "half", False),
    ],
)
def test_words_that_mean_the_same(one: str, two: str, equal: bool) -> None:
    assert same([one], [two]) is same([two], [one]) is equal


@pytest.mark.parametrize(
    ("words", "value", "verdict"),
    [
        (["256"], 256, True),
        (["256"], 128, False),
        (["8k"], 8000, True),
        (["auto"], -1, None),
        ([], True, True),
        ([], False, False),
        (["false"], True, False),
        (["half"], "HALF", True),
        (["half"], "float16", False),
        (["m"], "/models/m", True),
        (["acme/m"], "/hub/snapshots/0", None),
        (["a", "b"], ["a", "b"], True),
        (["a,b"], ["a", "b"], True),
        (["a"], ["b"], None),
        (['{"x": 1}'], {"x": 1}, True),
        (['{"x": 1}'], {"x": 1, "y": 2}, None),
        (["secret"], "***", None),
        (["x"], None, None),
        (["x"], UNKNOWN, None),
    ],
)
def test_whether_a_printed_value_is_what_was_asked_for(words: list[str], value: object, verdict: bool | None) -> None:
    assert agrees(words, value) is verdict


A, L, U, C = Fate.ALTERED, Fate.LOST, Fate.UNKNOWN, Fate.ARRIVED
VLLM = "--max-num-seqs 256 -tp 2 --enforce-eager --no-enable-prefix-caching --port 8000"


@pytest.mark.parametrize(
    ("given", "argv", "fates"),
    [
        (VLLM, VLLM, [C, C, C, C, C]),
        (VLLM, VLLM.replace("-tp", "--tensor-parallel-size").replace("256", "2.56e2"), [C, C, C, C, C]),
        (VLLM, VLLM.replace("256", "128"), [A, C, C, C, C]),
        (VLLM, VLLM.replace("-tp 2", "-tp 4"), [C, A, C, C, C]),
        (VLLM, VLLM.replace("--enforce-eager", ""), [C, C, L, C, C]),
        (VLLM, VLLM.replace("--no-enable", "--enable"), [C, C, C, A, C]),
        # The default is what it asks for anyway.
        (VLLM, VLLM.replace("--port 8000", ""), [C, C, C, C, U]),
        # Whether what follows an unknown flag is its value, nobody can tell.
        ("--new-switch model --port 1", "model --new-switch --port 1", [U, C]),
    ],
)
def test_flags_behind_a_wrapper(given: str, argv: str, fates: list[Fate]) -> None:
    found = arrivals(flags("vllm", given), Effective((flags("vllm", argv),)), load.load("vllm"))
    assert [each.fate for each in found] == fates


def test_a_flag_that_became_one_of_a_file_names_the_file() -> None:
    vllm = load.load("vllm")
    engine = flags("vllm", "--port 8000").over(read(from_yaml({"max-num-seqs": 128}), vllm), "/etc/c.yaml")
    (seqs, _) = arrivals(flags("vllm", "--max-num-seqs 256 --port 8000"), Effective((engine,)), vllm)
    assert (seqs.fate, seqs.arrived, seqs.file) == (A, ("128",), "/etc/c.yaml")


def test_flags_of_a_wrapper_of_the_users_own_are_none_of_the_engines() -> None:
    given, engine = flags("vllm", "--debug --fast 3 --enforce-eager"), (flags("vllm", "--port 8000"),)
    assert [e.fate for e in arrivals(given, Effective(engine, guessed=True), load.load("vllm"))] == [U, U, L]
    assert [e.fate for e in arrivals(given, Effective(engine), load.load("vllm"))] == [L, L, L]


def test_a_flag_that_their_wrapper_does_not_want_is_the_engines() -> None:
    given, engine = flags("vllm", "--debug --seed 3"), (flags("vllm", "--port 8000"),)
    facts = Effective(engine, guessed=True, unwanted=frozenset({"--seed"}))
    assert [e.fate for e in arrivals(given, facts, load.load("vllm"))] == [U, L]


def test_a_wrapper_may_make_a_word_without_a_flag_of_one() -> None:
    given, vllm = flags("vllm", "--model acme/m --port 8000"), load.load("vllm")
    for engine, fate in (("acme/m --port 8000", C), ("acme/n --port 8000", U), ("--port 8000", U)):
        found = arrivals(given, Effective((flags("vllm", engine),), guessed=True), vllm)
        assert [each.fate for each in found] == [fate, C]
    (model, _) = arrivals(given, Effective((flags("vllm", "--model acme/n --port 8000"),)), vllm)
    assert model.fate is A


@pytest.mark.parametrize(("profile", "exact"), [("vllm", True), ("sglang", False)])
def test_settings_alone(profile: str, exact: bool) -> None:
    """Of an engine that changes values itself before it prints them, a difference proves nothing."""
    said = ({"max_num_seqs": 128, "port": 8000, "tp_size": 2},)
    given = flags(profile, "--max-num-seqs 256 --port 8000 --unheard 1")
    fates = [each.fate for each in arrivals(given, Effective((), said, exact=exact), load.load(profile))]
    assert fates == [A if exact else U, C, U]


def test_a_real_launch_of_each_engine_raises_no_alarm() -> None:
    """The command lines that these logs were written for."""
    tiny = settings("vllm", "real-healthy-cut-in-mid-line")
    given = flags("vllm", "/models/tiny --port 45931 --dtype float32 --enforce-eager --max-num-seqs 256")
    fates = [each.fate for each in arrivals(given, Effective((), (tiny,), exact=True), load.load("vllm"))]
    assert fates == [C, C, C, U]
    sgl = settings("sglang", "real-sglang-lfs")
    given = flags("sglang", "--model-path /models/lfs --mem-fraction-static 0.1 --tp 1 --chunked-prefill-size 8192")
    told = [each.fate for each in arrivals(given, Effective((), (sgl,)), load.load("sglang"))]
    assert A not in told
    assert L not in told
    assert told[:2] == [C, C]
