"""The words of prefixes: a rule that takes one piece off the head of a line, and what the pieces say together."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

LEVELS = "DEBUG|INFO|WARNING|ERROR|CRITICAL"
"""Python's names, as the engines print them."""

WIDE_LEVELS = "TRACE|DEBUG|INFO|NOTICE|SUCCESS|WARN(?:ING)?|ERR(?:OR)?|FATAL|CRIT(?:ICAL)?|PANIC"
"""Everybody's names."""

CLOCK = r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
"""A time of day."""

MOMENT = rf"(?:\d{{4}}[-/]\d\d[-/]\d\d|\d\d/\d\d/\d{{4}})[ T]{CLOCK}(?:Z| ?[+-]\d\d:?\d\d| UTC)?"
"""A date with a time of day, in the ways that loggers write it."""

OUTCRY = (
    r"Traceback \(|(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Refused|Timeout)(?::|\Z)|"
    r"The above exception was|During handling of the above|Process [\w.:-]+:\Z|Fatal Python error|terminate called|"
    r"[\w.-]+(?: [\w.-]+){0,3}: error: |usage: |FAILED: |\*\*\* (?:SIG|Aborted)|!!!!!!! Segfault|Segmentation fault|"
    r"(?:Value|Assertion) error, "
)
"""How a dying program's lines begin, be they Python's, a compiler's or those of native code."""

_PLAIN = {name: name for name in (*LEVELS.split("|"), "TRACE")}
_SAME = {
    "WARN": "WARNING", "ERR": "ERROR", "FATAL": "CRITICAL", "CRIT": "CRITICAL", "PANIC": "CRITICAL",
    "ALERT": "CRITICAL", "EMERGENCY": "CRITICAL", "SEVERE": "ERROR", "NOTICE": "INFO", "SUCCESS": "INFO",
    "VERBOSE": "DEBUG", "D": "DEBUG", "V": "DEBUG", "I": "INFO", "W": "WARNING", "E": "ERROR", "F": "CRITICAL",
    "C": "CRITICAL",
}  # fmt: skip
_LEVEL_NAMES = _PLAIN | _SAME

# `Worker_DP0_TP3`, `DP0 TP3 EP3`: the rank within tensor parallelism; a rank of the whole job cannot be told from it.
_TENSOR = re.compile(r"(?<![A-Za-z])TP(\d{1,6})(?!\d)")
_PIPELINE = re.compile(r"(?<![A-Za-z])PP(\d{1,6})(?!\d)")
_COUNTED = re.compile(r"(?:rank[=_]?|VllmWorker-|gpu=)(\d{1,6})(?!\d)")


class Kind(Enum):
    """What may follow a piece.

    An ENVELOPE says nothing about the text and may wrap anything. A RELAY is somebody's logger, perhaps one that prints
    what an engine said. A HEAD is an engine's own with another small piece after it. After an END the text begins.
    """

    ENVELOPE = "envelope"
    RELAY = "relay"
    HEAD = "head"
    END = "end"


@dataclass(frozen=True, slots=True)
class Rule:
    """One piece of a prefix.

    The pattern's groups are named after the fields of `Head`. `literal` is in every line that it matches, empty for
    none: a cheap look before the pattern is tried. `process` is who writes such lines, where the line does not say.
    """

    kind: Kind
    pattern: re.Pattern[str]
    literal: str = ""
    process: str | None = None


@dataclass(slots=True)
class Head:
    """What the pieces of a prefix have said so far; the fields are those of `Line`."""

    process: str | None = None
    pid: int | None = None
    level: str | None = None
    source: str | None = None
    record: bool = False
    rank: int | None = None
    time: str | None = None
    relayed: bool = False

    def take(self, rule: Rule, said: Mapping[str, str | None]) -> None:
        """Add one piece. What stands further inside wins, but for the process: a rank does not rename who is named.

        Args:
            rule: the piece's rule.
            said: the groups that its pattern captured.
        """
        if rule.kind is not Kind.ENVELOPE:
            inside = rule.kind is Kind.HEAD and self.relayed
            self.record = True
            self.relayed = rule.kind is Kind.RELAY
            self.source = said.get("source") or said.get("place") or (self.source if inside else None)
            # An engine's own prefix without a level: who passes it on calls everything information.
            self.level = None if inside else self.level
        if name := (said.get("process") or rule.process):
            self._named(name.strip(), said.get("pid"), said.get("ranks"))
        if (rank := said.get("rank")) is not None:
            self.rank = int(rank)
        self.level = level_of(said.get("level")) or self.level
        self.time = said.get("time") or self.time

    def _named(self, name: str, pid: str | None, ranks: str | None) -> None:
        if pid is not None:
            self.process, self.pid = name, int(pid)
        elif self.process is None:
            self.process = name
        rank = rank_in(ranks or name)
        self.rank = self.rank if rank is None else rank


def level_of(name: str | None) -> str | None:
    """Give a level the name that Python has for it.

    Args:
        name: as it was printed, in any case; a letter stands for a word.

    Returns:
        One of TRACE, DEBUG, INFO, WARNING, ERROR, CRITICAL; None for none of them.
    """
    return _LEVEL_NAMES.get(name.upper()) if name else None


@lru_cache(maxsize=1024)
def rank_in(process: str) -> int | None:
    """Read a rank from the name of a process.

    Args:
        process: a name as it stands in prefixes: "Worker_DP0_TP3", "DP0 TP1", "rank0", "VllmWorker rank=2".

    Returns:
        The rank within tensor parallelism where it is named, else the only other one that counts workers. None where
        there is none: a data-parallel number counts engines.
    """
    found = _TENSOR.search(process) or _PIPELINE.search(process) or _COUNTED.search(process)
    return int(found[1]) if found else None
