"""The values of a profile, looked up in arguments and environment; what cannot be understood becomes a note."""

from __future__ import annotations

from collections.abc import Mapping

from supervise.model.profile import FlagSpec, Profile
from supervise.profiles.arguments import Arguments

_NOWHERE = FlagSpec()


class Values:
    """Looks values up by name.

    Args:
        profile: says where each comes from.
        arguments: what was given.
        env: the environment that the engine will see.
    """

    def __init__(self, profile: Profile, arguments: Arguments, env: Mapping[str, str]) -> None:
        self.notes: list[str] = []
        self._specs = profile.values
        self._arguments = arguments
        self._env = env

    def given(self, name: str) -> bool:
        """Whether a flag of this value was given."""
        return self._flag(self._spec(name)) is not None

    def all(self, name: str) -> tuple[str, ...]:
        """All words of a value, empty if it has none."""
        spec = self._spec(name)
        flag = self._flag(spec)
        if flag is not None and flag not in self._arguments.files:
            return self._arguments.flags[flag]
        if spec.positional is not None and spec.positional < len(self._arguments.words):
            return (self._arguments.words[spec.positional],)
        return self._elsewhere(spec) if flag is None else self._arguments.flags[flag]

    def text(self, name: str) -> str | None:
        """The value, None if it has none; a flag without its value is noted."""
        words = self.all(name)
        if not words and self.given(name):
            self.note(f"{self.source(name)} has no value")
        return words[0] if words else None

    def number(self, name: str) -> int | None:
        """The value as a whole number, None if it is none; then there is a note."""
        text = self.text(name)
        if text is None:
            return None
        try:
            return int(text)
        except ValueError:
            self.note(f"{self.source(name)} {text!r} is not a number")
            return None

    def fraction(self, name: str) -> float | None:
        """The value as a fraction of 1, None if it is none; then there is a note."""
        text = self.text(name)
        if text is None:
            return None
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if 0.0 <= value <= 1.0:
            return value
        self.note(f"{self.source(name)} {text!r} is not a fraction of 1")
        return None

    def source(self, name: str) -> str:
        """Where the value was found: a flag, with its file if it has one, an environment variable, or "default"."""
        spec = self._spec(name)
        flag = self._flag(spec)
        if flag is not None:
            file = self._arguments.files.get(flag)
            return flag if file is None else f"{flag} in {file}"
        return self._variable(spec) or ("default" if spec.fallback is None else self.source(spec.fallback))

    def variable(self, name: str) -> str | None:
        """The content of the value's environment variable, whatever the flags say."""
        found = self._variable(self._spec(name))
        return None if found is None else self._env[found]

    def note(self, text: str) -> None:
        """Keep a sentence about what could not be derived, once."""
        if text not in self.notes:
            self.notes.append(text)

    def _spec(self, name: str) -> FlagSpec:
        return self._specs.get(name, _NOWHERE)

    def _flag(self, spec: FlagSpec) -> str | None:
        """The flag of this value that was mentioned last."""
        return next((flag for flag in reversed(self._arguments.flags) if flag in spec.flags), None)

    def _variable(self, spec: FlagSpec) -> str | None:
        return next((variable for variable in spec.env if variable in self._env), None)

    def _elsewhere(self, spec: FlagSpec) -> tuple[str, ...]:
        variable = self._variable(spec)
        if variable is not None:
            return (self._env[variable],)
        if spec.fallback is not None:
            return self.all(spec.fallback)
        return () if spec.default is None else (spec.default,)
