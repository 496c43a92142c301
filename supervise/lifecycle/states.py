"""The states of an attempt, the events that change them, and the effects that a change has."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from supervise.lifecycle.restart import Restarts
    from supervise.model.diagnosis import Diagnosis


class Cause(StrEnum):
    """Why an attempt is ending."""

    ASKED = "asked"
    DIED = "died"
    FATAL = "fatal"
    NOT_READY = "not-ready"
    HUNG = "hung"
    KEEPER_LOST = "keeper-lost"
    NOT_LAUNCHED = "not-launched"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why it ends, and what is known: `status` is the leader's exit code, negative for a signal.

    `signum` is what asked us to stop; with a cause other than ASKED that came when it was ending already. `restarts` is
    True if somebody asked for it to begin anew, `anew` what for. `detail` is what made us end it, or how we were asked,
    as people read it.
    """

    cause: Cause
    signum: int | None = None
    status: int | None = None
    was_ready: bool = False
    restarts: bool = False
    detail: str = ""
    anew: str = ""

    @property
    def again(self) -> bool:
        """Whether it begins anew because somebody asked for that, and nobody for its end since."""
        return self.restarts and self.signum is None


# --- states -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sweeping:
    """The slate is being cleaned; nothing of ours runs. `why` says what has cut a wait before it short, if anything."""

    why: str = field(default="", compare=False)


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
    """It is over. `reraise` is the signal to die of, so that callers see the truth.

    `why` says why there is no further attempt where there might have been one.
    """

    status: int
    reraise: int | None = None
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """The attempt is over; nothing of ours runs until the next one begins `after_s` seconds from here.

    Where that is None it begins once a watched file changes.
    `done` is how it would have ended without a relaunch, `cause` what it failed of, `why` is for people. `asked` is
    True if it has not failed, but somebody wants it to begin anew.
    """

    done: Done
    after_s: float | None
    attempt: int
    cause: str
    why: str
    asked: bool = False

    @property
    def goes_on(self) -> bool:
        """Whether the next attempt belongs to the same row of failures: what waits for a change begins a new one."""
        return not self.asked and self.after_s is not None


State = Sweeping | Starting | Ready | Capturing | Stopping | Killing | Verifying | Waiting | Done


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
    """Somebody wants it to stop, by a signal or as if by one; then `why` says by what, for people.

    A second one takes the grace away, unless it is `patient`: then it only wants what is under way.
    """

    signum: int
    patient: bool = False
    why: str = ""


class Agreed:
    """All proofs of readiness agree."""

    __slots__ = ()


class FatalSeen:
    """A line in the log says that the server cannot go on."""

    __slots__ = ()


class LingerExpired:
    """It said so a while ago and is still there."""

    __slots__ = ()


class RestartAsked(NamedTuple):
    """Somebody wants it to end and to begin anew; `why` is for people, nothing where nobody has said."""

    why: str = ""


class StartExpired(NamedTuple):
    """It was not ready in time, or nothing went on any more: then `detail` says what stands still, and since when."""

    detail: str = ""


class Hung(NamedTuple):
    """It does not serve any more, as sentences say that prove it independently."""

    proofs: tuple[str, ...]


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
    """The second look is done.

    `held` counts survivors that only the driver still sees. `restarts` is what a relaunch depends on, None where there
    is to be none. `attempt` is the number of the one that is over.
    """

    diagnosis: Diagnosis | None = None
    held: int = 0
    restarts: Restarts | None = None
    attempt: int = 0


class RelaunchDue:
    """The wait is over."""

    __slots__ = ()


Event = (
    SlateCleaned
    | SlateRefused
    | LaunchFailed
    | StopAsked
    | RestartAsked
    | Agreed
    | FatalSeen
    | LingerExpired
    | StartExpired
    | Hung
    | EvidenceTaken
    | LeaderExited
    | KeeperLost
    | Broken
    | GroupEnded
    | Verified
    | RelaunchDue
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
