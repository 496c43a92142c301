"""Which engine a command line starts, told from the structure of its words, never from a substring."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from supervise.model.profile import Form, Profile
from supervise.profiles.errors import ProfileError
from supervise.profiles.load import GENERIC
from supervise.profiles.wrappers import unwrap

_PYTHON = re.compile(r"(?:python|pypy)(?:\d+(?:\.\d+)*)?t?")
# python(1): these take a value, joined or as the next word.
_PYTHON_VALUED = ("W", "X", "Q")
_PYTHON_LONG_VALUED = ("--check-hash-based-pycs",)


@dataclass(frozen=True, slots=True)
class Match:
    """What a command line starts.

    `program` is the engine's own command line after the wrappers, `arguments` what follows its form. `env` holds what
    wrappers did to the environment, None for a variable that is unset; `cleared`: nothing else of it is left.
    `guessed`: the profile was asked for and none of its forms fits, so that a word without a flag may mean anything.
    """

    profile: Profile
    argv: tuple[str, ...]
    program: tuple[str, ...]
    arguments: tuple[str, ...]
    env: dict[str, str | None] = field(default_factory=dict)
    cleared: bool = False
    guessed: bool = False

    def with_profile(self, known: Mapping[str, Profile], name: str) -> Match:
        """The same command line, taken for another engine's.

        Args:
            known: all profiles.
            name: the profile that the user asks for.

        Raises:
            ProfileError: there is none of that name.
        """
        if name not in known:
            raise ProfileError("--profile", "", f"there is no profile {name!r}", ", ".join(sorted(known)))
        profile = known[name]
        rest = _arguments(self.program, profile)
        return replace(self, profile=profile, arguments=self.arguments if rest is None else rest, guessed=rest is None)


def match(argv: Sequence[str], profiles: Mapping[str, Profile]) -> Match:
    """Tell the engine from a command line; the program need not exist.

    Args:
        argv: the command line, wrappers such as `env` or `numactl` included.
        profiles: all profiles, the generic one among them.

    Returns:
        The match; the generic profile if no other fits.
    """
    bare = unwrap(argv)
    profile, rest = profiles[GENERIC], bare.program[1:]
    for candidate in profiles.values():
        found = _arguments(bare.program, candidate)
        if found is not None:
            profile, rest = candidate, found
            break
    return Match(profile, tuple(argv), bare.program, rest, bare.env, bare.cleared)


def started(program: Sequence[str]) -> str:
    """The name of what a command line without wrappers starts: a program's basename, or a module behind python."""
    return _started(tuple(program))[1]


def _arguments(program: tuple[str, ...], profile: Profile) -> tuple[str, ...] | None:
    """What follows the first form that fits."""
    kind, name, rest = _started(program)
    for form in profile.forms:
        if _named(form, kind) == name and rest[: len(form.words)] == form.words:
            return rest[len(form.words) :]
    return None


def _named(form: Form, kind: str) -> str | None:
    return form.module if kind == "module" else form.program


def _started(program: tuple[str, ...]) -> tuple[str, str, tuple[str, ...]]:
    """Whether a module or a program is started, its name, and the words after it."""
    if not program:
        return "nothing", "", ()
    name = os.path.basename(program[0])
    if not _PYTHON.fullmatch(name):
        return "program", name, program[1:]
    return _by_python(program[1:])


def _by_python(words: tuple[str, ...]) -> tuple[str, str, tuple[str, ...]]:
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if not word.startswith("-") or word == "-":
            return "program", os.path.basename(word), words[index:]
        if word == "--":
            rest = words[index:]
            return ("program", os.path.basename(rest[0]), rest[1:]) if rest else ("nothing", "", ())
        ends, value, eaten = _python_option(word, words[index:])
        index += eaten
        if ends:
            return ("module", value, words[index:]) if ends == "m" else ("nothing", "", ())
    return "nothing", "", ()


def _python_option(word: str, rest: tuple[str, ...]) -> tuple[str, str, int]:
    """Read one word of options, a cluster such as -uBm perhaps: the letter that ends them, its value, words eaten."""
    if word.startswith("--"):
        return "", "", int(word in _PYTHON_LONG_VALUED)
    for position, letter in enumerate(word[1:], start=2):
        joined = word[position:]
        if letter in ("m", "c"):
            return letter, joined or (rest[0] if rest else ""), int(not joined)
        if letter in _PYTHON_VALUED:
            return "", "", int(not joined)
    return "", "", 0
