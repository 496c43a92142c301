"""Every signature and every trap proves itself on its own samples; a damaged file says what is wrong."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervise.diagnosis.matching import Match, Matcher, group_by_gate
from supervise.diagnosis.prefixes import parse
from supervise.diagnosis.verdict import Diagnoser
from supervise.model.diagnosis import FailureClass, Role, Signature, SignatureSet, Trap
from supervise.profiles.errors import ProfileError
from supervise.profiles.signatures import available_sets, load_signatures, parse_signatures
from tests.unit.field_rows import ROWS, SILENT, TRAPS, WRAPPERS

SETS = available_sets()
ALL = load_signatures(SETS)
ENTRIES: tuple[Signature | Trap, ...] = (*ALL.signatures, *ALL.traps)
MATCHER = Matcher(ALL)


def text(sample: str) -> str:
    return parse(sample, 1).text


def failure(match: Match | None) -> bool:
    return match is not None and match.role in (Role.ROOT, Role.CASCADE, Role.CONFIRMATION)


class Starting:
    """A server that is not ready: of such a one, fatal lines are called fatal at once."""

    phase = None
    ready = False


def test_samples_prove_the_patterns() -> None:
    faults = [
        (entry.id, sample)
        for entry in ENTRIES
        for sample in entry.match
        if not entry.pattern.search(text(sample)) or not any(literal in text(sample) for literal in entry.literals)
    ]
    assert faults == []


def test_counter_samples_disprove_the_patterns() -> None:
    faults = [
        (entry.id, sample)
        for entry in ENTRIES
        for sample in entry.nomatch
        if entry.pattern.search(text(sample)) and parse(sample, 1).level != "INFO"
    ]
    assert faults == []


def test_a_sample_is_found_as_its_own_signature_and_hidden_by_no_trap() -> None:
    faults = []
    for signature in ALL.signatures:
        for sample in signature.match:
            match = MATCHER.find(parse(sample, 1))
            if match is None or match.signature is not signature or not match.meaning or not all(match.advice):
                faults.append((signature.id, match.signature.id if match else None, sample))
    assert faults == []


def test_counter_samples_are_not_found_as_their_signature() -> None:
    faults = []
    for signature in ALL.signatures:
        for sample in signature.nomatch:
            match = MATCHER.find(parse(sample, 1))
            if match is not None and match.signature is signature:
                faults.append((signature.id, sample))
    assert faults == []


def test_a_trap_is_never_fatal() -> None:
    samples = [(trap.id, sample) for trap in ALL.traps for sample in trap.match]
    assert [each for each in samples if Diagnoser(ALL, Starting()).feed(parse(each[1], 1))] == []
    assert [each for each in samples if failure(MATCHER.find(parse(each[1], 1)))] == []


FATAL_ROOTS = tuple(each for each in ALL.signatures if each.role is Role.ROOT and each.fatal)


def test_a_fatal_root_ends_a_server_that_is_starting() -> None:
    faults = []
    for signature in FATAL_ROOTS:
        fatal = Diagnoser(ALL, Starting()).feed(parse(signature.match[0], 1))
        if fatal is None or fatal.signature != signature.id:
            faults.append((signature.id, fatal))
    assert faults == []


def test_wrappers_are_never_roots_and_give_no_advice() -> None:
    for signature in ALL.signatures:
        if signature.role is Role.CASCADE:
            assert signature.failure is FailureClass.UNKNOWN, signature.id
        if signature.role is Role.ROOT:
            assert signature.advice, signature.id


def test_there_is_enough_of_it() -> None:
    assert len([each for each in ALL.signatures if each.role is Role.ROOT]) >= 150
    assert len(ALL.traps) >= 30


ADVERSARIES = ("a" * 8_192, "a.b" * 2_700, ": " * 4_000, "Error: " * 1_200, "(" * 8_000, "'" * 8_000, "x: " * 2_700)


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


def test_every_row_of_the_catalogue_has_a_line_or_a_reason() -> None:
    covered = {row for row, _, _ in ROWS} | set(SILENT)
    assert covered == set(range(1, 121))
    assert {number for number, _ in TRAPS} == set(range(1, 31))


def test_a_row_is_known_by_its_entry() -> None:
    faults = []
    for row, identity, line in ROWS:
        match = MATCHER.find(parse(line, 1))
        if match is None or match.signature.id != identity:
            faults.append((row, identity, match.signature.id if match else None))
    assert faults == []


def test_a_wrapper_is_never_a_cause() -> None:
    echoes = (Role.CASCADE, Role.CONFIRMATION, Role.ASKED)
    found = [(line, MATCHER.find(parse(line, 1))) for line in WRAPPERS]
    assert [line for line, match in found if match is None or match.role not in echoes] == []


def test_a_trap_of_the_catalogue_is_no_failure() -> None:
    assert [each for each in TRAPS if failure(MATCHER.find(parse(each[1], 1)))] == []


QUOTING = (
    "INFO 11-30 05:00:00 [logger.py:39] Received request cmpl-1: prompt: '{}'",
    "[2026-11-30 05:00:00] Receive: obj=GenerateReqInput(text='{}')",
    "(APIServer pid=7) INFO 11-30 05:00:00 [serving.py:1] {}",
    "the user wrote: {}",
    '{{"prompt": "{}"}}',
)
ENGINES = ("vllm", "vllm-config", "sglang", "engines", "checkpoint", "hub")


def test_what_a_user_quotes_is_no_cause() -> None:
    of_engines = load_signatures(ENGINES).signatures
    faults = []
    for signature in (each for each in FATAL_ROOTS if each in of_engines):
        for sample in signature.match:
            for quote in QUOTING:
                match = MATCHER.find(parse(quote.format(text(sample)), 1))
                if match is not None and match.signature is signature:
                    faults.append((signature.id, quote, sample))
    assert faults == []
