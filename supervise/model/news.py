"""What happens to a run, as it is told to whoever listens: a service manager, metrics, hooks, those who watch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from supervise.model.slate import SlateResult


class Entered(NamedTuple):
    """The run is in a new state, named as in run.json; `at` is in seconds since the epoch.

    `cut_short` says what has ended a wait for the next attempt before its time, if anything has.
    """

    state: str
    attempt: int | None
    phase: str | None
    cause: str | None
    at: float
    cut_short: str = ""


class Swept(NamedTuple):
    """The slate has been looked at, and cleaned where it had to be."""

    result: SlateResult


class Launched(NamedTuple):
    """The server has begun: number of the attempt, path of its log, pid of the leader."""

    attempt: int
    log: str
    pid: int


class Progressed(NamedTuple):
    """The log shows that start-up goes on; `new` is True if a phase begins.

    `percent`, `done` of `total` and `eta_s`, seconds until it should be ready, are None where nobody knows.
    """

    phase: str
    percent: float | None
    done: int | None
    total: int | None
    elapsed_s: float
    eta_s: float | None
    new: bool


class Working(NamedTuple):
    """A look at a server that starts: seconds since anything went on, and how long that may last.

    `stall` describes the one that stands now, also of a server that is busy and gets nowhere; None if there is none.
    """

    phase: str | None
    idle_s: float
    patience_s: float
    stall: str | None = None


class Stalled(NamedTuple):
    """Nothing goes on any more; said once for each time that it stops."""

    phase: str | None
    text: str


class BecameReady(NamedTuple):
    """It serves: seconds from the launch, and how many of them each phase took."""

    attempt: int
    seconds: float
    phases: Mapping[str, float]


class WasFatal(NamedTuple):
    """The log says that the server cannot go on: the line, and what it means if that is known."""

    text: str
    meaning: str | None


class WasHung(NamedTuple):
    """It has stopped to serve, and these independent sentences prove it."""

    proofs: tuple[str, ...]


class Ending(NamedTuple):
    """The stop path begins and takes at most `within_s` seconds.

    `asked` is True if somebody wanted it, `restarts` if that somebody wants the server back at once.
    """

    why: str
    asked: bool
    restarts: bool
    within_s: float


class Ended(NamedTuple):
    """An attempt is over; `outcome` as in outcome.json, `failure` is the name of the class, None if it did not fail.

    `ready_s` is None if it never was ready, `stop_s` the seconds that its stop path took, `survivors` how many
    processes were left after it, and `survived` a few words about each.
    """

    attempt: int
    exit_status: int
    outcome: str
    cause: str | None
    failure: str | None
    signature: str | None
    fingerprint: str | None
    ready_s: float | None
    phases: Mapping[str, float]
    stop_s: float
    survivors: int
    log_bytes: int
    asked: bool
    log: str
    advice: tuple[str, ...] = ()
    survived: tuple[str, ...] = ()


class Relaunching(NamedTuple):
    """The attempt is followed by another one in `after_s` seconds; `why` is for people, `failure` the class's name.

    `after_s` is None where that waits for a change of a watched file.
    """

    attempt: int
    after_s: float | None
    why: str
    cause: str
    failure: str


class Changed(NamedTuple):
    """Watched files have changed, and what becomes of it, for people."""

    files: tuple[str, ...]
    why: str


class NoEffect(NamedTuple):
    """Edited files that nobody has imported, told when the server is ready; `why` says what that may mean."""

    files: tuple[str, ...]
    why: str


class Meanwhile(NamedTuple):
    """Files that were written while it loaded, none perhaps, told once it is ready: what it imported is not known."""

    files: tuple[str, ...]


class Altered(NamedTuple):
    """Sentences about flags that did not arrive as they were given; those that were told before are not told again."""

    flags: tuple[str, ...]


class Over(NamedTuple):
    """Supervise leaves with this status; `why` says why there is no further attempt where there might have been."""

    exit_status: int
    why: str | None
    cause: str | None


News = (
    Entered
    | Swept
    | Launched
    | Progressed
    | Working
    | Stalled
    | BecameReady
    | WasFatal
    | WasHung
    | Ending
    | Ended
    | Relaunching
    | Changed
    | NoEffect
    | Meanwhile
    | Altered
    | Over
)
