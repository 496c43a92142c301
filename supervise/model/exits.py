"""Exit statuses of supervise: one enum, each member with its meaning."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Status numbers of our own; a server's own code and 128+signal pass through where we know no better.

    The numbers above 89 keep clear of 0-2, sysexits (64-78), 125-165 and 255, so that
    `RestartPreventExitStatus=93 94 95` means what it says.
    """

    OK = 0
    USAGE = 2
    NOT_READY = 90
    ENDED_BY_ITSELF = 91
    HUNG = 92
    DETERMINISTIC = 93
    SLATE = 94
    SURVIVORS = 95
    GAVE_UP = 96
    INTERNAL = 125
    CANNOT_EXECUTE = 126
    NOT_FOUND = 127


MEANING: dict[int, str] = {
    Exit.OK: "",
    Exit.NOT_READY: "not ready in time",
    Exit.ENDED_BY_ITSELF: "ended by itself with 0",
    Exit.HUNG: "hung",
    Exit.DETERMINISTIC: "it would fail the same way again",
    Exit.SLATE: "the slate could not be made clean, nothing was launched",
    Exit.SURVIVORS: "something survived",
    Exit.GAVE_UP: "gave up after repeated failures",
    Exit.INTERNAL: "supervise itself failed",
    Exit.CANNOT_EXECUTE: "cannot execute the command",
    Exit.NOT_FOUND: "command not found",
}
"""Our own statuses for people."""
