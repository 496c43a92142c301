"""A match says what it knows and no more; a set proves itself, and each way of being wrong is found."""

from __future__ import annotations

import re
import time

import pytest

from supervise.diagnosis.facts import Facts
from supervise.diagnosis.matching import Match, Matcher
from supervise.diagnosis.prefixes import parse
from supervise.diagnosis.proving import is_slow, prove
from supervise.model.diagnosis import SignatureSet
from supervise.profiles.errors import ProfileError
from supervise.profiles.signatures import available_sets, load_signatures, parse_signatures

SETS = ("python", "host", "cuda", "nccl", "compile")
ALL = load_signatures(available_sets())

GOOD = """
[[signature]]
id = "pool-short"
role = "root"
literals = ["pool is short"]
pattern = '^pool is short(?: of (?P<wanted>[\\d.]+ GiB))?(?: on (?P<where>\\w+))?'
class = "load"
fatal = true
meaning = "A pool is short[ of {wanted}][: `{fraction_flag} {fraction}` leaves {fraction_left}]."
advice = ["Look at {where}.", "Try {lower_fraction}.", "Read on."]
constraint = "It costs room."
compute = ["lower-fraction"]
match = ["pool is short of 2 GiB on gpu0"]
nomatch = ["the pool is short"]
"""


def matched(line: str, text: str = GOOD, **facts: float) -> Match:
    match = Matcher(parse_signatures(text.encode(), "x.toml"), facts).find(parse(line, 1))
    assert match is not None
    return match


def test_what_is_known_is_said() -> None:
    match = matched("pool is short of 2 GiB on gpu0", mem_fraction_static=0.95, total_gib=95)
    assert match.meaning == "A pool is short of 2 GiB: `--mem-fraction-static 0.95` leaves 4.8 GiB."
    assert match.advice == ("Look at gpu0.", "Try 0.88.", "Read on.")
    assert match.constraint == "It costs room."


def test_what_is_not_known_is_left_out() -> None:
    match = matched("pool is short")
    assert match.meaning == "A pool is short."
    assert match.advice == ("Read on.",)
    assert match.groups == {}


def test_a_meaning_without_its_value_says_so() -> None:
    text = GOOD.replace("A pool is short[ of {wanted}]", "{where} is short")
    assert matched("pool is short", text).meaning == "unknown is short."


def test_a_long_value_does_not_drown_the_sentence() -> None:
    assert len(matched("pool is short on " + "g" * 5000).advice[0]) < 300


def test_values_are_not_taken_for_templates() -> None:
    text = GOOD.replace(r"(?P<where>\w+)", "(?P<where>.+)")
    assert matched("pool is short on {lower_fraction}[{where}]", text).advice[0] == "Look at {lower_fraction}[{where}]."


def test_facts_that_come_later_are_known_to_an_earlier_match() -> None:
    facts = Facts()
    match = Matcher(parse_signatures(GOOD.encode(), "x.toml"), facts.values).find(parse("pool is short", 1))
    facts.feed(parse("server_args=ServerArgs(mem_fraction_static=0.95)", 2))
    facts.feed(parse("GPU 0 has a total capacity of 95.00 GiB", 3))
    assert match is not None
    assert "Try 0.88." in match.advice


def test_the_advice_of_a_real_set_is_computed() -> None:
    facts = {"mem_fraction_static": 0.95}
    line = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of "
        "95.00 GiB of which 254.00 MiB is free."
    )
    match = Matcher(ALL, facts).find(parse(line, 1))
    assert match is not None
    assert match.meaning == "A GPU had no 512.00 MiB left: 254.00 MiB of its 95.00 GiB were free."
    assert "`--mem-fraction-static 0.95` leaves 4.8 GiB per GPU" in match.advice[0]
    assert "try 0.88" in match.advice[0]
    assert all("{" not in text and "unknown" not in text for text in match.advice)


@pytest.mark.parametrize(
    ("line", "known"),
    [
        ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `x`", "cublas-failed"),
        ("ImportError: libcuda.so.1: cannot open shared object file: No such file or directory", "no-gpu-visible"),
        ("ImportError: libcudart.so.13: cannot open shared object file: No such file", "shared-library-missing"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'ninja'", "ninja-missing"),
        ("PermissionError: [Errno 13] Permission denied: '/x/.triton/cache/ab'", "compile-cache-damaged"),
        ("PermissionError: [Errno 13] Permission denied: '/x'", "lock-of-another-user"),
        ("AttributeError: Can't get local object 'f.<locals>.g'", "not-picklable"),
        ("AttributeError: 'X' object has no attribute 'y'", "python-code-error"),
        ("[77.1] Memory cgroup out of memory: Killed process 7 (python3)", "out-of-host-memory"),
        ("/x/y.cuh:20:10: fatal error: curand_kernel.h: No such file or directory", "nvcc-missing"),
        ("/x/y.cuh:20:10: fatal error: mine.h: No such file or directory", "compile-error-line"),
    ],
)
def test_of_several_the_most_telling_is_found(line: str, known: str) -> None:
    match = Matcher(ALL).find(parse(line, 1))
    assert match is not None
    assert match.signature.id == known


@pytest.mark.parametrize(
    "line",
    [
        "The user asks why CUDA error: out of memory happens",
        "'prompt': 'NCCL WARN Cuda failure 2'",
        "they wrote: Killed",
        "INFO 11-30 05:00:00 [l.py:1] Fatal Python error: Segmentation fault",
        "/x/y.py:3: FutureWarning: CUDA error: out of memory",
        "/x/a.cuh(12): warning #177-D: error: unused",
        "\"GET /v1/models HTTP/1.1\" 404 Not Found",
    ],
)  # fmt: skip
def test_text_that_only_speaks_of_failures_is_none(line: str) -> None:
    assert Matcher(ALL).find(parse(line, 1)) is None


@pytest.mark.parametrize(
    ("old", "new", "key", "says"),
    [
        ('compute = ["lower-fraction"]', 'compute = ["tea"]', "compute", "lower-fraction"),
        ('compute = ["lower-fraction"]', "", "meaning", "fraction_flag"),
        ('constraint = "It costs room."', 'constraint = "It costs {room}."', "constraint", "room"),
        ('constraint = "It costs room."', "constraint = 3", "constraint", "string"),
    ],
)
def test_a_damaged_template_says_what_is_wrong(old: str, new: str, key: str, says: str) -> None:
    with pytest.raises(ProfileError) as caught:
        parse_signatures(GOOD.replace(old, new, 1).encode(), "x.toml")
    assert caught.value.key.endswith(key)
    assert says in str(caught.value)


# --- proving ----------------------------------------------------------------------------------------------------------

TRAP = """
[[trap]]
id = "calm"
literals = ["pool is short"]
pattern = "on gpu0"
why = "It is not."
match = ["pool is short on gpu0"]
nomatch = ["x"]
"""


def faults(text: str, *others: str) -> list[str]:
    own = parse_signatures(text.encode(), "x.toml")
    sets = [parse_signatures(other.encode(), "y.toml") for other in others] + [own]
    joined = SignatureSet(
        tuple(signature for each in sets for signature in each.signatures),
        tuple(trap for each in sets for trap in each.traps),
    )
    return [str(fault) for fault in prove("x.toml", own, joined, time.thread_time)]


def test_a_good_set_has_no_fault() -> None:
    assert faults(GOOD) == []
    assert faults(TRAP) == []


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('match = ["pool is short of', 'match = ["pond is short of', "holds none of the literals"),
        ("'^pool is short", "'^pool is shorter", "does not match the pattern"),
        ('nomatch = ["the pool is short"]', 'nomatch = ["pool is short"]', "nomatch sample 1 matches"),
        (" on gpu0\"]", "\"]", "gives {where} a value"),
        ("A pool is short[", "A pool is {lower_fraction} short[", "put that stretch in [brackets]"),
        ('match = ["pool', 'match = ["INFO 11-30 05:00:00 [x.py:1] pool', "logged as INFO"),
        ("'^pool is short", "'(?:a|aa)+$|^pool is short", "effort explodes"),
    ],
)  # fmt: skip
def test_each_fault_is_found(old: str, new: str, says: str) -> None:
    assert old in GOOD
    found = faults(GOOD.replace(old, new, 1))
    assert any(says in fault and fault.startswith("x.toml: pool-short: ") and "; " in fault for fault in found), found


def test_a_sample_that_others_take_is_a_fault() -> None:
    longer = GOOD.replace("pool-short", "pool-other").replace('["pool is short"]', '["pool is short of 2"]')
    assert any("found as pool-other" in fault for fault in faults(GOOD, longer))
    assert any("hidden by the trap calm" in fault for fault in faults(GOOD, TRAP))


@pytest.mark.parametrize("pattern", [r"(a+)+$", r"(?:a|aa)+$", r"a.*a.*a.*b", r".+x"])
def test_what_is_not_linear_is_slow(pattern: str) -> None:
    assert is_slow(re.compile(pattern), "", "a", "!", time.thread_time)


@pytest.mark.parametrize("pattern", [r"^a{0,300}b", r"^(?:[\w.]+: ){0,6}b", r"^.{0,200}y", r"x"])
def test_what_is_bounded_is_not(pattern: str) -> None:
    assert not is_slow(re.compile(pattern), "", "a", "!", time.thread_time)


def test_every_shipped_set_of_these_is_loaded_and_none_repeats_an_id() -> None:
    ids = [each.id for each in (*ALL.signatures, *ALL.traps)]
    assert len(ids) == len(set(ids))
    assert set(SETS) <= set(available_sets())
