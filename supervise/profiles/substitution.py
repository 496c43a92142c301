"""A command line with another value for one of its flags. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from supervise.model.profile import Profile
from supervise.model.sweep import Axis, SweepError
from supervise.model.trial import Setting
from supervise.profiles.arguments import is_flag
from supervise.profiles.match import Match, match

_ON, _OFF = ("on", "yes", "true"), ("off", "no", "false")
_NO = "--no-"
_DOCUMENTS = ("{", "[")


class Substituted(NamedTuple):
    """One launch of a sweep: its command line, what is to be set in the environment, and what is new in both."""

    command: list[str]
    env: dict[str, str]
    settings: tuple[Setting, ...]


def substituted(
    command: Sequence[str], swept: Sequence[Axis], point: Sequence[str], profiles: Mapping[str, Profile]
) -> Substituted:
    """The command line and the variables of one trial.

    Args:
        command: the user's, wrappers included.
        swept: what is varied.
        point: a value for each.
        profiles: all profiles.

    Raises:
        SweepError: a switch cannot have such a value, or the command sets or clears a variable itself.
    """
    matched = match(command, profiles)
    arguments = list(matched.arguments)
    head = list(command[: len(command) - len(arguments)])
    if [*head, *arguments] != list(command):
        # A wrapper has split a string into words (env -S): they cannot be put back.
        head, arguments = list(command[:1]), list(command[1:])
    env: dict[str, str] = {}
    settings: list[Setting] = []
    for axis, value in zip(swept, point, strict=True):
        if axis.variable:
            _settle(axis, matched)
            env[axis.name] = value
            settings.append(Setting(frozenset({axis.name}), (value,), variable=True))
        else:
            arguments, setting = _put(arguments, axis, value, matched.profile)
            settings.append(setting)
    return Substituted([*head, *arguments], env, tuple(settings))


def aliases(axis: Axis, profile: Profile) -> frozenset[str]:
    """All names under which people and logs speak of what is varied."""
    if axis.variable:
        return frozenset({axis.name})
    return frozenset(flag for flag in _same(axis.name, profile) if flag.startswith("--") or flag == axis.name)


def _settle(axis: Axis, matched: Match) -> None:
    if matched.cleared:
        raise SweepError(f"--set env:{axis.name}: the command clears its environment (env -i); nothing of it arrives")
    if axis.name in matched.env:
        raise SweepError(f"--set env:{axis.name}: the command sets it itself; leave it out there")


def _same(flag: str, profile: Profile) -> frozenset[str]:
    """All spellings of a flag."""
    name = canonical(flag)
    positive = f"--{name.removeprefix(_NO)}"
    if name.startswith(_NO) and positive in profile.negatable:
        name = positive
    flags = {one for spec in profile.values.values() if name in spec.flags for one in spec.flags}
    negative = {f"{_NO}{name[2:]}"} if name in profile.negatable else set()
    return frozenset({name, *flags, *negative})


def _put(words: list[str], axis: Axis, value: str, profile: Profile) -> tuple[list[str], Setting]:
    """With this value wherever the flag is, at the end of the options if it is nowhere."""
    names = _same(axis.name, profile)
    end = words.index("--") if "--" in words else len(words)
    given, rest = words[:end], words[end:]
    if names & profile.switches:
        given, setting = _switched(given, axis.name, names, value, profile)
        return [*given, *rest], setting
    several = bool(names & profile.lists)
    parts = value.split() if several and not value.lstrip().startswith(_DOCUMENTS) else [value]
    given = _valued(given, axis.name, names, parts or [value], several=several)
    return [*given, *rest], Setting(names, tuple(parts or [value]))


def _valued(given: list[str], flag: str, names: frozenset[str], parts: list[str], *, several: bool) -> list[str]:
    kept: list[str] = []
    put = False
    at = 0
    while at < len(given):
        word, joined, _ = given[at].partition("=")
        at += 1
        if canonical(word) not in names or not is_flag(given[at - 1]):
            kept.append(given[at - 1])
            continue
        while not joined and at < len(given) and not is_flag(given[at]):
            at += 1
            if not several:
                break
        kept += _spelled(word, parts, joined=bool(joined))
        put = True
    return kept if put else [*kept, *_spelled(flag, parts, joined=False)]


def _spelled(flag: str, parts: list[str], *, joined: bool) -> list[str]:
    if len(parts) == 1 and (joined or is_flag(parts[0])):
        return [f"{flag}={parts[0]}"]
    return [flag, *parts]


def _switched(
    words: list[str], flag: str, names: frozenset[str], value: str, profile: Profile
) -> tuple[list[str], Setting]:
    name = next(iter(names & profile.switches))
    if value.lower() not in (*_ON, *_OFF):
        raise SweepError(f"--set {canonical(flag)}={value}: it is a switch and takes no value; use on,off")
    kept = [word for word in words if canonical(word) not in names]
    # Of one that was asked for by its negative, `on` is the negative.
    if (value.lower() in _ON) != (canonical(flag) not in profile.switches):
        return [*kept, name], Setting(names)
    if name in profile.negatable:
        # What it is without a word for it is the engine's to say, and changes with its versions.
        return [*kept, f"{_NO}{name[2:]}"], Setting(names)
    return kept, Setting(names, absent=True)


def canonical(word: str) -> str:
    """A flag with dashes."""
    return word.replace("_", "-") if word.startswith("--") else word
