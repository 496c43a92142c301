"""The life of one attempt as a pure function: state and event in, next state and effects out.

    Sweeping -> Starting -> Ready -> (Capturing ->) Stopping -> Killing -> Verifying -> Done

States carry their data; there are no flags beside them. Nothing here reads a clock, a file or a process: what happens
comes in as an event, what is to be done goes out as an effect, and the runner connects the two to the world.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from supervise.model.exits import Exit

if TYPE_CHECKING:
    from supervise.model.diagnosis import Diagnosis


class Cause(StrEnum):
    """Why an attempt is ending."""

    ASKED = "asked"
    DIED = "died"
    FATAL = "fatal"
    NOT_READY = "not-ready"
    KEEPER_LOST = "keeper-lost"
    NOT_LAUNCHED = "not-launched"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why it ends, and what is known: `signum` asked of us; `status` the leader's exit code, negative for a signal."""

    cause: Cause
    signum: int | None = None
    status: int | None = None
    was_ready: bool = False


# --- states -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sweeping:
    """The slate is being cleaned; nothing of ours runs."""


@dataclass(frozen=True, slots=True)
class Starting:
    """The server is launched and not ready. `fatal` is set once its log has said that it cannot become so."""

    fatal: bool = False


@dataclass(frozen=True, slots=True)
class Ready:
    """It serves: log, HTTP and the owner of the listening socket agree."""

    fatal: bool = False


@dataclass(frozen=True, slots=True)
class Capturing:
    """It is to be stopped for a fault of its own: evidence is taken before anything touches it."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class Stopping:
    """The leader has been asked to stop and has its grace."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class Killing:
    """The leader is gone or its grace is over; the group is being emptied."""

    reason: Reason


@dataclass(frozen=True, slots=True)
class Verifying:
    """The group is empty, or its survivors are named; port, GPU memory and leftovers are looked at once more."""

    reason: Reason
    survivors: int


@dataclass(frozen=True, slots=True)
class Done:
    """It is over. `reraise` is the signal to die of, so that callers see the truth."""

    status: int
    reraise: int | None = None


State = Sweeping | Starting | Ready | Capturing | Stopping | Killing | Verifying | Done


# --- events -----------------------------------------------------------------------------------------------------------


class SlateCleaned:
    """Nothing stands in the way."""

    __slots__ = ()


class SlateRefused:
    """Something does, and may not be removed."""

    __slots__ = ()


class LaunchFailed(NamedTuple):
    """The kernel would not execute it."""

    errno: int


class StopAsked(NamedTuple):
    """Somebody sent us a signal that means stop."""

    signum: int


class Agreed:
    """All proofs of readiness agree."""

    __slots__ = ()


class FatalSeen:
    """A line in the log says that the server cannot go on."""

    __slots__ = ()


class LingerExpired:
    """It said so a while ago and is still there."""

    __slots__ = ()


class StartExpired:
    """It was not ready in time."""

    __slots__ = ()


class EvidenceTaken:
    """What could be seen of the group has been written down, or there was no time for more."""

    __slots__ = ()


class LeaderExited(NamedTuple):
    """The leader is gone: exit code, negative for the signal that killed it."""

    status: int


class KeeperLost:
    """The keeper died; its descendants are ours now."""

    __slots__ = ()


class Broken:
    """Supervise itself has failed; it can still end what it began."""

    __slots__ = ()


class GroupEnded(NamedTuple):
    """The stop path is over."""

    survivors: int


class Verified(NamedTuple):
    """The second look is done. `held` counts survivors that only the driver still sees."""

    diagnosis: Diagnosis | None = None
    held: int = 0


Event = (
    SlateCleaned
    | SlateRefused
    | LaunchFailed
    | StopAsked
    | Agreed
    | FatalSeen
    | LingerExpired
    | StartExpired
    | EvidenceTaken
    | LeaderExited
    | KeeperLost
    | Broken
    | GroupEnded
    | Verified
)


class Effect(StrEnum):
    """What the runner has to do."""

    CANCEL_SLATE = "cancel-slate"
    LAUNCH = "launch"
    ARM_LINGER = "arm-linger"
    ANNOUNCE_READY = "announce-ready"
    CAPTURE = "capture"
    STOP_GROUP = "stop-group"
    ESCALATE = "escalate"
    ADOPT_GROUP = "adopt-group"
    VERIFY = "verify"


@dataclass(frozen=True, slots=True)
class Step:
    """The next state and what to do on the way."""

    state: State
    effects: tuple[Effect, ...] = field(default=())


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
            return Step(Ready(state.fatal), (Effect.ANNOUNCE_READY,))
        case FatalSeen() if not state.fatal:
            return Step(replace(state, fatal=True), (Effect.ARM_LINGER,))
        case LingerExpired() if state.fatal:
            return _capture(Reason(Cause.FATAL, was_ready=was_ready))
        case StartExpired() if not was_ready:
            return _capture(Reason(Cause.NOT_READY))
        case StopAsked(signum):
            return _stop(Reason(Cause.ASKED, signum=signum, was_ready=was_ready))
        case Broken():
            return _stop(Reason(Cause.BROKEN, was_ready=was_ready))
        case LeaderExited(status):
            return Step(Killing(Reason(Cause.DIED, status=status, was_ready=was_ready)))
        case KeeperLost():
            return Step(Killing(Reason(Cause.KEEPER_LOST, was_ready=was_ready)), (Effect.ADOPT_GROUP,))
    return Step(state)


def _stop(reason: Reason) -> Step:
    return Step(Stopping(reason), (Effect.STOP_GROUP,))


def _capture(reason: Reason) -> Step:
    return Step(Capturing(reason), (Effect.CAPTURE,))


def _capturing(state: Capturing, event: Event) -> Step:
    match event:
        case EvidenceTaken() | StopAsked():
            return _stop(state.reason)
        case Broken():
            return _stop(replace(state.reason, cause=Cause.BROKEN))
        case LeaderExited(status):
            return Step(Killing(replace(state.reason, status=status)))
        case KeeperLost():
            return Step(Killing(state.reason), (Effect.ADOPT_GROUP,))
    return Step(state)


def _ending(state: Stopping | Killing, event: Event) -> Step:
    match event:
        case StopAsked():
            return Step(Killing(state.reason), (Effect.ESCALATE,))
        case LeaderExited(status):
            return Step(Killing(replace(state.reason, status=status)))
        case KeeperLost():
            return Step(Killing(state.reason), (Effect.ADOPT_GROUP,))
        case GroupEnded(survivors):
            return Step(Verifying(state.reason, survivors), (Effect.VERIFY,))
    return Step(state)


def _verifying(state: Verifying, event: Event) -> Step:
    match event:
        case Verified(diagnosis, held):
            return Step(conclude(state.reason, diagnosis, state.survivors + held))
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
        case Cause.FATAL:
            return Done(Exit.HUNG)
        case Cause.DIED:
            return Done(_own_status(reason.status or 0))


_ENOENT = 2


def _own_status(status: int) -> int:
    """A server that exits is a failure, also with status 0; one killed by a signal is reported as shells do."""
    if status < 0:
        return 128 - status
    return status or Exit.ENDED_BY_ITSELF
