"""An engine's own words read as its parser reads them, as far as the profile knows the flags."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from supervise.model.profile import Profile

_NEGATIVE = re.compile(r"-\d+(?:\.\d*)?|-\.\d+")
_ABBREVIATION = 3


@dataclass(slots=True)
class Arguments:
    """What was given: the words of every flag, last mention wins, and the words that belong to no flag.

    Flags are spelled canonically, with dashes and abbreviations written out, in the order of their last mention.
    `files` holds the file of each flag that comes from one.
    """

    flags: dict[str, tuple[str, ...]] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)

    def over(self, lower: Arguments, file: str) -> Arguments:
        """These arguments on top of those from a file."""
        inherited = {flag: words for flag, words in lower.flags.items() if flag not in self.flags}
        return Arguments(inherited | self.flags, self.words, dict.fromkeys(inherited, file))


def read(words: Sequence[str], profile: Profile) -> Arguments:
    """Read words in the manner of argparse: last one wins, `=` or the next word, unambiguous abbreviations.

    Args:
        words: the engine's arguments, after its form.
        profile: knows which flags take how many words; a flag it does not know takes one if one follows.

    Returns:
        The arguments; never raises, what the engine itself would refuse is read as far as it goes.
    """
    return _Reader(profile).read(words)


def from_yaml(data: Mapping[str, Any]) -> list[str]:
    """Write a parsed YAML configuration as the words that the engines make of it.

    Args:
        data: flag names without dashes; true stands for a switch, a list for several words.

    Returns:
        Words to go before those of the command line, which therefore win.
    """
    return [word for key, value in data.items() for word in _yaml_words(f"--{key}", value)]


def _yaml_words(flag: str, value: object) -> list[str]:
    if isinstance(value, bool):
        return [flag] if value else []
    if isinstance(value, list):
        return [flag, *map(str, value)] if value else []
    return [] if value is None or isinstance(value, dict) else [f"{flag}={value}"]


class _Reader:
    """Reads one command line; separate from the profile because it is made anew for every one."""

    def __init__(self, profile: Profile) -> None:
        self._switches = profile.switches
        self._lists = profile.lists
        self._owner = {flag: name for name, spec in profile.values.items() for flag in spec.flags}
        self._known = (*self._owner, *profile.switches, *profile.lists, *profile.config_flags)

    def read(self, words: Sequence[str]) -> Arguments:
        found = Arguments()
        rest = _Peekable(words)
        for word in rest:
            if word == "--":
                found.words += rest.left()
            elif is_flag(word):
                self._flag(word, rest, found)
            else:
                found.words.append(word)
        return found

    def _flag(self, word: str, rest: _Peekable, found: Arguments) -> None:
        name, joined, value = self._name(word)
        found.flags.pop(name, None)
        if joined:
            found.flags[name] = (value,)
        elif name in self._switches or name.startswith("--no-"):
            found.flags[name] = ()
        else:
            found.flags[name] = tuple(rest.values(None if name in self._lists else 1))

    def _name(self, word: str) -> tuple[str, str, str]:
        name, joined, value = word.partition("=")
        if word.startswith("--"):
            return self._written_out(name.replace("_", "-")), joined, value
        if joined or name in self._known:
            return name, joined, value
        # A one-letter flag may have its value joined to it: -n2, and vLLM's -O3.
        short, rest = name[:2], name[2:]
        return (short, "=", rest) if rest and (short in self._owner or rest.isdecimal()) else (name, "", "")

    def _written_out(self, name: str) -> str:
        if name in self._known or len(name) < _ABBREVIATION + 2:
            return name
        candidates = [flag for flag in self._known if flag.startswith(name)]
        meant = {self._owner.get(flag, flag) for flag in candidates}
        return candidates[0] if len(meant) == 1 else name


class _Peekable(Iterator[str]):
    """Words that can be taken one by one, or as the values of a flag."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = list(words)
        self._next = 0

    def __next__(self) -> str:
        if self._next >= len(self._words):
            raise StopIteration
        self._next += 1
        return self._words[self._next - 1]

    def left(self) -> list[str]:
        """Take all the words that are left."""
        taken = self._words[self._next :]
        self._next = len(self._words)
        return taken

    def values(self, limit: int | None) -> list[str]:
        """Take the next words that are no flags, at most `limit` of them."""
        taken: list[str] = []
        while self._next < len(self._words) and not is_flag(self._words[self._next]) and len(taken) != limit:
            taken.append(next(self))
        return taken


def is_flag(word: str) -> bool:
    """Whether argparse takes a word for a flag: a lone dash, a negative number and what has blanks are values."""
    if not word.startswith("-") or word == "-" or _NEGATIVE.fullmatch(word):
        return False
    return " " not in word or "=" in word
