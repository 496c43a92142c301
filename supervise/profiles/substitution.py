"""A command line with another value for one of its flags. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from supervise.model.profile import Profile
from supervise.model.sweep import Axis, SweepError
from supervise.profiles.arguments import is_flag
from supervise.profiles.match import match

_ON, _OFF = ("on", "yes", "true"), ("off", "no", "false")


def substituted(
    command: Sequence[str], swept: Sequence[Axis], point: Sequence[str], profiles: Mapping[str, Profile]
) -> tuple[list[str], dict[str, str]]:
    """The command line and the variables of one trial.

    Args:
        command: the user's, wrappers included.
        swept: what is varied.
        point: a value for each.
        profiles: all profiles.

    Returns:
        The words, and what is to be set in the environment.

    Raises:
        SweepError: a switch cannot have such a value, or the command sets a variable itself.
    """
    matched = match(command, profiles)
    arguments = list(matched.arguments)
    head = list(command[: len(command) - len(arguments)])
    if [*head, *arguments] != list(command):
        # A wrapper has split a string into words (env -S): they cannot be put back.
        head, arguments = list(command[:1]), list(command[1:])
    env: dict[str, str] = {}
    for axis, value in zip(swept, point, strict=True):
        if not axis.variable:
            arguments = _put(arguments, axis.name, value, matched.profile)
        elif axis.name in matched.env:
            raise SweepError(f"--set env:{axis.name}: the command sets it itself; leave it out there")
        else:
            env[axis.name] = value
    return [*head, *arguments], env


def aliases(axis: Axis, profile: Profile) -> frozenset[str]:
    """All names under which people and logs speak of what is varied."""
    if axis.variable:
        return frozenset({axis.name})
    name = _canonical(axis.name)
    flags = {flag for spec in profile.values.values() if name in spec.flags for flag in spec.flags}
    return frozenset({name, *(flag for flag in flags if flag.startswith("--"))})


def _put(words: list[str], flag: str, value: str, profile: Profile) -> list[str]:
    """With this value wherever the flag is, at the end of the options if it is nowhere."""
    name = _canonical(flag)
    same = {name} | {one for spec in profile.values.values() if name in spec.flags for one in spec.flags}
    end = words.index("--") if "--" in words else len(words)
    given, rest = words[:end], words[end:]
    if name in profile.switches:
        return [*_switched(given, name, value), *rest]
    kept: list[str] = []
    put = False
    at = 0
    while at < len(given):
        word, joined, _ = given[at].partition("=")
        at += 1
        if _canonical(word) not in same or not is_flag(given[at - 1]):
            kept.append(given[at - 1])
            continue
        while not joined and at < len(given) and not is_flag(given[at]):
            at += 1
            if name not in profile.lists:
                break
        kept += [f"{word}={value}"] if joined or is_flag(value) else [word, value]
        put = True
    if not put:
        kept += [f"{flag}={value}"] if is_flag(value) else [flag, value]
    return [*kept, *rest]


def _switched(words: list[str], name: str, value: str) -> list[str]:
    if value.lower() not in (*_ON, *_OFF):
        raise SweepError(f"--set {name}={value}: it is a switch and takes no value; use on,off")
    kept = [word for word in words if _canonical(word) != name]
    return [*kept, name] if value.lower() in _ON else kept


def _canonical(word: str) -> str:
    return word.replace("_", "-") if word.startswith("--") else word
