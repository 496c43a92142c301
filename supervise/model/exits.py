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
