"""The lifecycle as tables and properties: no clock, no process."""

import signal
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervise import lifecycle as life
from supervise.lifecycle import Cause, Effect, Reason
from supervise.model.diagnosis import Diagnosis, FailureClass
from supervise.model.exits import Exit

TERM, INT = signal.SIGTERM, signal.SIGINT
ASKED = Reason(Cause.ASKED, signum=TERM)
LATE = Reason(Cause.NOT_READY)
LATE_AND_ASKED = Reason(Cause.NOT_READY, signum=TERM)
DIED = Reason(Cause.DIED, status=1)
AGAIN = Reason(Cause.ASKED, restarts=True)
READY_AGAIN = replace(AGAIN, was_ready=True)
UNTIL_A_CHANGE = life.Waiting(life.Done(93), None, 7, "KeyError", "")
AGAIN_WAIT = life.Waiting(life.Done(0), 0.0, 7, "", "asked to restart", asked=True)
IDLE = Reason(Cause.NOT_READY, detail="idle")
HUNG = Reason(Cause.HUNG, was_ready=True, detail="no token; no answer")
BY_KEY = Reason(Cause.ASKED, signum=INT, was_ready=True, detail="key q")
DIED_AND_ASKED = Reason(Cause.DIED, signum=TERM, status=1)


def diagnosis(failure: FailureClass) -> Diagnosis:
    return Diagnosis("boom", 1, "Worker", None, failure, None, "", ())


TRANSITIONS = [
    (life.Sweeping(), life.SlateCleaned(), life.Starting(), (Effect.LAUNCH,)),
    (life.Sweeping(), life.SlateRefused(), life.Done(Exit.SLATE), ()),
    (life.Sweeping(), life.StopAsked(INT), life.Done(130, reraise=INT), (Effect.CANCEL_SLATE,)),
    (life.Sweeping(), life.KeeperLost(), life.Done(Exit.INTERNAL), (Effect.CANCEL_SLATE,)),
    (life.Starting(), life.Agreed(), life.Ready(), (Effect.ANNOUNCE_READY,)),
    (life.Starting(fatal=True), life.Agreed(), life.Ready(), (Effect.ANNOUNCE_READY,)),
    (life.Starting(), life.FatalSeen(), life.Starting(fatal=True), (Effect.ARM_LINGER,)),
    (life.Ready(), life.FatalSeen(), life.Ready(fatal=True), (Effect.ARM_LINGER,)),
    (life.Starting(fatal=True), life.FatalSeen(), life.Starting(fatal=True), ()),
    (life.Starting(), life.LingerExpired(), life.Starting(), ()),
    (life.Starting(fatal=True), life.LingerExpired(), life.Capturing(Reason(Cause.FATAL)), (Effect.CAPTURE,)),
    (life.Starting(), life.StartExpired(), life.Capturing(LATE), (Effect.CAPTURE,)),
    (life.Capturing(LATE), life.EvidenceTaken(), life.Stopping(LATE), (Effect.STOP_GROUP,)),
    (life.Capturing(LATE), life.StopAsked(TERM), life.Stopping(LATE_AND_ASKED), (Effect.STOP_GROUP,)),
    (life.Killing(DIED), life.StopAsked(TERM), life.Killing(DIED_AND_ASKED), (Effect.ESCALATE,)),
    (life.Verifying(DIED, 0), life.StopAsked(TERM), life.Verifying(DIED_AND_ASKED, 0), ()),
    (life.Verifying(DIED_AND_ASKED, 0), life.Verified(), life.Done(1), ()),
    (life.Capturing(LATE), life.LeaderExited(1), life.Killing(Reason(Cause.NOT_READY, status=1)), ()),
    (life.Capturing(LATE), life.KeeperLost(), life.Killing(LATE), (Effect.ADOPT_GROUP,)),
    (life.Capturing(LATE), life.Broken(), life.Stopping(Reason(Cause.BROKEN)), (Effect.STOP_GROUP,)),
    (life.Capturing(LATE), life.Agreed(), life.Capturing(LATE), ()),
    (life.Stopping(LATE), life.EvidenceTaken(), life.Stopping(LATE), ()),
    (life.Ready(), life.StartExpired(), life.Ready(), ()),
    (life.Ready(), life.Agreed(), life.Ready(), ()),
    (life.Starting(), life.StopAsked(TERM), life.Stopping(ASKED), (Effect.STOP_GROUP,)),
    (life.Starting(), life.LeaderExited(1), life.Killing(Reason(Cause.DIED, status=1)), ()),
    (life.Ready(), life.LeaderExited(0), life.Killing(Reason(Cause.DIED, status=0, was_ready=True)), ()),
    (life.Ready(), life.KeeperLost(), life.Killing(Reason(Cause.KEEPER_LOST, was_ready=True)), (Effect.ADOPT_GROUP,)),
    (life.Stopping(ASKED), life.StopAsked(INT), life.Killing(ASKED), (Effect.ESCALATE,)),
    (life.Stopping(ASKED), life.LeaderExited(0), life.Killing(Reason(Cause.ASKED, TERM, 0)), ()),
    (life.Stopping(ASKED), life.FatalSeen(), life.Stopping(ASKED), ()),
    (life.Stopping(ASKED), life.KeeperLost(), life.Killing(ASKED), (Effect.ADOPT_GROUP,)),
    (life.Killing(ASKED), life.StopAsked(TERM), life.Killing(ASKED), (Effect.ESCALATE,)),
    (life.Killing(ASKED), life.GroupEnded(0), life.Verifying(ASKED, 0), (Effect.VERIFY,)),
    (life.Verifying(ASKED, 0), life.Verified(), life.Done(143, reraise=TERM), ()),
    (life.Verifying(ASKED, 2), life.Verified(), life.Done(Exit.SURVIVORS), ()),
    (life.Verifying(ASKED, 0), life.Verified(held=1), life.Done(Exit.SURVIVORS), ()),
    (life.Verifying(ASKED, 0), life.StopAsked(TERM), life.Verifying(ASKED, 0), ()),
    (life.Verifying(ASKED, 0), life.Broken(), life.Done(Exit.INTERNAL), ()),
    (life.Verifying(ASKED, 2), life.Broken(), life.Done(Exit.SURVIVORS), ()),
    (
        life.Starting(),
        life.StartExpired("idle"),
        life.Capturing(Reason(Cause.NOT_READY, detail="idle")),
        (Effect.CAPTURE,),
    ),
    (life.Ready(), life.Hung(("no token", "no answer")), life.Capturing(HUNG), (Effect.CAPTURE,)),
    (life.Starting(), life.Hung(("no token", "no answer")), life.Starting(), ()),
    (life.Starting(), life.RestartAsked(), life.Stopping(AGAIN), (Effect.STOP_GROUP,)),
    (life.Sweeping(), life.RestartAsked(), life.Sweeping(), ()),
    (life.Capturing(HUNG), life.RestartAsked(), life.Capturing(replace(HUNG, restarts=True)), ()),
    (life.Killing(DIED), life.RestartAsked(), life.Killing(replace(DIED, restarts=True)), ()),
    (life.Stopping(ASKED), life.RestartAsked(), life.Stopping(replace(ASKED, restarts=True)), ()),
    (life.Verifying(AGAIN, 0), life.Verified(attempt=7), AGAIN_WAIT, ()),
    (life.Verifying(AGAIN, 1), life.Verified(attempt=7), life.Done(Exit.SURVIVORS), ()),
    (life.Verifying(AGAIN, 0), life.Verified(held=1, attempt=7), life.Done(Exit.SURVIVORS), ()),
    (life.Verifying(replace(AGAIN, signum=TERM), 0), life.Verified(), life.Done(143, reraise=TERM), ()),
    (life.Verifying(Reason(Cause.BROKEN, restarts=True), 0), life.Verified(), life.Done(Exit.INTERNAL), ()),
    (life.Stopping(AGAIN), life.StopAsked(TERM), life.Stopping(replace(AGAIN, signum=TERM)), ()),
    (life.Stopping(ASKED), life.StopAsked(TERM, patient=True), life.Stopping(ASKED), ()),
    (life.Killing(DIED), life.StopAsked(TERM, patient=True), life.Killing(DIED_AND_ASKED), ()),
    (life.Ready(), life.RestartAsked("x"), life.Stopping(replace(READY_AGAIN, anew="x")), (Effect.STOP_GROUP,)),
    (life.Stopping(AGAIN), life.RestartAsked("x"), life.Stopping(replace(AGAIN, anew="x")), ()),
    (
        life.Killing(replace(AGAIN, anew="x")),
        life.RestartAsked(),
        life.Killing(replace(AGAIN, anew="x")),
        (),
    ),
    (
        life.Verifying(replace(AGAIN, anew="x"), 0),
        life.Verified(attempt=7),
        replace(AGAIN_WAIT, why="x"),
        (),
    ),
    (UNTIL_A_CHANGE, life.RestartAsked("x"), life.Sweeping(), ()),
    (UNTIL_A_CHANGE, life.StopAsked(INT, why="key q"), life.Done(130, reraise=INT, why="key q"), ()),
    (life.Ready(), life.StopAsked(INT, why="key q"), life.Stopping(BY_KEY), (Effect.STOP_GROUP,)),
    (
        life.Stopping(AGAIN),
        life.StopAsked(INT, why="key q"),
        life.Stopping(replace(AGAIN, signum=INT, detail="key q")),
        (),
    ),
    (life.Stopping(ASKED), life.StopAsked(INT, why="key q"), life.Killing(ASKED), (Effect.ESCALATE,)),
    (
        life.Capturing(HUNG),
        life.StopAsked(INT, why="key q"),
        life.Stopping(replace(HUNG, signum=INT)),
        (Effect.STOP_GROUP,),
    ),
    (UNTIL_A_CHANGE, life.StopAsked(TERM), life.Done(143, reraise=TERM), ()),
    (AGAIN_WAIT, life.RelaunchDue(), life.Sweeping(), ()),
    (AGAIN_WAIT, life.RestartAsked(), life.Sweeping(), ()),
    (AGAIN_WAIT, life.StopAsked(TERM), life.Done(143, reraise=TERM), ()),
    (
        life.Starting(),
        life.LaunchFailed(2),
        life.Verifying(Reason(Cause.NOT_LAUNCHED, status=2), 0),
        (Effect.VERIFY,),
    ),
]


@pytest.mark.parametrize(("state", "event", "after", "effects"), TRANSITIONS)
def test_transition(state, event, after, effects):
    assert life.step(state, event) == life.Step(after, effects)


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (life.RelaunchDue(), ""),
        (life.RestartAsked("key r"), "key r"),
        (life.RestartAsked(), "asked to restart"),
    ],
)
def test_what_has_cut_a_wait_short_is_known(event, why):
    after = life.step(UNTIL_A_CHANGE, event).state
    assert isinstance(after, life.Sweeping)
    assert after.why == why


@pytest.mark.parametrize(
    ("reason", "failure", "survivors", "status"),
    [
        (Reason(Cause.DIED, status=0), FailureClass.UNKNOWN, 0, Exit.ENDED_BY_ITSELF),
        (Reason(Cause.DIED, signum=TERM, status=0), FailureClass.UNKNOWN, 0, 128 + TERM),
        (Reason(Cause.DIED, signum=TERM, status=-TERM), FailureClass.UNKNOWN, 0, 128 + TERM),
        (Reason(Cause.DIED, signum=TERM, status=1), FailureClass.UNKNOWN, 0, 1),
        (Reason(Cause.DIED, status=0), FailureClass.DETERMINISTIC, 0, Exit.DETERMINISTIC),
        (Reason(Cause.DIED, status=7), FailureClass.TRANSIENT, 0, 7),
        (Reason(Cause.DIED, status=-9), FailureClass.UNKNOWN, 0, 137),
        (Reason(Cause.DIED, status=2), FailureClass.DETERMINISTIC, 0, Exit.DETERMINISTIC),
        (Reason(Cause.FATAL), FailureClass.TRANSIENT, 0, Exit.HUNG),
        (Reason(Cause.FATAL), FailureClass.DETERMINISTIC, 0, Exit.DETERMINISTIC),
        (Reason(Cause.NOT_READY), FailureClass.UNKNOWN, 0, Exit.NOT_READY),
        (Reason(Cause.KEEPER_LOST), FailureClass.DETERMINISTIC, 0, Exit.INTERNAL),
        (Reason(Cause.NOT_LAUNCHED, status=2), FailureClass.UNKNOWN, 0, Exit.NOT_FOUND),
        (Reason(Cause.NOT_LAUNCHED, status=8), FailureClass.UNKNOWN, 0, Exit.CANNOT_EXECUTE),
        (HUNG, FailureClass.UNKNOWN, 0, Exit.HUNG),
        (HUNG, FailureClass.DETERMINISTIC, 0, Exit.DETERMINISTIC),
        (AGAIN, FailureClass.UNKNOWN, 0, Exit.OK),
        (ASKED, FailureClass.DETERMINISTIC, 0, 143),
        (ASKED, FailureClass.UNKNOWN, 1, Exit.SURVIVORS),
    ],
)
def test_exit_status(reason, failure, survivors, status):
    assert life.conclude(reason, diagnosis(failure), survivors).status == status


EVENTS = st.one_of(
    st.sampled_from(
        [
            life.SlateCleaned(),
            life.SlateRefused(),
            life.Agreed(),
            life.FatalSeen(),
            life.LingerExpired(),
            life.StartExpired(),
            life.EvidenceTaken(),
            life.KeeperLost(),
            life.Verified(),
            life.LaunchFailed(13),
            life.RelaunchDue(),
            life.RestartAsked(),
            life.Hung(("a", "b")),
        ]
    ),
    st.builds(life.StopAsked, st.sampled_from([TERM, INT, signal.SIGHUP])),
    st.builds(life.LeaderExited, st.integers(-31, 255)),
    st.builds(life.GroupEnded, st.integers(0, 3)),
)


@given(st.lists(EVENTS, max_size=30))
def test_no_history_launches_twice_or_ends_well_with_survivors(events):
    """Whatever happens in whatever order: one launch unless more were asked for, and status 0 never."""
    state: life.State = life.Sweeping()
    launches = 0
    for event in events:
        step = life.step(state, event)
        launches += step.effects.count(Effect.LAUNCH)
        if isinstance(state, life.Verifying) and state.survivors and isinstance(step.state, life.Done):
            assert step.state.status == Exit.SURVIVORS
        state = step.state
    assert launches <= 1 + events.count(life.RestartAsked())
    assert not isinstance(state, life.Done) or state.status != 0


@given(st.lists(EVENTS, max_size=20))
def test_a_group_is_never_left_before_it_has_ended(events):
    """Between a launch and Done there is always a GroupEnded, or the launch failed."""
    state: life.State = life.Sweeping()
    launched = ended = False
    for event in events:
        before, step = state, life.step(state, event)
        launched = launched or Effect.LAUNCH in step.effects
        ended = ended or (isinstance(step.state, life.Verifying) and not isinstance(before, life.Verifying))
        state = step.state
    if launched and isinstance(state, life.Done):
        assert ended
