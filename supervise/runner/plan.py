"""What is to be run, decided before anything is touched: profile, Need, program."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from supervise.attempts.log import Bound
from supervise.attempts.pruning import Pruning
from supervise.group.ending import Deadlines
from supervise.host import files
from supervise.model.evict import Evict
from supervise.model.liveness import Vigil
from supervise.model.need import Need
from supervise.model.profile import Profile
from supervise.model.restart import Policy
from supervise.model.tier import Wanted
from supervise.model.watch import OnChange
from supervise.profiles import load, match, titles
from supervise.profiles.derive import derive, environment
from supervise.profiles.errors import ProfileError
from supervise.profiles.settings import load_settings

if TYPE_CHECKING:
    from supervise.group.bounding import Bounded
    from supervise.model.telling import Telling
    from supervise.model.trial import Trial

_LARGEST_YAML = 16 * 1024 * 1024
# For container images and units, which cannot change the command line of whoever starts them.
_STOP_TIMEOUT = "SUPERVISE_STOP_TIMEOUT"
PACKAGE = "package:"
"""What a package to be watched is named with."""
_SECONDS = re.compile(r"[0-9]{1,6}(\.[0-9]{1,3})?")


@dataclass(frozen=True, slots=True)
class Clearing:
    """How far the clean slate goes: see SlateRequest. `packages` are names or directories beside the engine's own.

    `evict` is None where the user has not said.
    """

    evict: Evict | None = None
    evict_uids: frozenset[int] = frozenset()
    artefacts: tuple[str, ...] = ()
    purge: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Options:
    """What the user chose, each with its default; durations in seconds. Without `restart` there is one attempt.

    `watch` are absolute paths of files and directories that the user works on; until there is a plan also packages, as
    `package:vllm`.
    """

    name: str | None = None
    profile: str | None = None
    grace_s: float | None = None
    ready_timeout_s: float = 3600.0
    stall_timeout_s: float | None = None
    slate_timeout_s: float = 100.0
    pruning: Pruning = field(default_factory=Pruning)
    bound: Bound = field(default_factory=Bound)
    wanted: Wanted = field(default_factory=Wanted)
    tty: bool = False
    clearing: Clearing = field(default_factory=Clearing)
    no_preflight: frozenset[str] = frozenset()
    restart: Policy | None = None
    watch: tuple[str, ...] = ()
    on_change: OnChange = OnChange.NOW
    telling: Telling | None = None
    stop_within_s: float | None = None
    vigil: Vigil = field(default_factory=Vigil)
    termination_log: str | None = None
    replace: bool = False
    trial: Trial | None = None
    plain: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """A launch, thought through: the engine's profile, what it needs, and all profiles for the clean slate.

    `env` is the environment that the engine will see behind its wrappers.
    """

    profile: Profile
    need: Need
    profiles: Mapping[str, Profile]
    options: Options
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def packages(self) -> tuple[str, ...]:
        """Packages whose code is looked at: the engine's, and those that the user has named."""
        return (*self.profile.packages, *self.options.clearing.packages)

    @property
    def deadlines(self) -> Deadlines:
        """Of the stop path: whoever gives the leader little time gives the others no more."""
        grace = self.options.grace_s
        if self._bounded is not None:
            return self._bounded.deadlines
        # Whoever lets requests finish needs that time before it begins to end.
        grace = self.profile.grace_s + self.need.drain_s if grace is None else grace
        return Deadlines(grace_s=grace, term_s=min(grace, Deadlines().term_s))

    @property
    def verify_s(self) -> float:
        """How long the second look may take, in seconds; its own deadlines hold as well."""
        return math.inf if self._bounded is None else self._bounded.verify_s

    @property
    def _bounded(self) -> Bounded | None:
        if self.options.stop_within_s is None:
            return None
        from supervise.group.bounding import bounded

        return bounded(self.options.stop_within_s, self.options.grace_s)


def make(command: Sequence[str], env: Mapping[str, str], options: Options) -> Plan:
    """Think a command line through; nothing is looked at but files it names.

    Args:
        command: the server's command line, unchanged.
        env: its environment.
        options: the user's.

    Returns:
        The plan.

    Raises:
        ProfileError: a profile or the user's settings are damaged, or there is no profile of that name.
    """
    if options.stop_within_s is None and (said := env.get(_STOP_TIMEOUT)):
        options = replace(options, stop_within_s=_seconds(said))
    known, options = profiles(options, env)
    matched = match.match(command, known)
    if options.profile is not None:
        matched = matched.with_profile(known, options.profile)
    need = derive(matched, env, read_text=_read_text, run=options.name)
    seen = environment(matched, env)
    if any(path.startswith(PACKAGE) for path in options.watch):
        options = replace(options, watch=_found(options.watch, need, seen))
    named = {name: titles.in_environment(profile, seen) for name, profile in known.items()}
    return Plan(named[matched.profile.name].in_part(need.part), _warned(need, matched), named, options, seen)


def profiles(options: Options, env: Mapping[str, str]) -> tuple[dict[str, Profile], Options]:
    """All profiles and the options, with the user's standing orders in them.

    Args:
        options: of this launch; they come first.
        env: says where the standing orders are.

    Raises:
        ProfileError: one of them is damaged.
    """
    known, standing, clearing = load.load_all(), load_settings(env), options.clearing
    protected = {name: replace(p, protected=(*p.protected, *standing.protected)) for name, p in known.items()}
    settled = replace(
        clearing,
        evict=clearing.evict or standing.evict or Evict.STALE,
        artefacts=tuple(dict.fromkeys((*clearing.artefacts, *standing.artefacts))),
    )
    return protected if standing.protected else known, replace(options, clearing=settled)


def _found(watch: Sequence[str], need: Need, env: Mapping[str, str]) -> tuple[str, ...]:
    """What is watched, with the directories of packages as the server's Python would import them.

    Raises:
        ProfileError: there is no such package.
    """
    from supervise.slate.packages import directories

    names = [path.removeprefix(PACKAGE) for path in watch if path.startswith(PACKAGE)]
    places, python = directories(need.program, env, names, before=need.wrappers)
    for name in names:
        if name not in places:
            problem = f"not found for {python}" if python else "the server's Python is not known"
            raise ProfileError("--watch", f"{PACKAGE}{name}", problem, "a package of the server's Python, or a path")
    found = (places[path.removeprefix(PACKAGE)] if path.startswith(PACKAGE) else path for path in watch)
    return tuple(dict.fromkeys(found))


def _warned(need: Need, matched: match.Match) -> Need:
    """A wrapper that empties the environment takes our marker with it: then only ancestry holds the group together."""
    stripped = matched.cleared or any(
        name.startswith("SUPERVISE_") for name, value in matched.env.items() if value is None
    )
    if not stripped:
        return need
    note = (
        "a wrapper clears the environment, and our marker with it: a group that outlives a kill -9 of both is not found"
    )
    return replace(need, notes=(*need.notes, note))


def _seconds(said: str) -> float:
    """The time that whoever stops us gives us.

    Raises:
        ProfileError: it is none.
    """
    from supervise.group.bounding import LEAST_S

    if not _SECONDS.fullmatch(said) or float(said) < LEAST_S:
        raise ProfileError("environment", _STOP_TIMEOUT, f"{said!r} is no such time", f"{LEAST_S:.0f} seconds or more")
    return float(said)


def _read_text(path: str) -> str:
    """The engine's own YAML; a pipe is left to the engine, which could not read again what we had taken out of it."""
    return files.read_regular(path, _LARGEST_YAML).decode()
