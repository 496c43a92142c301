"""When a server that starts stands still: what is progress, what only activity, and time that does not count."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervise.lifecycle.patience import BUSY, PATIENCE_S, SAID, Limits, Verdict, Watch, limits, look_again
from supervise.model.effort import Effort, GpuLoad, Look
from supervise.model.process import ProcessId
from supervise.profiles import load
from supervise.profiles.errors import ProfileError

LEADER, WORKER = ProcessId(7, 70), ProcessId(8, 80)
START = Look({LEADER: Effort(5.0, 3, 2**30, 2**20)}, 0)
PERIOD = 5.0
MIB = 2**20


def after(look: Look, *, cpu_s=0.0, faults=0, grown=0, read=0, traced=False, **more) -> Look:
    """The next look, at a leader that did so much more."""
    old = look.efforts[LEADER]
    known = None if read is None or old.read is None else old.read + read
    leader = Effort(old.cpu_s + cpu_s, old.faults + faults, old.resident + grown, known, traced)
    return look._replace(efforts={**look.efforts, LEADER: leader}, **more)


def play(*looks, patience_s=100.0, acts=True, first=START, seconds=PERIOD) -> list[Verdict]:
    """What each look shows; a look is what the leader did since the one before."""
    watch, now, told = Watch(first), first, []
    for did in looks:
        now = after(now, **did)
        watch, verdict = look_again(watch, now, "weights", Limits(patience_s, acts), seconds=seconds, period_s=PERIOD)
        told.append(verdict)
    return told


def first(told: list[Verdict], what: str) -> float | None:
    """Seconds until a verdict says so."""
    return next((PERIOD * number for number, each in enumerate(told, 1) if getattr(each, what)), None)


def test_one_that_does_nothing_is_said_first_and_expires_later():
    told = play(*[{}] * 30)
    assert (first(told, "news"), first(told, "expired")) == (SAID * 100, 100.0)
    assert [each.news for each in told].count(True) == 1
    assert told[7].text == "no progress for 40 s in weights; disk reads 0, network 0, CPU 0 %"


PROGRESS = {
    "a file is read": {"read": MIB},
    "pages come from disk": {"faults": 100},
    "memory fills": {"grown": 2 * MIB},
    "bytes come over the network": {"received": MIB},
}
ACTIVITY = {"a worker spins": {"cpu_s": 5.0}, "a line comes": {"written": 80}}


@pytest.mark.parametrize("did", PROGRESS.values(), ids=PROGRESS)
def test_progress_begins_anew_as_often_as_it_comes(did):
    told = play(*[*[{}] * 18, did, *[{}] * 19])
    assert first(told, "expired") is None
    assert told[18].clock_s == 0.0
    assert told[18].resumed_s == 95.0


@pytest.mark.parametrize("did", ACTIVITY.values(), ids=ACTIVITY)
def test_activity_lasts_longer_but_not_for_ever(did):
    looks = [{**did, **({"written": number} if "written" in did else {})} for number in range(1, 80)]
    told = play(*looks)
    assert first(told, "news") == pytest.approx(SAID * BUSY * 100)
    assert first(told, "expired") == BUSY * 100
    assert not any(each.expired for each in play(*looks[:59])), "a compiler that prints nothing is no hang"


@pytest.mark.parametrize(("did", "allowed"), [({}, 100), ({"cpu_s": 5.0}, BUSY * 100)], ids=["idle", "busy"])
def test_it_is_told_how_long_it_really_has(did, allowed):
    """While it is busy only one of the clocks runs; it is told at two fifths of that one, and three are left."""
    told = play(*[did] * 70)
    (said,) = [each for each in told if each.news]
    assert said.left_s == pytest.approx(allowed * (1 - SAID))
    assert said.left_s == first(told, "expired") - first(told, "news")


def test_a_figure_of_the_stall_is_that_of_what_it_does_now():
    told = play(*[{"cpu_s": 5.0, "gpu": GpuLoad(8, 100, MIB)}] * 30)
    assert told[-1].text == "no progress for 2 min in weights; disk reads 0, network 0, CPU 100 %, GPU 100 %"


TOO_LITTLE = {
    "a poll of small files": {"read": 20_000},
    "a page": {"faults": 3},
    "some objects": {"grown": 100_000},
    "a timer": {"cpu_s": 0.1},
    "a heartbeat": {"received": 4000},
}


@pytest.mark.parametrize("did", TOO_LITTLE.values(), ids=TOO_LITTLE)
def test_what_a_hung_server_goes_on_with_is_neither(did):
    assert first(play(*[did] * 21), "expired") == 100.0


def test_a_step_in_the_log_is_progress_and_a_busy_gpu_activity():
    assert not any(each.clock_s for each in play(*[{"steps": number} for number in range(1, 60)]))
    spinning = play(*[{"gpu": GpuLoad(1, 100, MIB)}] * 60)
    assert first(spinning, "expired") == BUSY * 100


def test_gpu_memory_that_fills_is_progress_but_not_where_the_gpus_differ():
    filling = [{"gpu": GpuLoad(1, 0, 100 * MIB * number)} for number in range(1, 60)]
    assert first(play(*filling), "expired") is None
    seen_late = play(*[{}] * 10, {"gpu": GpuLoad(1, 0, 2**36)}, *[{}] * 12)
    assert first(seen_late, "expired") == 100.0


def test_a_process_that_lives_is_progress_once():
    helper = {**START.efforts, WORKER: Effort(0.9, 0, 0, 0)}
    grown = {**START.efforts, WORKER: Effort(1.1, 0, 0, 0)}
    watch, brief = look_again(
        Watch(START), START._replace(efforts=helper), "compile", Limits(100.0), seconds=5.0, period_s=5.0
    )
    assert brief.clock_s == 0.0, "its CPU is activity"
    assert watch.stuck_s == 5.0
    watch, _ = look_again(watch, START._replace(efforts=grown), "compile", Limits(100.0), seconds=5.0, period_s=5.0)
    assert watch.stuck_s == 0.0
    watch, _ = look_again(watch, START, "compile", Limits(100.0), seconds=5.0, period_s=5.0)
    assert watch.stuck_s == 5.0, "its end is none"


@pytest.mark.parametrize("unknown", [{"read": None}, {"received": None}, {"gpu": None}], ids=str)
def test_what_cannot_be_read_is_not_taken_for_idle(unknown):
    told = play(*[unknown] * 70)
    assert first(told, "expired") == BUSY * 100
    assert "unknown" in (told[-1].text or "")


def test_time_in_which_we_did_not_run_does_not_count():
    asleep = play(*[{}] * 5, seconds=3600.0)
    assert asleep[-1].clock_s == 5 * 2 * PERIOD
    assert not asleep[-1].expired


def test_one_that_a_debugger_holds_is_not_hung():
    assert not any(each.clock_s for each in play(*[{"traced": True}] * 50))
    assert first(play(*[{"traced": False}] * 50), "expired") == 100.0


def test_a_group_that_nobody_can_see_is_not_idle():
    nobody = Look({})
    watch, verdict = look_again(Watch(nobody), nobody, "start", Limits(10.0), seconds=5.0, period_s=5.0)
    assert verdict.clock_s == watch.idle_s == 0.0


def test_who_wants_it_only_said_gets_no_end():
    told = play(*[{}] * 200, acts=False)
    assert first(told, "news") == 40.0
    assert first(told, "expired") is None


@pytest.mark.parametrize(
    ("phase", "chosen_s", "expected"),
    [
        ("weights", None, Limits(900.0)),
        ("config", None, Limits(PATIENCE_S)),
        ("weights", 5.0, Limits(5.0)),
        ("weights", 0.0, Limits(900.0, acts=False)),
    ],
)
def test_the_user_comes_before_the_profile_and_the_profile_before_the_default(phase, chosen_s, expected):
    assert limits(phase, {"weights": 900.0}, chosen_s) == expected


DID = st.fixed_dictionaries(
    {},
    optional={
        "cpu_s": st.floats(0, 20),
        "read": st.integers(0, 2**34),
        "faults": st.integers(0, 10**6),
        "grown": st.integers(-(2**30), 2**34),
        "steps": st.integers(0, 3),
        "written": st.integers(0, 10**6),
    },
)


@given(st.lists(DID, max_size=60), st.floats(0.5, 500))
def test_no_history_expires_before_it_was_said_nor_early(looks, patience_s):
    told = play(*looks, patience_s=patience_s)
    for number, verdict in enumerate(told, 1):
        assert 0 <= verdict.clock_s <= PERIOD * number
        if verdict.expired:
            assert PERIOD * number >= patience_s
            assert verdict.text is not None
            assert any(each.news for each in told[:number])
        assert not (verdict.news and verdict.resumed_s is not None)


@given(st.lists(DID, min_size=1, max_size=30))
def test_any_progress_at_the_end_clears_both_clocks(looks):
    last = play(*looks, {"read": 2**30})[-1]
    assert (last.clock_s, last.text, last.expired) == (0.0, None, False)


# --- the profiles -----------------------------------------------------------------------------------------------------

PROFILE = """
summary = "x"
grace_s = 1
linger_s = 1
[patience]
{line}
[[phases]]
name = "weights"
begins = "x"
"""


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("wieghts = 900", "patience.wieghts: is no phase of this profile; allowed: start, weights"),
        ("weights = 5", "patience.weights: is 5; allowed: seconds, 60 to 86400"),
        ('weights = "900"', "patience.weights: is '900'; allowed: seconds, 0 to 86400"),
    ],
)
def test_a_damaged_patience_is_refused(tmp_path, line, complaint):
    (file := tmp_path / "mine.toml").write_text(PROFILE.format(line=line))
    with pytest.raises(ProfileError) as refused:
        load.load_file(file)
    assert complaint in str(refused.value)


def test_patience_is_read_by_phase(tmp_path):
    (file := tmp_path / "mine.toml").write_text(PROFILE.format(line="weights = 900\nstart = 61.5"))
    assert load.load_file(file).patience == {"weights": 900.0, "start": 61.5}


@pytest.mark.parametrize("profile", load.load_all().values(), ids=lambda profile: profile.name)
def test_ours_outlast_the_waiting_of_the_engines_themselves(profile):
    waits = {"engine", "distributed"} & {rule.name for rule in profile.phases}
    assert all(profile.patience[name] > 1800 for name in waits), "torch gives up after 1800 s, and says why"
