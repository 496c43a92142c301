"""Searches a log for many literals at once, at the speed of grep."""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from supervise.diagnosis import episodes, facts, styles, tracebacks
from supervise.diagnosis.prefilter import required_literals
from supervise.model.diagnosis import Role, SignatureSet
from supervise.model.profile import Profile

OPENERS = (*tracebacks.OPENERS, *styles.LINKS)
"""What begins a report of several lines, or belongs to one."""

# What any error at all is printed with. As noise they are one thing: whoever is tired of one is tired of all.
_COMMON = frozenset({*tracebacks.OPENERS[:2], *OPENERS[-2:], "Error: ", " Error ", "error: ", " error "})
_ERRORS = "errors"
# What means something at the beginning of a record only, and stands in many a plain line ("cache usage: 0.3%").
_BEGINNING = rb"(?:\n|[^a-z \n]|[^a-z\n] )"
_AT_BEGINNING = {"usage: ": _BEGINNING + rb"usage: ", "+ ": _BEGINNING + rb"\++ (?:exec |vllm|sglang|python|/|\w+=)"}
_DEATHS = (Role.CASCADE, Role.CONFIRMATION)
_MEMORY = 32 * 1024 * 1024
_VARIANTS = 4


class Hit(NamedTuple):
    """Where in its line a hit ends, what was found, and whether that says that a process is dying."""

    end: int
    name: str
    grave: bool


class Scanner:
    """Searches for many literals at once, at the speed of grep.

    Args:
        literals: what makes a line worth reading.
        openers: what makes the lines around it worth reading as well.
        grave: those with which a process announces its death, or another's.

    Raises:
        ImportError: google-re2 cannot be loaded.
    """

    def __init__(
        self, literals: Iterable[str], openers: Iterable[str] = OPENERS, grave: frozenset[str] = frozenset()
    ) -> None:
        self._openers = frozenset(openers)
        self._literals = {*literals, *self._openers}
        self._grave = grave
        self._names = {each: name_of(literal) for literal in self._literals for each in _spellings(literal)}
        self._find = _compile(self._literals)
        self._find_opener = _compile(self._openers)
        self._variants: OrderedDict[frozenset[str], Scanner] = OrderedDict()

    @classmethod
    def of(cls, signatures: SignatureSet, profiles: Iterable[Profile], extra: Iterable[str] = ()) -> Scanner | None:
        """Make one that finds all that progress, diagnosis, facts and episodes look for.

        Traps are not looked for: what they hide is found by what they hide it from. Neither are progress bars: of a
        flood of them the last of each chunk are enough.

        Args:
            signatures: what the matcher knows.
            profiles: whose phases and ready lines the tracker looks for.
            extra: literals that somebody else looks for.

        Returns:
            The scanner; None if nothing can be passed over: a pattern has no literal, or google-re2 cannot be loaded.
        """
        literals = {*extra, *facts.LITERALS, *episodes.LITERALS}
        literals.update(literal for each in signatures.signatures for literal in each.literals)
        for pattern in _patterns(profiles):
            required = required_literals(pattern)
            if required is None:
                return None
            literals.update(required)
        deaths = (each for each in signatures.signatures if each.fatal and each.role in _DEATHS)
        try:
            return cls(literals, grave=frozenset(literal for each in deaths for literal in each.literals))
        except ImportError:
            return None

    def without(self, names: frozenset[str]) -> Scanner:
        """The same, blind to some of what it looks for.

        Args:
            names: what is not to be found, as hits name it.
        """
        if not names:
            return self
        variant = self._variants.get(names)
        if variant is None:
            literals = {each for each in self._literals if name_of(each) not in names}
            variant = Scanner(literals, self._openers & literals, self._grave)
            self._variants[names] = variant
            if len(self._variants) > _VARIANTS:
                self._variants.popitem(last=False)
        self._variants.move_to_end(names)
        return variant

    def next(self, data: bytes, start: int, end: int | None = None) -> Hit | None:
        """Find the next hit.

        Args:
            data: lines; the byte before `start` is an LF.
            start: where to begin.
            end: where to stop; None for the end of the data.
        """
        found = self._find(data, start - 1, len(data) if end is None else end) if self._find else None
        if found is None:
            return None
        name = self._names.get(found[0]) or next(each for each in _AT_BEGINNING if each.encode() in found[0])
        return Hit(int(found.end()) - 1, name, name in self._grave)

    def opens(self, data: bytes, start: int, end: int) -> bool:
        """Whether a report of several lines begins between two places; the byte before `start` is an LF."""
        return self._find_opener is not None and self._find_opener(data, start - 1, end) is not None


def name_of(literal: str) -> str:
    """What a hit of a literal is called: it, or what it has in common with others."""
    return _ERRORS if literal in _COMMON else literal


def _patterns(profiles: Iterable[Profile]) -> Iterator[re.Pattern[str]]:
    for profile in profiles:
        yield from (rule.begins for rule in profile.phases)
        yield from profile.ready.lines


def _compile(literals: Iterable[str]) -> Any:
    import re2

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.never_capture = True
    options.max_mem = _MEMORY
    wanted = set(literals)
    spelled = {re.escape(each) for literal in wanted - _AT_BEGINNING.keys() for each in _spellings(literal)}
    spelled.update(_AT_BEGINNING[each] for each in wanted & _AT_BEGINNING.keys())
    return re2.compile(b"|".join(sorted(spelled)), options).search if spelled else None


def _spellings(literal: str) -> set[bytes]:
    """As it is printed, and as it stands in a line of JSON: quotes are escaped, by Go three more characters as well."""
    quoted = json.dumps(literal, ensure_ascii=False)[1:-1]
    go = quoted.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026")
    return {each.encode() for each in (literal, quoted, go)}
