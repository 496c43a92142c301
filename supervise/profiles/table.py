"""Typed, strict access to one table of a profile file: every complaint names file, key and what is allowed."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from supervise.profiles.errors import ProfileError

_FLAG = re.compile(r"-[A-Za-z]\w*|--[A-Za-z0-9][A-Za-z0-9-]*", re.ASCII)


class Table:
    """A table whose keys are taken one by one; `done` refuses what nobody took.

    Args:
        file: named in errors.
        data: the table as tomllib gave it.
        where: its dotted path, empty at the top.
    """

    def __init__(self, file: str, data: Mapping[str, Any], where: str = "") -> None:
        self._file = file
        self._data = dict(data)
        self._where = where
        self._taken: list[str] = []

    @classmethod
    def parse(cls, data: bytes, file: str) -> Table:
        """The top table of a TOML document.

        Raises:
            ProfileError: it is none.
        """
        try:
            return cls(file, tomllib.loads(data.decode()))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ProfileError(file, "", f"is not TOML: {error}", "a TOML document in UTF-8") from error
        except RecursionError:
            raise ProfileError(file, "", "is not TOML: nested too deeply", "a TOML document in UTF-8") from None

    def error(self, key: str, problem: str, allowed: str) -> ProfileError:
        """Build the complaint about one key of this table."""
        return ProfileError(self._file, ".".join(part for part in (self._where, key) if part), problem, allowed)

    def present(self) -> tuple[str, ...]:
        """All keys that are present, in their order."""
        return tuple(self._data)

    def done(self) -> None:
        """Refuse any key that was not asked for."""
        for key in self._data:
            if key not in self._taken:
                raise self.error(key, "is not a known key", ", ".join(self._taken))

    def text(self, key: str) -> str:
        """Take a required, non-empty string."""
        value = self.maybe_text(key)
        if not value:
            raise self.error(key, "is empty" if value == "" else "is missing", "a non-empty string")
        return value

    def maybe_text(self, key: str) -> str | None:
        """Take a string, None if absent."""
        value = self._take(key)
        if value is not None and not isinstance(value, str):
            raise self.error(key, f"is {_kind(value)}", "a string")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Take a list of strings, empty if absent."""
        value = self._list(key, "a list of strings")
        for index, item in enumerate(value):
            if not isinstance(item, str):
                raise self.error(f"{key}[{index}]", f"is {_kind(item)}", "a string")
        return tuple(value)

    def flags(self, key: str) -> tuple[str, ...]:
        """Take a list of flags spelled with dashes only."""
        return self._flags(key, self.texts(key))

    def flag_text(self, key: str) -> frozenset[str]:
        """Take flags separated by blanks, none if absent: tomllib reads one long string much faster than many."""
        return frozenset(self._flags(key, (self.maybe_text(key) or "").split()))

    def truth(self, key: str) -> bool:
        """Take a boolean, False if absent."""
        value = self._take(key)
        if value is not None and not isinstance(value, bool):
            raise self.error(key, f"is {_kind(value)}", "true or false")
        return bool(value)

    def count(self, key: str) -> int | None:
        """Take a whole number >= 0, None if absent."""
        value = self._take(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            raise self.error(key, f"is {value!r}", "a whole number of 0 or more")
        return value

    def seconds(self, key: str) -> float:
        """Take a required duration in seconds."""
        value = self._take(key)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 86400:
            problem = "is missing" if value is None else f"is {value!r}"
            raise self.error(key, problem, "seconds, 0 to 86400")
        return float(value)

    def choice(self, key: str, allowed: Iterable[str]) -> str | None:
        """Take one of several words, None if absent."""
        value = self.maybe_text(key)
        words = tuple(allowed)
        if value is not None and value not in words:
            raise self.error(key, f"is {value!r}", ", ".join(words))
        return value

    def pattern(self, key: str, groups: Iterable[str] = ()) -> re.Pattern[str]:
        """Take a required regular expression that has these named groups."""
        return self._compile(key, self.text(key), groups)

    def patterns(self, key: str, groups: Iterable[str] = ()) -> tuple[re.Pattern[str], ...]:
        """Take a list of regular expressions that have these named groups, empty if absent."""
        needed = tuple(groups)
        return tuple(self._compile(f"{key}[{n}]", text, needed) for n, text in enumerate(self.texts(key)))

    def table(self, key: str) -> Table:
        """Take a table, an empty one if absent."""
        value = self._take(key)
        if value is not None and not isinstance(value, dict):
            raise self.error(key, f"is {_kind(value)}", "a table")
        return Table(self._file, value or {}, ".".join(part for part in (self._where, key) if part))

    def tables(self, key: str) -> tuple[Table, ...]:
        """Take a list of tables, empty if absent."""
        found = []
        for index, item in enumerate(self._list(key, "a list of tables")):
            where = ".".join(part for part in (self._where, f"{key}[{index}]") if part)
            if not isinstance(item, dict):
                raise ProfileError(self._file, where, f"is {_kind(item)}", "a table")
            found.append(Table(self._file, item, where))
        return tuple(found)

    def _take(self, key: str) -> Any:
        self._taken.append(key)
        return self._data.get(key)

    def _list(self, key: str, allowed: str) -> list[Any]:
        value = self._take(key)
        if value is not None and not isinstance(value, list):
            raise self.error(key, f"is {_kind(value)}", allowed)
        return value or []

    def _flags(self, key: str, found: Sequence[str]) -> tuple[str, ...]:
        for index, flag in enumerate(found):
            if not _FLAG.fullmatch(flag):
                raise self.error(f"{key}[{index}]", f"is {flag!r}", 'a flag spelled with dashes, such as "--tp-size"')
        return tuple(found)

    def _compile(self, key: str, text: str, groups: Iterable[str]) -> re.Pattern[str]:
        try:
            pattern = re.compile(text)
        except re.error as error:
            raise self.error(key, f"is no regular expression: {error}", "a Python regular expression") from error
        missing = [group for group in groups if group not in pattern.groupindex]
        if missing:
            raise self.error(key, f"lacks the group {missing[0]!r}", f"a pattern with (?P<{missing[0]}>…)")
        return pattern


def _kind(value: object) -> str:
    names = {bool: "a boolean", str: "a string", list: "a list", dict: "a table", int: "a number", float: "a number"}
    return names.get(type(value), "a date or time")
