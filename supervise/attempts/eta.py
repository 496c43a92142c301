"""When a server should be ready, by how long earlier attempts of the same launch took for each phase.

The same launch is one of the same run, model and command line; what decides only where it answers, and under which
name, does not count, nor does where the program lies.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from supervise.attempts.store import Attempt, Run
from supervise.model.profile import Profile
from supervise.text import redact, roughly

_MOST = 20
_WHERE = (
    "host", "port", "uds", "served", "key", "tls", "supervisor_port", "master_port", "grpc_port", "nccl_port",
    "init_address",
)  # fmt: skip
# A bar's speed tells nothing before this.
_LEAST_PERCENT = 10
_OVERDUE = 2.0
# Of a start-up of a few seconds nobody needs to be told when it is over.
_WORTH_TELLING_S = 5.0

Phases = Mapping[str, float]


class Eta(NamedTuple):
    """Seconds until it should be ready, None where nobody knows; `overdue` if it takes twice as long as it used to."""

    seconds: float | None = None
    overdue: bool = False

    def told(self, spent_s: float) -> str:
        """The same as people read it, after so many seconds of start-up; nothing where that is of no interest."""
        if self.overdue:
            return "overdue" if spent_s >= _OVERDUE * _WORTH_TELLING_S else ""
        return "" if self.seconds is None or self.seconds < _WORTH_TELLING_S else f"ETA {roughly(self.seconds)}"


UNKNOWN = Eta()


def essence(argv: Sequence[str], profile: Profile) -> tuple[str, ...]:
    """A command line without what has no influence on how long it takes.

    Args:
        argv: as attempt.json has it.
        profile: of the engine: it knows which flags say where it answers, and how many words they take.
    """
    where = {flag for name in _WHERE if name in profile.values for flag in profile.values[name].flags}
    kept: list[str] = []
    dropping = 0
    for word in redact(argv):
        flag, given, _ = word.partition("=")
        flag = flag.replace("_", "-") if flag.startswith("--") else flag
        if flag in where:
            dropping = 0 if given else len(argv) if flag in profile.lists else 1
        elif dropping and not word.startswith("-"):
            dropping -= 1
        else:
            dropping = 0
            kept.append(word)
    return (os.path.basename(kept[0]), *kept[1:]) if kept else ()


def history(attempt: Attempt, profile: Profile) -> list[dict[str, float]]:
    """How long the phases of earlier attempts of the same launch took, of those that became ready; newest first.

    Args:
        attempt: the present one; it has been recorded.
        profile: of its engine.

    Returns:
        Of the last 20 attempts at most; blocking, two small files of each are read.
    """
    run = Run(os.path.dirname(os.path.dirname(os.path.dirname(attempt.path))), attempt.run)
    mine = _launch(attempt, profile)
    before = [number for number in reversed(run.numbers()) if number < attempt.number][:_MOST]
    found = []
    for earlier in map(run.attempt, before):
        outcome = earlier.read("outcome") or {}
        if outcome.get("ready_s") is not None and outcome.get("phases") and mine == _launch(earlier, profile):
            found.append(outcome["phases"])
    return found


def _launch(attempt: Attempt, profile: Profile) -> tuple[Any, ...] | None:
    said = attempt.read("attempt")
    if said is None or not isinstance(argv := said.get("argv"), list) or not all(isinstance(w, str) for w in argv):
        return None
    return said.get("profile"), said.get("model"), essence(argv, profile)


def remaining(before: Sequence[Phases], so_far: Phases, percent: float | None = None) -> Eta:
    """How long it should still take.

    Args:
        before: seconds by phase, in order, of attempts that became ready.
        so_far: the same of the present one, up to now; its last phase is the present one.
        percent: how far the present phase is, None if nobody knows.

    Returns:
        The phases still to come as long as the middle one of the earlier attempts took for them, and the rest of the
        present one: by its bar where that has come far enough, else by what it used to take.
    """
    if not before or not so_far:
        return UNKNOWN
    phase, spent = list(so_far.items())[-1]
    known = [phases for phases in before if phase in phases]
    if not known:
        return UNKNOWN
    if sum(so_far.values()) > _OVERDUE * median(sum(phases.values()) for phases in known):
        return Eta(None, overdue=True)
    after = median(_after(phases, phase) for phases in known)
    if percent is not None and _LEAST_PERCENT <= percent < 100:
        return Eta(after + spent * (100 - percent) / percent)
    return Eta(after + max(0.0, median(phases[phase] for phases in known) - spent))


def _after(phases: Phases, phase: str) -> float:
    """What the later ones took: outcome.json keeps their order."""
    names = list(phases)
    return sum(phases[name] for name in names[names.index(phase) + 1 :])
