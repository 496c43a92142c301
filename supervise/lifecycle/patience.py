"""Whether a server that starts still gets anywhere: two looks at it are compared, what moved resets a clock.

Two clocks run, for two kinds of signs (FIELD.md B8 rows 114, 119, 120; VLLM_REAL.md section 3):

- *Progress* only comes of getting on: a phase or a percent in the log, bytes read from files or from the network, pages
  that come from disk, memory that fills (weights that are mapped show as nothing else), GPU memory that fills, and
  processes that live for more than a second of CPU (a compiler, a worker). It resets both clocks.
- *Activity* proves nothing by itself: a worker that waits for a dead peer spins at 100 % of a CPU for ever, an NCCL
  kernel at 100 % of a GPU, and vLLM repeats a line every minute meanwhile. It resets the clock of idleness only.

Nothing at all may last as long as the phase's patience, activity alone BUSY times as long: a compiler that prints
nothing and reads nothing for 20 minutes is not rare. What cannot be read is never taken for idle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from supervise.model.effort import NO_LOAD, Effort, GpuLoad, Look
from supervise.model.process import ProcessId
from supervise.model.profile import BEFORE_PHASES
from supervise.text import roughly

PATIENCE_S = 600.0
"""Where a profile says nothing. Imports are silent for 13 to 16 s (VLLM_REAL.md section 3) but busy; this is for what
waits on a slow file server, where one read may take minutes."""
BUSY = 3.0
"""Activity without progress may last so many times as long: half an hour by default, more than a cold compile takes."""
SAID = 0.4
"""A stall is said after this part of the patience: 4 minutes of 10."""

# Per second, within one look: a program that does nothing but poll files or sensors stays below.
_READ = 16 * 1024
_GREW = 256 * 1024
_GPU_GREW = 4 * 1024 * 1024
_FAULTS = 2.0
# Of one CPU, by all members together.
_BUSY_SHARE = 0.05
_GPU_BUSY = 5
# A helper that is started every second to ask for something uses less than this.
_LIVED_S = 1.0
# A gap of more than this many periods between two looks is time in which we did not run, or the machine did not.
_GAP = 2.0
_NOTHING = Effort(0.0, 0, 0, 0)


class Signs(NamedTuple):
    """What was seen between two looks; None where it could not be read."""

    cpu_s: float
    read: int | None
    received: int | None
    faults: int
    grew: int
    lived: bool


class Limits(NamedTuple):
    """How long nothing may move, in seconds, and whether that is acted upon or only said."""

    patience_s: float
    acts: bool = True


@dataclass(frozen=True, slots=True)
class Watch:
    """A server that is looked at: the last look, and the clocks.

    `stuck_s` are seconds since there was progress, `idle_s` since there was anything. `read` and `received` are bytes
    since there was progress, None if unknown. `said_s` is how long it had been stuck when the stall was said, None if
    it goes on.
    """

    look: Look
    stuck_s: float = 0.0
    idle_s: float = 0.0
    read: int | None = 0
    received: int | None = 0
    said: bool = False


class Verdict(NamedTuple):
    """What a look has shown: `clock_s` of `patience_s` are over, on the clock that may run out first.

    In `left_s` seconds one does if the server goes on as it does now: while it is busy that of idleness does not run.
    `text` describes the stall that there is, None if there is none. `news` is True if it begins with this look. After
    `resumed_s` seconds one is over. `expired` says that it has lasted too long.
    """

    clock_s: float
    patience_s: float
    left_s: float
    text: str | None = None
    news: bool = False
    resumed_s: float | None = None
    expired: bool = False


def limits(phase: str, of_profile: Mapping[str, float], chosen_s: float | None) -> Limits:
    """How long a phase may stand still.

    Args:
        phase: the present one.
        of_profile: seconds by phase.
        chosen_s: the user's choice for all phases: 0 to say it and do nothing, None for none.
    """
    if chosen_s:
        return Limits(chosen_s)
    return Limits(of_profile.get(phase, PATIENCE_S), acts=chosen_s is None)


def look_again(
    watch: Watch, now: Look, phase: str, allowed: Limits, *, seconds: float, period_s: float
) -> tuple[Watch, Verdict]:
    """Compare a look with the one before.

    Args:
        watch: as of the look before.
        now: this look.
        phase: where start-up is.
        allowed: how long it may stand still there.
        seconds: since the look before.
        period_s: seconds that should lie between two looks.

    Returns:
        The watch as of this look, and what it shows.
    """
    signs = _between(watch.look.efforts, now)
    signs = signs._replace(received=_more(watch.look.received, now.received))
    if _progress(watch.look, now, signs, seconds):
        resumed_s = watch.stuck_s + seconds if watch.said else None
        return Watch(now), Verdict(0.0, allowed.patience_s, allowed.patience_s, resumed_s=resumed_s)
    traced = any(effort.traced for effort in now.efforts.values())
    counted_s = 0.0 if traced or not now.efforts else min(seconds, _GAP * period_s)
    stuck_s = watch.stuck_s + counted_s
    active = _active(watch.look, now, signs, seconds)
    idle_s = 0.0 if active else watch.idle_s + counted_s
    read, received = _sum(watch.read, signs.read), _sum(watch.received, signs.received)
    stands = max(idle_s, stuck_s / BUSY) >= SAID * allowed.patience_s
    then = Watch(now, stuck_s, idle_s, read, received, said=stands)
    resumed_s = stuck_s if watch.said and not stands else None
    idle, stuck = (idle_s, allowed.patience_s), (stuck_s, BUSY * allowed.patience_s)
    clock_s, patience_s = min(idle, stuck, key=_left)
    left_s = _left(stuck) if active else _left((clock_s, patience_s))
    text = _told(then, phase, signs.cpu_s / max(seconds, 0.001)) if stands else None
    expired = allowed.acts and clock_s >= patience_s
    return then, Verdict(clock_s, patience_s, left_s, text, stands and not watch.said, resumed_s, expired)


def _left(clock: tuple[float, float]) -> float:
    clock_s, patience_s = clock
    return patience_s - clock_s


def _between(before: Mapping[ProcessId, Effort], now: Look) -> Signs:
    """What members did; of one that has ended since, nobody knows any more."""
    signs = Signs(0.0, 0, 0, 0, 0, lived=False)
    for process, effort in now.efforts.items():
        earlier = before.get(process, _NOTHING)
        signs = Signs(
            signs.cpu_s + max(0.0, effort.cpu_s - earlier.cpu_s),
            _sum(signs.read, _more(earlier.read, effort.read)),
            0,
            signs.faults + max(0, effort.faults - earlier.faults),
            signs.grew + effort.resident - earlier.resident,
            signs.lived or earlier.cpu_s < _LIVED_S <= effort.cpu_s,
        )
    return signs


def _progress(before: Look, now: Look, signs: Signs, seconds: float) -> bool:
    return (
        now.steps != before.steps
        or signs.lived
        or (signs.read or 0) >= _READ * seconds
        or (signs.received or 0) >= _READ * seconds
        or signs.faults >= _FAULTS * seconds
        or signs.grew >= _GREW * seconds
        or _filled(before.gpu, now.gpu) >= _GPU_GREW * seconds
    )


def _active(before: Look, now: Look, signs: Signs, seconds: float) -> bool:
    """Something moves, or it cannot be told that nothing does."""
    if now.gpu is None or signs.read is None or signs.received is None:
        return True
    busy = signs.cpu_s >= _BUSY_SHARE * seconds or now.gpu.percent >= _GPU_BUSY
    return busy or now.written != before.written


def _filled(before: GpuLoad | None, now: GpuLoad | None) -> int:
    """Bytes more on the same GPUs; what cannot be compared has not grown."""
    if before is None or now is None or before.gpus != now.gpus:
        return -1
    return now.used - before.used if now.gpus else -1


def _told(watch: Watch, phase: str, busy: float) -> str:
    gpu, where = watch.look.gpu, "start-up" if phase == BEFORE_PHASES else phase
    figures = [
        f"disk reads {_bytes(watch.read)}",
        f"network {_bytes(watch.received)}",
        f"CPU {100 * busy:.0f} %",
        *([] if gpu == NO_LOAD else ["GPU unknown" if gpu is None else f"GPU {gpu.percent} %"]),
    ]
    return f"no progress for {roughly(watch.stuck_s)} in {where}; {', '.join(figures)}"


def _bytes(count: int | None) -> str:
    return "unknown" if count is None else f"{count / 1024:.0f} KiB" if count else "0"


def _more(before: int | None, now: int | None) -> int | None:
    return None if before is None or now is None else max(0, now - before)


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other
