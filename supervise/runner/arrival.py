"""The flags of a launch: those that were given, and those that the engine runs with, behind whatever wrapper."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from supervise.diagnosis import effective, printed
from supervise.diagnosis.effective import Arrival, Effective, Fate
from supervise.host import files
from supervise.profiles import config, match
from supervise.runner import wrapping
from supervise.text import home, printable, redact

if TYPE_CHECKING:
    from supervise.model.process import Process
    from supervise.profiles.arguments import Arguments
    from supervise.runner.plan import Plan

# Settings are printed before anything is loaded.
_HEAD = 1 << 20
_LARGEST_YAML = 16 * 1024 * 1024


class Flags:
    """The flags that were given, and those that arrived.

    Args:
        plan: what is run.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._profile = plan.profile
        self._known: Mapping[str, Any] = plan.profiles
        self._guessed = False
        self._unwanted: frozenset[str] = frozenset()
        self._argvs: tuple[Arguments, ...] = ()
        self._settings: tuple[Mapping[str, object], ...] = ()
        self._given: Arguments | None = None

    @property
    def settled(self) -> bool:
        """Whether nothing more is to be expected."""
        return bool(self._settings)

    def look(self, members: Iterable[Process], log: str | None) -> None:
        """Read what there is now: command lines change (exec), and renamed processes have none any more."""
        found = [arguments for member in members if (arguments := self._engine(member)) is not None]
        self._argvs = tuple(found) or self._argvs
        if log is not None and self._profile.settings is not None:
            with contextlib.suppress(OSError):
                self._settings = tuple(self._printed(_head(log))) or self._settings

    def altered(self) -> list[str]:
        """Sentences about what did not arrive as it was given."""
        return [self._text(each) for each in effective.told(self._arrivals())]

    def record(self) -> dict[str, Any]:
        """For outcome.json."""
        arrivals = self._arrivals()
        altered = self.altered()
        known = any(each.fate is not Fate.UNKNOWN for each in arrivals)
        return {"as_given": False if altered else True if known else None, "altered": altered}

    def _arrivals(self) -> tuple[Arrival, ...]:
        if self._given is None:
            self._given = self._read_given()
        exact = self._profile.settings is not None and self._profile.settings.exact
        facts = Effective(self._argvs, self._settings, exact=exact, guessed=self._guessed, unwanted=self._unwanted)
        return effective.arrivals(self._given, facts, self._profile)

    def _read_given(self) -> Arguments:
        matched = match.match(self._plan.need.argv, self._known)
        if matched.profile.name != self._profile.name:
            matched = matched.with_profile(self._known, self._profile.name)
        self._guessed = matched.guessed
        given, need = config.resolve(matched.arguments, self._profile, _reader("."))[0], self._plan.need
        if self._guessed:
            self._unwanted = wrapping.unwanted(need.program, self._plan.env, self._profile, given.flags)
        return given

    def _engine(self, member: Process) -> Arguments | None:
        """The arguments of a process that is the engine itself, not what starts it."""
        if not member.argv:
            return None
        matched = match.match(member.argv, self._known)
        if matched.profile.name != self._profile.name or matched.program != matched.argv:
            return None
        return config.resolve(matched.arguments, self._profile, _reader(f"/proc/{member.pid}/cwd"))[0]

    def _printed(self, text: str) -> Iterable[Mapping[str, object]]:
        rule = self._profile.settings
        for found in rule.line.finditer(text) if rule else ():
            end = text.find("\n", found.end())
            # A line that is not finished is read when it is.
            if end >= 0 and (said := printed.mapping(text[found.end() : end])) is not None:
                yield said

    def _text(self, arrival: Arrival) -> str:
        became = (
            f"{_words(arrival.flag, arrival.arrived)} arrived" if arrival.fate is Fate.ALTERED else "did not arrive"
        )
        source = home(arrival.file) if arrival.file else f"by {wrapping.called(self._plan.need.program)}"
        return printable(f"{arrival.flag}: {_words(arrival.flag, arrival.given)} given, {became} ({source})")


def _words(flag: str, words: tuple[str, ...]) -> str:
    """The words of a flag without secrets; a switch has none."""
    return " ".join(redact([flag, *words])[1:]) if words else "as a switch"


def _reader(directory: str) -> Callable[[str], str]:
    return lambda path: files.read_regular(os.path.join(directory, path), _LARGEST_YAML).decode()


def _head(path: str) -> str:
    """The beginning of a log, whatever the server has put into it.

    Raises:
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        return file.read(_HEAD).decode("utf-8", "replace")
