"""What is checked of a launch before anything is touched."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How a check came out. A refusal is certain: the engine itself would fail. Everything else is a warning."""

    OK = "ok"
    WARNING = "warning"
    REFUSAL = "refusal"


@dataclass(frozen=True, slots=True)
class Check:
    """One check: its name (for --no-preflight), how it came out, the fact, and what to do about it."""

    name: str
    level: Level
    text: str
    fix: str = ""
