"""Values of a sweep that nobody may see: neither on a screen nor in a file, and still told apart."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from supervise.model.sweep import Axis, Point, Result
from supervise.text import HIDDEN, redact, without_passwords

_DIGITS = 16
# What is shorter stands in many a word.
_LEAST = 4


class Secrets:
    """Hides what the names of flags and variables say is a secret, and passwords in URLs.

    Args:
        swept: what is varied.
        run: its name; the digests of another run are others.
    """

    def __init__(self, swept: Sequence[Axis], run: str) -> None:
        self._shown: list[dict[str, str]] = []
        self._kept: list[dict[str, str]] = []
        for axis in swept:
            hidden = [value for value in axis.values if _hides(axis, value)]
            self._shown.append({value: f"{HIDDEN}{number}" for number, value in enumerate(hidden, 1)})
            self._kept.append({value: f"{HIDDEN}{_digest(run, axis.name, value)}" for value in hidden})

    def shown(self, point: Point) -> Point:
        """As people see it: numbers tell them apart."""
        return _mapped(point, self._shown)

    def kept(self, result: Result) -> Result:
        """As a file has it: digests do."""
        return result._replace(values=_mapped(result.values, self._kept))

    def known(self, results: Iterable[Result], points: Sequence[Point]) -> list[Result]:
        """Results from a file, of those points that are tried now."""
        values = {_mapped(point, self._kept): point for point in points}
        return [result._replace(values=values[result.values]) for result in results if result.values in values]

    def without(self, result: Result) -> Result:
        """What an engine has repeated of them is hidden as well."""
        words = {value: shown for each in self._shown for value, shown in each.items() if len(value) >= _LEAST}

        def hidden(text: str) -> str:
            for value in sorted(words, key=len, reverse=True):
                text = text.replace(value, words[value])
            return text

        told: dict[str, Any] = {"why": hidden(result.why), "advice": tuple(map(hidden, result.advice))}
        return result._replace(**told, cause=None if result.cause is None else hidden(result.cause))


def _mapped(point: Point, words: Sequence[dict[str, str]]) -> Point:
    return tuple(known.get(value, value) for value, known in zip(point, words, strict=True))


def _hides(axis: Axis, value: str) -> bool:
    """Whether the name speaks of a secret: with dashes for a flag, without for a variable."""
    return redact([f"{axis.name}={value}"]) != [f"{axis.name}={value}"] or without_passwords(value) != value


def _digest(run: str, name: str, value: str) -> str:
    told = "\0".join((run, name, value)).encode("utf-8", "surrogateescape")
    return hashlib.sha256(told).hexdigest()[:_DIGITS]
