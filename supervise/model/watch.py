"""The words of watching files."""

from __future__ import annotations

from enum import StrEnum


class OnChange(StrEnum):
    """What becomes of a server when a watched file has changed.

    NOW ends it at once, also while it loads; AFTER_READY lets it become ready, or fail, first; ASK leaves it to people.
    """

    NOW = "now"
    AFTER_READY = "after-ready"
    ASK = "ask"
