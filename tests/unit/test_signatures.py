"""Every signature and every trap proves itself on its own samples; a damaged file says what is wrong."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervise.diagnosis.matching import Matcher, group_by_gate
from supervise.diagnosis.prefixes import parse
from supervise.diagnosis.verdict import Diagnoser
from supervise.model.diagnosis import FailureClass, Role, Signature, SignatureSet, Trap
from supervise.profiles.errors import ProfileError
from supervise.profiles.signatures import available_sets, load_signatures, parse_signatures

SETS = ("python", "host", "cuda", "nccl", "hub", "vllm", "sglang")
ALL = load_signatures(SETS)
ENTRIES: tuple[Signature | Trap, ...] = (*ALL.signatures, *ALL.traps)


def text(sample: str) -> str:
    return parse(sample, 1).text


def ids(entries: tuple[Signature | Trap, ...]) -> list[str]:
    return [entry.id for entry in entries]


class Starting:
    """A server that is not ready: of such a one, fatal lines are called fatal at once."""

    phase = None
    ready = False


@pytest.mark.parametrize("entry", ENTRIES, ids=ids(ENTRIES))
def test_samples_prove_the_pattern(entry: Signature | Trap) -> None:
    for sample in entry.match:
        assert entry.pattern.search(text(sample)), sample
        assert any(literal in text(sample) for literal in entry.literals), sample
    for sample in entry.nomatch:
        assert not entry.pattern.search(text(sample)) or parse(sample, 1).level == "INFO", sample


@pytest.mark.parametrize("signature", ALL.signatures, ids=ids(ALL.signatures))
def test_a_sample_is_found_as_its_own_signature_and_hidden_by_no_trap(signature: Signature) -> None:
    matcher = Matcher(ALL)
    for sample in signature.match:
        match = matcher.find(parse(sample, 1))
        assert match is not None, sample
        assert match.signature.id == signature.id, sample
        assert match.meaning
        assert all(match.advice) or not match.advice


@pytest.mark.parametrize("signature", ALL.signatures, ids=ids(ALL.signatures))
def test_counter_samples_are_not_found_as_this_signature(signature: Signature) -> None:
    matcher = Matcher(ALL)
    for sample in signature.nomatch:
        match = matcher.find(parse(sample, 1))
        assert match is None or match.signature.id != signature.id, sample


@pytest.mark.parametrize("trap", ALL.traps, ids=ids(ALL.traps))
def test_a_trap_is_never_fatal(trap: Trap) -> None:
    for sample in trap.match:
        assert Diagnoser(ALL, Starting()).feed(parse(sample, 1)) is None, sample
        assert Matcher(ALL).find(parse(sample, 1)) is None, sample


FATAL_ROOTS = tuple(each for each in ALL.signatures if each.role is Role.ROOT and each.fatal)


@pytest.mark.parametrize("signature", FATAL_ROOTS, ids=ids(FATAL_ROOTS))
def test_a_fatal_root_ends_a_server_that_is_starting(signature: Signature) -> None:
    fatal = Diagnoser(ALL, Starting()).feed(parse(signature.match[0], 1))
    assert fatal is not None
    assert fatal.signature == signature.id


def test_wrappers_are_never_roots_and_give_no_advice() -> None:
    for signature in ALL.signatures:
        if signature.role is Role.CASCADE:
            assert signature.failure is FailureClass.UNKNOWN, signature.id
        if signature.role is Role.ROOT:
            assert signature.advice, signature.id


def test_there_is_enough_of_it_and_every_file_is_covered() -> None:
    assert set(SETS) == set(available_sets())
    assert len([each for each in ALL.signatures if each.role is Role.ROOT]) >= 50
    assert len(ALL.traps) >= 30


ADVERSARIES = ("a" * 16_384, "a.b" * 5_000, ": " * 8_000, "Error: " * 2_300, "(" * 16_000, "'" * 16_000, "x: " * 5_000)


def test_no_pattern_is_slow_on_hostile_text() -> None:
    for entry in ENTRIES:
        began = time.perf_counter()
        for sample in ADVERSARIES:
            entry.pattern.search(entry.literals[0] + sample)
            entry.pattern.search(sample + entry.literals[0])
        assert time.perf_counter() - began < 0.5, entry.id


@given(st.lists(st.text("ab: ", min_size=1, max_size=12), max_size=40))
def test_gates_hold_every_literal_once_and_let_none_through_unseen(literals: list[str]) -> None:
    groups = group_by_gate(literals)
    assert sorted(each for _, held in groups for each in held) == sorted(set(literals))
    assert all(gate in literal for gate, held in groups for literal in held)


GOOD = """
[[signature]]
id = "boom"
role = "root"
literals = ["boom"]
pattern = "^boom (?P<what>.+)"
class = "unknown"
fatal = true
meaning = "It went {what}."
advice = []
match = ["boom bang"]
nomatch = ["no"]
"""


def test_a_good_file_loads() -> None:
    assert parse_signatures(GOOD.encode(), "x.toml").signatures[0].id == "boom"


@pytest.mark.parametrize(
    ("old", "new", "key", "says"),
    [
        ('role = "root"', 'role = "boss"', "role", "root, cascade, confirmation, context"),
        ('class = "unknown"', "", "class", "is missing"),
        ("fatal = true", 'fatal = "yes"', "fatal", "true or false"),
        ('"^boom (?P<what>.+)"', '"("', "pattern", "no regular expression"),
        ("{what}", "{who}", "meaning", "what"),
        ("{what}", "{", "meaning", "brace"),
        ('literals = ["boom"]', "literals = []", "literals", "at least 1"),
        ('match = ["boom bang"]', 'match = "boom"', "match", "list"),
        ("fatal = true", 'fatal = true\nphase = "tea"', "phase", "weights"),
        ("fatal = true", "fatal = true\nfoo = 1", "foo", "not a known key"),
        ('id = "boom"', 'id = "Boom!"', "id", "dashes"),
        ("[[signature]]", "[[signatures]]", "signatures", "not a known key"),
        ("[[signature]]", "[[signature", "", "not TOML"),
        ("[[signature]]", "[signature]", "signature", "not a list of tables"),
    ],
)
def test_a_damaged_file_says_what_is_wrong(old: str, new: str, key: str, says: str) -> None:
    assert old in GOOD
    with pytest.raises(ProfileError) as caught:
        parse_signatures(GOOD.replace(old, new, 1).encode(), "x.toml")
    assert caught.value.file == "x.toml"
    assert caught.value.key.endswith(key)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_set_names_those_there_are() -> None:
    with pytest.raises(ProfileError, match="vllm"):
        load_signatures(["tea"])


def test_sets_are_joined_once_each() -> None:
    assert load_signatures(["vllm", "vllm"]) == load_signatures(["vllm"])
    assert load_signatures([]) == SignatureSet()
