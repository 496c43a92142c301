"""Whom a run tells of itself: a metrics endpoint, a file for node_exporter, commands of the user's."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Occasion(StrEnum):
    """What a hook may be run on."""

    LAUNCH = "launch"
    READY = "ready"
    STALL = "stall"
    HANG = "hang"
    CRASH = "crash"
    STOP = "stop"
    RELAUNCH = "relaunch"
    GIVEUP = "giveup"
    ANY = "any"


@dataclass(frozen=True, slots=True)
class Address:
    """Where metrics are served: a numeric IP address and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        """As it stands in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Hook:
    """A command of the user's, for the shell, and what it is run on."""

    on: Occasion
    command: str


@dataclass(frozen=True, slots=True)
class Telling:
    """Whom a run tells of itself; without any of it, nothing of this is imported.

    `textfile` is the absolute path of a file for node_exporter, `hook_timeout_s` how long each hook may take.
    """

    metrics: Address | None = None
    textfile: str | None = None
    hooks: tuple[Hook, ...] = ()
    hook_timeout_s: float = 30.0

    @property
    def measured(self) -> bool:
        """Whether anybody wants metrics."""
        return self.metrics is not None or self.textfile is not None


class TellingError(Exception):
    """What was asked for cannot be had: the exit status, and one clear line."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
