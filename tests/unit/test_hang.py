"""When a server is hung: the table of proofs, told as looks."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervise.lifecycle.hang import INDEPENDENT, SAID_OFTEN, Asked, Counters, Proof, Seen, Verdict, after, judge, span
from supervise.model.process import ProcessId

PATIENCE_S = 60.0
EVERY_S = 10.0
ENGINE = ProcessId(42, 7)

# What each proof looks like; the counters are told as standing still only where that is the proof.
SIGNS = {
    Proof.COUNTERS: lambda at: {"counters": Counters(3.0, (8124.0, 3.0), "tokens")},
    Proof.HEALTH: lambda at: {"health": Asked(at, 5.0, answered=False)},
    Proof.CANARY: lambda at: {"canary": Asked(at, 5.0, answered=False)},
    Proof.STOPPED: lambda at: {"stopped": {ENGINE: "VLLM::EngineCor"}},
    Proof.STILL: lambda at: {"still": True},
    Proof.SAID: lambda at: {"said": 1},
}


def watched(looks, patience_s: float = PATIENCE_S) -> Verdict | None:
    watch = None
    for seen in looks:
        watch = after(watch, seen)
    return judge(watch, patience_s)


def signs(*proofs: Proof, looks: int = 8, **more) -> list[Seen]:
    """So many looks at which these are there."""
    found = []
    for number in range(looks):
        at, seen = number * EVERY_S, {}
        for proof in proofs:
            seen |= SIGNS[proof](at)
        found.append(Seen(at, **(seen | more)))
    return found


@pytest.mark.parametrize(
    "pair", [frozenset(pair) for pair in combinations(Proof, 2)], ids=lambda p: "+".join(sorted(e.name for e in p))
)
def test_two_proofs_are_enough_if_the_table_says_that_they_are_independent(pair: frozenset[Proof]) -> None:
    verdict = watched(signs(*pair))
    assert (verdict is not None and verdict.hung) == (pair in INDEPENDENT)


@pytest.mark.parametrize("proof", Proof)
def test_one_proof_alone_is_worth_a_word_and_never_more(proof: Proof) -> None:
    verdict = watched(signs(proof, looks=100))
    if proof is Proof.STILL:
        # An idle server does nothing for ever.
        assert verdict is None
    else:
        assert verdict is not None
        assert not verdict.hung
        assert len(verdict.sentences) == 1


@pytest.mark.parametrize("pair", INDEPENDENT, ids=lambda p: "+".join(sorted(e.name for e in p)))
def test_nothing_is_proven_before_its_time(pair: frozenset[Proof]) -> None:
    assert not getattr(watched(signs(*pair, looks=6)), "hung", False)


def test_an_idle_server_is_silent_for_ever() -> None:
    idle = Counters(0.0, (8124.0, 0.0), "tokens")
    assert watched(signs(Proof.STILL, looks=1000, counters=idle)) is None


def test_requests_that_began_lately_have_not_waited_long() -> None:
    looks = signs(Proof.STILL, looks=100, counters=Counters(0.0, (5.0, 0.0), "tokens"))
    begun = [replace(seen, at=1000.0 + seen.at) for seen in signs(Proof.STILL, Proof.COUNTERS, looks=5)]
    assert watched([*looks, *begun]) is None


@pytest.mark.parametrize("proof", [proof for proof in Proof if proof is not Proof.COUNTERS])
def test_a_server_that_progresses_is_left_alone_whatever_else_is_seen(proof: Proof) -> None:
    looks = [
        replace(seen, counters=Counters(3.0, (float(number // 3), 3.0), "tokens"))
        for number, seen in enumerate(signs(proof, Proof.STOPPED, looks=100))
    ]
    assert watched(looks) is None


def test_a_canary_that_comes_back_ends_every_doubt() -> None:
    looks = signs(Proof.COUNTERS, Proof.STOPPED, looks=10)
    assert watched(looks).hung
    answered = replace(looks[-1], at=100.0, canary=Asked(95.0, 5.0, answered=True))
    assert watched([*looks, answered]) is None


@pytest.mark.parametrize("why", ["it sleeps", "ptxas compiles", "we did not run ourselves"])
def test_what_was_seen_before_an_excuse_does_not_count(why: str) -> None:
    before = signs(Proof.COUNTERS, Proof.CANARY, looks=6)
    excused = Seen(60.0, excuse=why)
    later = [replace(seen, at=70.0 + seen.at) for seen in signs(Proof.COUNTERS, Proof.STILL, looks=6)]
    assert watched([*before, excused]) is None
    assert watched([*before, excused, *later]) is None


IDLE = Counters(0.0, (8124.0, 0.0), "tokens")
ONE = Counters(1.0, (8124.0, 1.0), "tokens")


@pytest.mark.parametrize("proof", [Proof.CANARY, Proof.HEALTH])
def test_that_ours_does_not_come_and_that_no_token_of_it_is_counted_is_one_proof(proof: Proof) -> None:
    for idle in (signs(proof, counters=IDLE, generates=True), signs(proof, counters=IDLE)):
        verdict = watched(idle)
        assert verdict is not None
        assert (verdict.hung, len(verdict.sentences)) == (False, 1)
    assert watched(signs(proof, Proof.COUNTERS, generates=True)).hung
    assert watched(signs(proof, Proof.STILL, counters=IDLE, generates=True)).hung, "that is two"


def test_a_canary_that_the_engine_counts_is_none_of_others() -> None:
    """It was begun when none ran, and is the one that runs since then."""
    looks = signs(Proof.CANARY, looks=20, counters=ONE)
    looks[0] = replace(looks[0], counters=IDLE)
    assert not watched(looks).hung
    two = [replace(seen, counters=seen.counters._replace(running=2.0 * seen.counters.running)) for seen in looks]
    assert watched(two).hung


def test_requests_of_others_that_came_late_have_not_waited_for_the_whole_patience() -> None:
    looks = signs(Proof.CANARY, looks=20, counters=IDLE)
    late = [
        replace(seen, counters=IDLE._replace(running=5.0)) if number > 15 else seen for number, seen in enumerate(looks)
    ]
    assert not watched(late).hung


def test_between_two_questions_the_last_one_holds() -> None:
    looks = signs(Proof.COUNTERS, Proof.CANARY)
    sparse = [seen if number in (0, 4) else replace(seen, canary=None) for number, seen in enumerate(looks)]
    assert watched(sparse).hung


def test_counters_that_cannot_be_read_prove_nothing() -> None:
    looks = signs(Proof.COUNTERS, Proof.STOPPED)
    blind = [replace(seen, counters=None) if number == 4 else seen for number, seen in enumerate(looks)]
    assert not watched(blind).hung


def test_another_process_that_is_stopped_begins_a_time_of_its_own() -> None:
    looks = [
        replace(seen, stopped={ProcessId(number, 1): "sh"})
        for number, seen in enumerate(signs(Proof.COUNTERS, looks=20))
    ]
    assert not watched(looks).hung


def test_it_must_say_so_often_and_not_while_anything_moves() -> None:
    once = signs(Proof.COUNTERS, looks=20)
    said = [replace(seen, said=1) if number < SAID_OFTEN - 1 else seen for number, seen in enumerate(once)]
    assert not watched(said).hung
    assert watched([replace(said[0], said=1), *said[1:], replace(said[-1], at=200.0, said=1)]).hung


def test_sentences_are_for_people() -> None:
    sentences = watched(signs(*Proof)).sentences
    assert sentences == (
        "3 requests run, no token for 1 min 10 s (tokens stands at 8124)",
        "its health endpoint has not answered well for 1 min 10 s",
        "the canary got no answer in 5.0 s, and none for 1 min 10 s",
        "VLLM::EngineCor (pid 42) has been stopped, or stuck in the kernel, for 1 min 10 s",
        "neither its processes nor its GPUs have done anything for 1 min 10 s",
        "its log has said 8 times since then that it gets no further",
    )


@pytest.mark.parametrize(("seconds", "text"), [(4.04, "4.0 s"), (59, "59 s"), (372, "6 min 12 s"), (7500, "2 h 5 min")])
def test_spans(seconds: float, text: str) -> None:
    assert span(seconds) == text


LOOKS = st.lists(
    st.builds(
        dict,
        counters=st.none()
        | st.builds(Counters, st.sampled_from([0.0, 2.0]), st.tuples(st.sampled_from([1.0, 2.0])), st.just("t")),
        health=st.sampled_from([None, True, False]),
        canary=st.sampled_from([None, True, False]),
        stopped=st.sampled_from([{}, {ENGINE: "e"}, {ProcessId(9, 9): "f"}]),
        still=st.sampled_from([None, True, False]),
        said=st.integers(0, 2),
        excuse=st.sampled_from([None, None, None, "it sleeps"]),
        step=st.floats(0.5, 30.0),
    ),
    min_size=1,
    max_size=40,
)


def told(looks) -> list[Seen]:
    at, found = 0.0, []
    for look in looks:
        at += look["step"]
        asked = {
            name: None if look[name] is None else Asked(at, 1.0, answered=look[name]) for name in ("health", "canary")
        }
        rest = {name: look[name] for name in ("counters", "stopped", "still", "said", "excuse")}
        found.append(Seen(at, **rest, **asked))
    return found


@given(LOOKS)
def test_it_is_only_ever_hung_after_the_whole_patience_without_excuse_or_progress(looks) -> None:
    seen = told(looks)
    verdict = watched(seen)
    if verdict is None or not verdict.hung:
        return
    assert len(verdict.sentences) >= 2
    recent = [each for each in seen if each.at > seen[-1].at - PATIENCE_S]
    assert seen[-1].at - seen[0].at >= PATIENCE_S
    assert not any(each.excuse for each in recent)
    assert not any(each.canary and each.canary.answered for each in recent)


@given(LOOKS)
def test_an_answer_now_always_clears_it(looks) -> None:
    seen = told(looks)
    last = seen[-1].at + 1
    assert watched([*seen, Seen(last, canary=Asked(last, 1.0, answered=True))]) is None


@given(LOOKS, st.floats(1.0, 500.0), st.floats(1.0, 500.0))
def test_more_patience_never_makes_it_hung(looks, one: float, more: float) -> None:
    seen = told(looks)
    if getattr(watched(seen, one + more), "hung", False):
        assert watched(seen, one).hung
