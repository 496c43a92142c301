"""Restart by class as tables: no clock, no chance, no process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervise import lifecycle as life
from supervise.attempts.store import Run
from supervise.attempts.told import sound
from supervise.cli.restarts import RestartOptions
from supervise.lifecycle.restart import End, Ended, Failure, GiveUp, Relaunch, Restarts, decide, remembered, settle
from supervise.model.diagnosis import Diagnosis, FailureClass
from supervise.model.exits import Exit
from supervise.model.restart import Identity, Policy, When

DETERMINISTIC, TRANSIENT, LOAD, UNKNOWN = FailureClass
FAILURE, ALWAYS = Policy(When.ON_FAILURE), Policy(When.ALWAYS)
OOM = Identity("f1", "cuda-out-of-memory", "torch.OutOfMemoryError: CUDA out of memory.", "weights")
PORT = Identity("f2", "port-in-use", "OSError: [Errno 98] Address already in use", "server")
ODD = Identity(None, None, "KeyError: 'x'", None)
SILENT = Identity()
EXITED_4 = Identity(phase="weights", end="exited with 4")


def failed(attempt, cause=OOM, failure=TRANSIENT, at_s=None, healthy=False):
    return Failure(attempt, attempt * 10.0 if at_s is None else at_s, cause, failure, healthy=healthy)


def ended(failure, status=1, **more):
    return Ended(status, asked=False, failure=failure, **more)


def decided(policy, history, last, **more):
    return decide(policy, history, ended(last, **more))


@pytest.mark.parametrize("status", [2, 94, 95, 125, 126, 127])
@pytest.mark.parametrize("policy", [FAILURE, ALWAYS])
def test_what_is_not_the_server_s_failure_is_never_tried_again(policy, status):
    assert decide(policy, (), ended(failed(1), status)) == End()
    assert isinstance(decide(policy, (), ended(failed(1), 1)), Relaunch)


def test_without_a_policy_and_after_a_stop_nothing_follows():
    assert decided(Policy(), (), failed(1)) == End()
    assert decide(ALWAYS, (), Ended(143, asked=True, failure=failed(1))) == End()


@pytest.mark.parametrize("policy", [FAILURE, ALWAYS])
def test_what_would_fail_the_same_way_is_not_tried_again(policy):
    decision = decided(policy, (), failed(1, failure=DETERMINISTIC), status=93)
    assert decision == GiveUp(Exit.DETERMINISTIC, "no relaunch: it would fail the same way (deterministic)")


@pytest.mark.parametrize(
    ("failure", "earlier", "after_s"),
    [
        (TRANSIENT, 0, 4),
        (TRANSIENT, 1, 8),
        (TRANSIENT, 3, 32),
        (TRANSIENT, 20, 300),
        (LOAD, 0, 16),
        (LOAD, 1, 32),
        (LOAD, 20, 300),
        (UNKNOWN, 0, 4),
    ],
)
def test_the_wait_doubles_within_a_row_up_to_the_cap(failure, earlier, after_s):
    policy = Policy(When.ON_FAILURE, most=99)
    history = [failed(number, PORT if number % 2 else ODD) for number in range(1, earlier + 1)]
    decision = decided(policy, history, failed(earlier + 1, failure=failure))
    assert decision == Relaunch(after_s, f"{failure.value}, {earlier + 1} of 99")
    assert decided(policy, history, failed(earlier + 1, failure=failure), jitter=1.0).after_s == after_s * 1.25


def test_served_well_means_that_a_new_row_begins():
    history = [failed(1, PORT), failed(2, ODD)]
    assert decided(FAILURE, history, failed(3)).after_s == 16
    assert decided(FAILURE, history, failed(3, healthy=True)).after_s == 4
    assert decided(FAILURE, [*history, failed(3, healthy=True)], failed(4, PORT)).after_s == 8


def test_the_same_cause_twice_in_a_row_is_the_end():
    decision = decided(FAILURE, [failed(1, PORT), failed(2)], failed(3))
    assert decision == GiveUp(Exit.DETERMINISTIC, "no relaunch: the same cause as attempt 2 at the same phase")
    assert isinstance(decided(FAILURE, [failed(1), failed(2, PORT)], failed(3)), Relaunch)
    assert isinstance(decided(FAILURE, [failed(2)], failed(3, OOM._replace(phase="run"))), Relaunch)
    assert isinstance(decided(FAILURE, [failed(2)], failed(3, healthy=True)), Relaunch)
    # Its health was before attempt 2 failed, not between the two.
    assert isinstance(decided(FAILURE, [failed(2, healthy=True)], failed(3)), GiveUp)


def test_two_silent_deaths_are_not_the_same_cause_for_that():
    assert isinstance(decided(ALWAYS, [failed(1, SILENT, UNKNOWN)], failed(2, SILENT, UNKNOWN)), Relaunch)


def test_what_hangs_time_and_again_is_tried_as_often_as_the_limit_allows():
    hung = EXITED_4._replace(end="hung")
    history = [failed(number, hung, TRANSIENT) for number in (1, 2)]
    assert isinstance(decided(FAILURE, history, failed(3, hung, TRANSIENT)), Relaunch)
    history = [failed(number, hung, TRANSIENT) for number in range(1, 6)]
    assert decided(FAILURE, history, failed(6, hung, TRANSIENT)).status == Exit.GAVE_UP


@pytest.mark.parametrize("failure", [UNKNOWN, LOAD])
def test_two_alike_deaths_that_nobody_explained_are_the_end_but_not_certain(failure):
    history, last = [failed(1, EXITED_4, failure)], failed(2, EXITED_4, failure)
    why = "gave up: exited with 4, like attempt 1, and nobody printed a cause"
    assert decided(FAILURE, history, last) == GiveUp(Exit.GAVE_UP, why)
    assert isinstance(decided(ALWAYS, history, last), Relaunch)
    assert isinstance(decided(FAILURE, history, last, changed=True), Relaunch)
    other = [failed(1, EXITED_4._replace(end="exited with 5"), TRANSIENT)]
    assert isinstance(decided(FAILURE, other, last), Relaunch)


def test_what_nobody_explained_is_counted_by_its_end():
    history = [failed(number, EXITED_4, UNKNOWN) for number in range(1, 6)]
    killed = failed(6, EXITED_4._replace(end="killed by SIGKILL"), UNKNOWN)
    assert decided(ALWAYS, history, killed).why == (
        "gave up after 5 restarts in 1 h: 5 x exited with 4, 1 x killed by SIGKILL"
    )


def test_the_unknown_is_tried_again_once():
    first = failed(1, ODD, UNKNOWN)
    assert isinstance(decided(FAILURE, [], first), Relaunch)
    decision = decided(FAILURE, [first, failed(2, PORT)], failed(3, SILENT, UNKNOWN), status=91)
    assert decision.status == Exit.GAVE_UP
    told = "what is of unknown class is tried again once, and was after attempt 1 (KeyError: 'x')"
    assert decision.why == f"gave up: no cause printed; {told}"
    assert isinstance(decided(ALWAYS, [first], failed(3, SILENT, UNKNOWN)), Relaunch)
    assert isinstance(decided(FAILURE, [first], failed(3, SILENT, UNKNOWN, healthy=True)), Relaunch)
    assert isinstance(decided(FAILURE, [first, failed(2, healthy=True)], failed(3, SILENT, UNKNOWN)), Relaunch)


@pytest.mark.parametrize("last", [failed(3, failure=DETERMINISTIC), failed(3), failed(3, ODD, UNKNOWN)])
def test_a_changed_file_allows_what_would_be_pointless_without(last):
    history = [failed(1, ODD, UNKNOWN), failed(2)]
    assert isinstance(decided(FAILURE, history, last), GiveUp)
    assert decided(FAILURE, history, last, changed=True) == Relaunch(4, "a file has changed, 3 of 5")


def test_a_change_does_not_lift_the_limit():
    history = [failed(number, PORT if number % 2 else OOM) for number in range(1, 6)]
    assert decided(FAILURE, history, failed(6), changed=True).status == Exit.GAVE_UP


def test_enough_is_enough_with_a_summary_of_causes():
    history = [failed(number, PORT if number % 2 else OOM) for number in range(1, 6)]
    assert decided(FAILURE, history, failed(6)) == GiveUp(
        Exit.GAVE_UP, "gave up after 5 restarts in 1 h: 3 x port-in-use, 3 x cuda-out-of-memory"
    )
    assert isinstance(decided(FAILURE, history[1:], failed(6)), Relaunch)
    assert isinstance(decided(FAILURE, history, failed(6, at_s=3600 + 10.0)), Relaunch)
    assert isinstance(decided(FAILURE, history, failed(6, at_s=3600 + 9.0)), GiveUp)


def test_health_does_not_lift_the_limit_either():
    history = [failed(number, healthy=True) for number in range(1, 6)]
    assert decided(FAILURE, history, failed(6, healthy=True)).status == Exit.GAVE_UP


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (OOM, OOM, True),
        (OOM, OOM._replace(signature="other", text="other"), True),
        (OOM, OOM._replace(fingerprint="f9"), False),
        (OOM, OOM._replace(fingerprint=None, text="other"), True),
        (ODD, ODD, True),
        (ODD, ODD._replace(text="KeyError: 'y'"), False),
        (ODD, ODD._replace(phase="run"), False),
        (SILENT, SILENT, False),
        (OOM, ODD._replace(phase="weights"), False),
        (EXITED_4, EXITED_4, True),
        (EXITED_4, EXITED_4._replace(end="exited with 5"), False),
        (EXITED_4, EXITED_4._replace(phase="run"), False),
        (EXITED_4, EXITED_4._replace(text="KeyError: 'x'"), False),
        (SILENT._replace(phase="weights"), EXITED_4, False),
    ],
)
def test_what_makes_two_failures_the_same(one, other, same):
    assert one.same_as(other) is same
    assert other.same_as(one) is same


FAILURES = st.builds(
    Failure,
    st.integers(1, 99),
    st.floats(0, 1e6),
    st.sampled_from([OOM, PORT, ODD, SILENT, EXITED_4]),
    st.sampled_from(FailureClass),
    healthy=st.booleans(),
)


@given(st.lists(FAILURES, max_size=12), FAILURES, st.sampled_from([FAILURE, ALWAYS]), st.booleans(), st.floats(0, 1))
def test_no_history_waits_for_ever_or_restarts_beyond_the_limit(history, last, policy, changed, jitter):
    decision = decide(policy, history, ended(last, changed=changed, jitter=jitter))
    assert isinstance(decision, Relaunch | GiveUp)
    if isinstance(decision, Relaunch):
        assert 0 < decision.after_s <= policy.cap_s * 1.25
        assert sum(failure.at_s > last.at_s - policy.window_s for failure in history) < policy.most
        assert changed or last.failure is not DETERMINISTIC
    else:
        assert decision.status in (Exit.DETERMINISTIC, Exit.GAVE_UP)
    assert decision == decide(policy, remembered(policy, history), ended(last, changed=changed, jitter=jitter))


def test_a_history_does_not_grow_for_ever():
    history = [failed(number) for number in range(1000)]
    assert len(remembered(FAILURE, history)) < 100
    assert len(remembered(Policy(When.ALWAYS, most=500), history)) == 500


# --- in the lifecycle -------------------------------------------------------------------------------------------------

DONE = life.Done(1)
WAITING = life.Waiting(DONE, 4.0, 7, "port-in-use", "transient, 1 of 5")


def diagnosis(failure):
    return Diagnosis(PORT.text, 1, None, PORT.signature, failure, PORT.phase, "", (), fingerprint=PORT.fingerprint)


def test_an_attempt_that_failed_leads_to_a_wait():
    reason = life.Reason(life.Cause.DIED, status=1)
    facts = Restarts(FAILURE, (), attempt=7, at_s=70.0)
    verified = life.Verified(diagnosis(TRANSIENT), 0, facts)
    assert life.step(life.Verifying(reason, 0), verified) == life.Step(WAITING)
    assert life.step(life.Verifying(reason, 1), verified) == life.Step(life.Done(Exit.SURVIVORS))
    assert life.step(life.Verifying(reason, 0), life.Verified(diagnosis(TRANSIENT), 1, facts)).state.status == 95
    assert life.step(life.Verifying(reason, 0), life.Verified(diagnosis(TRANSIENT))) == life.Step(DONE)
    asked_too = life.Reason(life.Cause.DIED, signum=15, status=1)
    assert life.step(life.Verifying(asked_too, 0), verified) == life.Step(DONE)
    asked = life.Reason(life.Cause.ASKED, signum=15)
    assert life.step(life.Verifying(asked, 0), verified) == life.Step(life.Done(143, reraise=15))


@pytest.mark.parametrize(
    ("event", "after"),
    [
        (life.RelaunchDue(), life.Sweeping()),
        (life.StopAsked(15), life.Done(143, reraise=15)),
        (life.StopAsked(2), life.Done(130, reraise=2)),
        (life.Broken(), life.Done(Exit.INTERNAL)),
        (life.KeeperLost(), WAITING),
        (life.GroupEnded(0), WAITING),
        (life.LeaderExited(1), WAITING),
    ],
)
def test_while_waiting(event, after):
    assert life.step(WAITING, event) == life.Step(after)


def test_only_a_wait_is_ended_by_its_timer():
    for state in (life.Sweeping(), life.Starting(), life.Ready(), DONE):
        assert life.step(state, life.RelaunchDue()) == life.Step(state)


def test_why_there_is_no_other_attempt_goes_with_the_end():
    facts = Restarts(FAILURE, (failed(6, PORT),), attempt=7, at_s=70.0, up_s=599.0)
    again = diagnosis(TRANSIENT)
    assert settle(DONE, again, facts) == life.Done(93, why="no relaunch: the same cause as attempt 6 at the same phase")
    served = Restarts(FAILURE, (failed(6, PORT),), attempt=7, at_s=70.0, up_s=600.0)
    assert isinstance(settle(DONE, again, served), life.Waiting)


def test_what_is_not_relaunched_waits_for_a_change_where_files_are_watched():
    facts = Restarts(FAILURE, (failed(6, PORT),), attempt=7, at_s=70.0, up_s=599.0)
    again = diagnosis(TRANSIENT)
    given_up = settle(DONE, again, facts)
    waiting = settle(DONE, again, replace(facts, waits=True))
    assert (waiting.after_s, waiting.attempt, waiting.done) == (None, 7, DONE)
    assert waiting.why == given_up.why
    without = Restarts(Policy(), (), attempt=7, at_s=70.0)
    assert settle(DONE, again, without) == DONE
    assert settle(DONE, again, replace(without, waits=True)) == life.Waiting(DONE, None, 7, waiting.cause, "")


def test_what_is_not_the_servers_failure_waits_for_no_change():
    facts = Restarts(Policy(), (), attempt=7, at_s=70.0, waits=True)
    for end in (life.Done(95), life.Done(94), life.Done(125), life.Done(127), life.Done(143, reraise=15)):
        assert settle(end, None, facts) == end


def test_a_failure_that_nobody_diagnosed_is_unknown():
    waiting = settle(DONE, None, Restarts(FAILURE, (), attempt=1, at_s=0.0))
    assert (waiting.cause, waiting.why) == ("no cause printed", "unknown, 1 of 5")


# --- what earlier attempts told ---------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path):
    run = Run(str(tmp_path), "r")
    run.create()
    return run


def close(run, cause, failed=True):
    run.close_attempt(run.open_attempt(), {"failed": failed, "cause": cause})


def test_earlier_failures_are_read_newest_first(run):
    close(run, {"text": ODD.text})
    close(run, None, failed=False)
    close(run, {**OOM._asdict(), "more": [1]})
    close(run, {**PORT._asdict(), "fingerprint": 7})
    close(run, {"text": None})
    close(run, {"text": None, "phase": "weights", "end": "exited with 4"})
    run.open_attempt()
    assert run.recent_failures(7) == [(6, EXITED_4), (3, OOM), (1, ODD)]
    assert run.recent_failures(3) == [(1, ODD)]
    assert run.recent_failures(6, most=2) == []


@pytest.mark.parametrize("moment", [-1, float("inf"), float("nan"), "soon", True, 2**64, []])
def test_a_moment_that_no_clock_shows_is_damage(moment):
    assert sound({"relaunch_at": 1790000000.5})
    assert sound({"relaunch_at": None})
    assert not sound({"relaunch_at": moment})


# --- what users write -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "most", "window_s"),
    [("5/1h", 5, 3600), ("3", 3, 3600), ("2/90", 2, 90), ("2/90s", 2, 90), ("10/15m", 10, 900), ("1/1d", 1, 86400)],
)
def test_a_limit(limit, most, window_s):
    policy = RestartOptions(When.ON_FAILURE, limit, 1.5).policy()
    assert (policy.most, policy.window_s, policy.backoff_s) == (most, window_s, 1.5)
    assert RestartOptions(When.NO, limit, 1.5).policy() is None


@pytest.mark.parametrize("limit", ["", "00", "-1", "5/", "5/h", "5/1w", "5/0h", "5 / 1h", "x", "5/1h/2"])
def test_what_is_no_limit(limit):
    with pytest.raises(Exception, match="use N or N/WINDOW"):
        RestartOptions(When.NO, limit, 1.0).policy()


@pytest.mark.parametrize("limit", ["0", "0/1h"])
def test_none_is_a_limit_too(limit):
    assert RestartOptions(When.ALWAYS, limit).policy() is None


def test_whoever_says_how_often_means_that_there_be_any():
    assert RestartOptions(max_restarts="3").policy() == Policy(When.ON_FAILURE, most=3)
    assert RestartOptions().policy() is None
    assert RestartOptions(When.NO, "3").policy() is None


def test_what_is_watched_exists(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("model.py").touch()
    assert RestartOptions(watch=["model.py", ".", "./model.py"]).watched() == (f"{tmp_path}/model.py", str(tmp_path))
    assert RestartOptions().watched() == ()
    for missing in ("modle.py", ""):
        with pytest.raises(Exception, match=f"--watch '{missing}': there is no such file or directory"):
            RestartOptions(watch=[missing]).watched()
