"""What follows from an event: state and event in, next state and effects out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from supervise.lifecycle.states import (
    Agreed,
    Broken,
    Capturing,
    Cause,
    Done,
    Effect,
    Event,
    EvidenceTaken,
    FatalSeen,
    GroupEnded,
    Hung,
    KeeperLost,
    Killing,
    LaunchFailed,
    LeaderExited,
    LingerExpired,
    Ready,
    Reason,
    RelaunchDue,
    RestartAsked,
    SlateCleaned,
    SlateRefused,
    StartExpired,
    Starting,
    State,
    Step,
    StopAsked,
    Stopping,
    Sweeping,
    Verified,
    Verifying,
    Waiting,
)
from supervise.model.exits import Exit

if TYPE_CHECKING:
    from supervise.lifecycle.restart import Restarts
    from supervise.model.diagnosis import Diagnosis


def step(state: State, event: Event) -> Step:
    """Decide. An event that means nothing in a state (a late line, a second report) changes nothing.

    Args:
        state: where the attempt is.
        event: what happened.

    Returns:
        The next state with the effects to perform, in order.
    """
    match state:
        case Sweeping():
            return _sweeping(state, event)
        case Starting() | Ready():
            return _running(state, event)
        case Capturing():
            return _capturing(state, event)
        case Stopping() | Killing():
            return _ending(state, event)
        case Verifying():
            return _verifying(state, event)
        case Waiting():
            return _waiting(state, event)
        case Done():
            return Step(state)


def _sweeping(state: Sweeping, event: Event) -> Step:
    match event:
        case SlateCleaned():
            return Step(Starting(), (Effect.LAUNCH,))
        case SlateRefused():
            return Step(Done(Exit.SLATE))
        case StopAsked(signum):
            return Step(Done(128 + signum, reraise=signum), (Effect.CANCEL_SLATE,))
        case Broken() | KeeperLost():
            return Step(Done(Exit.INTERNAL), (Effect.CANCEL_SLATE,))
    return Step(state)


def _running(state: Starting | Ready, event: Event) -> Step:
    was_ready = isinstance(state, Ready)
    match event:
        case LaunchFailed(errno):
            return Step(Verifying(Reason(Cause.NOT_LAUNCHED, status=errno), 0), (Effect.VERIFY,))
        case Agreed() if not was_ready:
            # A line that was called fatal cannot have been: it serves.
            return Step(Ready(), (Effect.ANNOUNCE_READY,))
        case FatalSeen() if not state.fatal:
            return Step(replace(state, fatal=True), (Effect.ARM_LINGER,))
        case LingerExpired() if state.fatal:
            return _capture(Reason(Cause.FATAL, was_ready=was_ready))
        case StartExpired(detail) if not was_ready:
            return _capture(Reason(Cause.NOT_READY, detail=detail))
        case Hung(proofs) if was_ready:
            return _capture(Reason(Cause.HUNG, was_ready=True, detail="; ".join(proofs)))
        case StopAsked() | RestartAsked() | Broken():
            return _stop(_wanted(event, was_ready))
        case LeaderExited(status):
            return Step(Killing(Reason(Cause.DIED, status=status, was_ready=was_ready)))
        case KeeperLost():
            return Step(Killing(Reason(Cause.KEEPER_LOST, was_ready=was_ready)), (Effect.ADOPT_GROUP,))
    return Step(state)


def _wanted(event: StopAsked | RestartAsked | Broken, was_ready: bool) -> Reason:
    match event:
        case StopAsked(signum, _, why):
            return Reason(Cause.ASKED, signum=signum, was_ready=was_ready, detail=why)
        case RestartAsked(why):
            return Reason(Cause.ASKED, was_ready=was_ready, restarts=True, anew=why)
        case Broken():
            return Reason(Cause.BROKEN, was_ready=was_ready)


def _stop(reason: Reason) -> Step:
    return Step(Stopping(reason), (Effect.STOP_GROUP,))


def _capture(reason: Reason) -> Step:
    return Step(Capturing(reason), (Effect.CAPTURE,))


def _capturing(state: Capturing, event: Event) -> Step:
    match event:
        case EvidenceTaken():
            return _stop(state.reason)
        case StopAsked():
            return _stop(_asked_too(state.reason, event))
        case RestartAsked(why):
            return Step(replace(state, reason=_again(state.reason, why)))
        case Broken():
            return _stop(replace(state.reason, cause=Cause.BROKEN))
        case LeaderExited(status):
            return Step(Killing(replace(state.reason, status=status)))
        case KeeperLost():
            return Step(Killing(state.reason), (Effect.ADOPT_GROUP,))
    return Step(state)


def _ending(state: Stopping | Killing, event: Event) -> Step:
    match event:
        case StopAsked(_, patient) if patient or state.reason.again:
            # Of what was to begin anew this is the first stop.
            return Step(replace(state, reason=_asked_too(state.reason, event)))
        case StopAsked():
            return Step(Killing(_asked_too(state.reason, event)), (Effect.ESCALATE,))
        case RestartAsked(why):
            return Step(replace(state, reason=_again(state.reason, why)))
        case LeaderExited(status):
            return Step(Killing(replace(state.reason, status=status)))
        case KeeperLost():
            return Step(Killing(state.reason), (Effect.ADOPT_GROUP,))
        case GroupEnded(survivors):
            return Step(Verifying(state.reason, survivors), (Effect.VERIFY,))
    return Step(state)


def _asked_too(reason: Reason, asked: StopAsked) -> Reason:
    """It is ending for another reason already; this one says that nothing is to follow."""
    if reason.signum is not None:
        return reason
    detail = asked.why if reason.cause is Cause.ASKED else reason.detail
    return replace(reason, signum=asked.signum, detail=detail)


def _again(reason: Reason, why: str) -> Reason:
    """It is ending already; once it has, it begins anew, for the reason that was told last."""
    return replace(reason, restarts=True, anew=why or reason.anew)


def _verifying(state: Verifying, event: Event) -> Step:
    match event:
        case StopAsked():
            return Step(replace(state, reason=_asked_too(state.reason, event)))
        case RestartAsked(why):
            return Step(replace(state, reason=_again(state.reason, why)))
        case Broken():
            # The look itself has failed: it is over without one, for nobody will tell of it any more.
            return Step(conclude(replace(state.reason, cause=Cause.BROKEN), None, state.survivors))
        case Verified(diagnosis, held, restarts, attempt):
            done = conclude(state.reason, diagnosis, state.survivors + held)
            if state.reason.again and done.status not in _FINAL:
                why = state.reason.anew or "asked to restart"
                return Step(Waiting(done, 0.0, attempt, "", why, asked=True))
            if restarts is None or state.reason.signum is not None:
                return Step(done)
            return Step(_relaunched_or(done, diagnosis, restarts))
    return Step(state)


def _relaunched_or(done: Done, diagnosis: Diagnosis | None, restarts: Restarts) -> Waiting | Done:
    # Whoever wants no relaunch does not wait for the import of what decides on one.
    from supervise.lifecycle.restart import settle

    return settle(done, diagnosis, restarts)


def _waiting(state: Waiting, event: Event) -> Step:
    match event:
        case RelaunchDue():
            return Step(Sweeping())
        case RestartAsked(why):
            return Step(Sweeping(why or "asked to restart"))
        case StopAsked(signum, _, why):
            return Step(Done(128 + signum, reraise=signum, why=why or None))
        case Broken():
            return Step(Done(Exit.INTERNAL))
    return Step(state)


def conclude(reason: Reason, diagnosis: Diagnosis | None, survivors: int) -> Done:
    """The exit status: survivors outrank everything, a stop that was asked for is no failure.

    Args:
        reason: why it ended.
        diagnosis: the first cause, if one was sought.
        survivors: how many processes are left.

    Returns:
        Status and, for a stop by signal, the signal to re-raise.
    """
    if survivors:
        return Done(Exit.SURVIVORS)
    deterministic = diagnosis is not None and diagnosis.deterministic
    match reason.cause:
        case Cause.ASKED if reason.again:
            return Done(Exit.OK)
        case Cause.ASKED:
            signum = reason.signum or 0
            return Done(128 + signum, reraise=signum)
        case Cause.NOT_LAUNCHED:
            return Done(Exit.NOT_FOUND if reason.status == _ENOENT else Exit.CANNOT_EXECUTE)
        case Cause.KEEPER_LOST | Cause.BROKEN:
            return Done(Exit.INTERNAL)
        case _ if deterministic:
            return Done(Exit.DETERMINISTIC)
        case Cause.NOT_READY:
            return Done(Exit.NOT_READY)
        case Cause.FATAL | Cause.HUNG:
            return Done(Exit.HUNG)
        case Cause.DIED:
            return _died(reason.status or 0, reason.signum)


_ENOENT = 2
# Where there would be no clean slate, or nobody to make one, nothing begins anew.
_FINAL = (Exit.SURVIVORS, Exit.INTERNAL)


def _died(status: int, signum: int | None) -> Done:
    if signum is not None and status in (0, -signum, 128 + signum):
        # Whoever asked us asked the server as well (KillMode=control-group, a shutdown), and it was the faster one.
        return Done(128 + signum, reraise=signum)
    return Done(_own_status(status))


def _own_status(status: int) -> int:
    """A server that exits is a failure, also with status 0; one killed by a signal is reported as shells do."""
    if status < 0:
        return 128 - status
    return status or Exit.ENDED_BY_ITSELF
