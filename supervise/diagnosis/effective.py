"""Whether what was given on the command line is what the engine runs with: its own argv, and the settings in its log.

Only what is certain counts: a value that cannot be compared (an object, a secret, `auto`) has neither arrived nor not.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from supervise.model.profile import Profile
from supervise.profiles.arguments import Arguments
from supervise.text import HIDDEN

UNKNOWN = object()
"""A value that was printed in a form that is none of Python's literals."""

# vLLM: 8k is 8000, 8K is 8192 (vllm/utils/argparse_utils.py, human_readable_int).
_SCALED = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4}
_TRUE, _FALSE = frozenset({"true", "1", "yes", "on"}), frozenset({"false", "0", "no", "off"})
# The flags of this value are no names of one another.
_SEVERAL = "tls"


class Fate(StrEnum):
    """What became of a flag."""

    ARRIVED = "arrived"
    ALTERED = "altered"
    LOST = "lost"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Arrival:
    """A flag and what became of it: the words that were given and that arrived; `file` is where the latter are from."""

    flag: str
    fate: Fate
    given: tuple[str, ...] = ()
    arrived: tuple[str, ...] = ()
    file: str | None = None


@dataclass(frozen=True, slots=True)
class Effective:
    """What is known of an engine that runs.

    `argvs` are the arguments of each of its processes that still has a command line, its YAML included; `settings` each
    mapping that it has printed. `exact`: these are the values as it has read them; else it may have changed them
    itself. `guessed`: a wrapper of the user's own takes flags that are not the engine's, but not those in `unwanted`.
    """

    argvs: tuple[Arguments, ...] = ()
    settings: tuple[Mapping[str, object], ...] = ()
    exact: bool = False
    guessed: bool = False
    unwanted: frozenset[str] = frozenset()


def arrivals(given: Arguments, effective: Effective, profile: Profile) -> tuple[Arrival, ...]:
    """Tell of every flag what became of it.

    Args:
        given: the user's flags, those of the engine's YAML included.
        effective: what the engine runs with.
        profile: knows which flags are names of the same value.
    """
    names = _Names(profile)
    argvs = [_Flags(each, names) for each in effective.argvs]
    wanted = _Flags(given, names)
    return tuple(_arrival(name, wanted, argvs, effective, names) for name in wanted.words)


class _Names:
    """The names of flags: each value has one, whatever it is called on a command line."""

    def __init__(self, profile: Profile) -> None:
        self._groups = {
            flag: (flag,) if name == _SEVERAL else spec.flags
            for name, spec in profile.values.items()
            for flag in spec.flags
        }
        self._defaults = {flag: spec.default for spec in profile.values.values() for flag in spec.flags}
        self._places = {spec.flags[0]: spec.positional for spec in profile.values.values() if spec.flags}
        self.known = frozenset(map(self.of, (*self._groups, *profile.switches)))

    def of(self, flag: str) -> str:
        return self._groups.get(flag, (flag,))[0]

    def default(self, flag: str) -> str | None:
        return self._defaults.get(flag)

    def place(self, flag: str) -> int | None:
        """Which of the words without a flag has the same value."""
        return self._places.get(flag)

    def keys(self, flag: str) -> list[str]:
        """The names that the value may have among the settings: argparse makes them of long flags."""
        long = [each for each in self._groups.get(flag, (flag,)) if each.startswith("--")]
        return [each[2:].replace("-", "_") for each in long]


class _Flags:
    """Flags by name; `--no-x` is `--x` with the word false."""

    def __init__(self, arguments: Arguments, names: _Names) -> None:
        self.words: dict[str, tuple[str, ...]] = {}
        self.spelled: dict[str, str] = {}
        self.files: dict[str, str] = {}
        self.others = arguments.words
        for flag, words in arguments.flags.items():
            negative = flag.startswith("--no-") and not words
            name = names.of(f"--{flag[5:]}" if negative else flag)
            self.words.pop(name, None)
            self.words[name] = ("false",) if negative else words
            self.spelled[name] = flag
            if flag in arguments.files:
                self.files[name] = arguments.files[flag]
            else:
                self.files.pop(name, None)


def _arrival(name: str, wanted: _Flags, argvs: Sequence[_Flags], effective: Effective, names: _Names) -> Arrival:
    flag, words = wanted.spelled[name], wanted.words[name]
    carrying = [each for each in argvs if name in each.words]
    if any(same(words, each.words[name]) for each in carrying):
        return Arrival(flag, Fate.ARRIVED, words)
    if carrying:
        other = carrying[0]
        # Whether the word after a flag that the profile does not know is its value, nobody can tell.
        if name not in names.known and not (words and other.words[name]):
            return Arrival(flag, Fate.UNKNOWN, words)
        return Arrival(flag, Fate.ALTERED, words, other.words[name], other.files.get(name))
    told = [each[key] for each in effective.settings for key in names.keys(name) if key in each]
    verdicts = [agrees(words, value) for value in told]
    if True in verdicts:
        return Arrival(flag, Fate.ARRIVED, words)
    if effective.exact and verdicts and None not in verdicts:
        return Arrival(flag, Fate.ALTERED, words, (_shown(told[0]),))
    place = names.place(name)
    if place is not None:
        # A wrapper may make a word without a flag of it; of another one nobody knows whether it is some flag's value.
        there = any(same(words, each.others[place : place + 1]) for each in argvs)
        return Arrival(flag, Fate.ARRIVED if there else Fate.UNKNOWN, words)
    own = effective.guessed and flag not in effective.unwanted
    if argvs and not told and _missed(name, words, names, guessed=own):
        return Arrival(flag, Fate.LOST, words)
    return Arrival(flag, Fate.UNKNOWN, words)


def _missed(name: str, words: tuple[str, ...], names: _Names, *, guessed: bool) -> bool:
    """Whether a flag that no command line has should be there."""
    if guessed and name not in names.known:
        return False
    default = names.default(name)
    return default is None or not same(words, (default,))


def _shown(value: object) -> str:
    return value if isinstance(value, str) else repr(value)


def same(given: Sequence[str], other: Sequence[str]) -> bool:
    """Whether an engine's parser makes the same of both.

    Args:
        given: the words of a flag.
        other: those of the same flag elsewhere.
    """
    if tuple(given) == tuple(other):
        return True
    if not given or not other:
        # A switch, with or without its word.
        return (*given, *other)[0].lower() in _TRUE
    if len(given) != 1 or len(other) != 1:
        return ",".join(given) == ",".join(other)
    return _same_word(given[0], other[0])


def _same_word(one: str, two: str) -> bool:
    if _numbers(one) & _numbers(two):
        return True
    if {one.lower(), two.lower()} <= _TRUE or {one.lower(), two.lower()} <= _FALSE:
        return True
    loaded = _loaded(one)
    if loaded is not None and loaded == _loaded(two):
        return True
    return _same_path(one, two)


def _same_path(one: str, two: str) -> bool:
    """A wrapper may make a relative path absolute."""
    if "/" not in one + two and "." not in (one, two):
        return False
    first, second = posixpath.normpath(one), posixpath.normpath(two)
    absolute = first.startswith("/"), second.startswith("/")
    if first == second or absolute[0] == absolute[1]:
        return first == second
    long, short = (first, second) if absolute[0] else (second, first)
    return short in (".", "..") or short.startswith("../") or long.endswith(f"/{short}")


def agrees(words: Sequence[str], value: object) -> bool | None:
    """Whether a value that an engine has printed is what these words ask for.

    Args:
        words: of a flag; none for a switch.
        value: as it was printed.

    Returns:
        None if that cannot be told.
    """
    if value is None or value is UNKNOWN or value == HIDDEN:
        return None
    if isinstance(value, bool):
        return _agrees_bool(words, value)
    if isinstance(value, list | tuple):
        texts = [str(each) for each in value]
        return True if list(words) == texts or ",".join(words) == ",".join(texts) else None
    if len(words) != 1:
        return None
    if isinstance(value, int | float):
        numbers = _numbers(words[0])
        return float(value) in numbers if numbers else None
    if isinstance(value, str):
        return _agrees_text(words[0], value)
    return True if _loaded(words[0]) == value else None


def _agrees_bool(words: Sequence[str], value: bool) -> bool | None:
    word = words[0].lower() if words else "true"
    if word in _TRUE:
        return value
    return not value if word in _FALSE else None


def _agrees_text(word: str, value: str) -> bool | None:
    if word.lower() == value.lower() or _same_word(word, value):
        return True
    loaded = _loaded(word)
    # What is JSON may be written anew; a name with a slash may have become the path of what was found for it.
    doubtful = isinstance(loaded, dict | list) or "/" in word + value or not word
    return None if doubtful else False


def _numbers(word: str) -> set[float]:
    """What a word may mean as a number; nothing if it is none."""
    if scaled := _SCALED.fullmatch(word):
        power = _POWERS[scaled[2].lower()]
        return {float(scaled[1]) * base**power for base in (1000, 1024)}
    try:
        return {float(word)}
    except ValueError:
        return set()


def _loaded(word: str) -> object:
    try:
        return json.loads(word)
    except (ValueError, RecursionError):
        return None


def told(arrivals: Iterable[Arrival]) -> list[Arrival]:
    """Those of which it is certain that they are not what was given."""
    return [each for each in arrivals if each.fate in (Fate.ALTERED, Fate.LOST)]
