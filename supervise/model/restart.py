"""The words of restarting: when, how often, after how long, and what makes two failures the same one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class When(StrEnum):
    """Whether a server that failed is launched again.

    ON_FAILURE lets the class of the failure decide. ALWAYS differs where that is unknown: it relaunches as often as the
    limit allows, not once. Neither relaunches what would fail the same way.
    """

    NO = "no"
    ON_FAILURE = "on-failure"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True)
class Policy:
    """When to relaunch: `most` times within `window_s` seconds.

    The first wait of a row is `backoff_s` seconds, each further one twice as long, up to `cap_s`. A server that was
    ready for `healthy_s` seconds ends the row.
    """

    when: When = When.NO
    most: int = 5
    window_s: float = 3600.0
    backoff_s: float = 4.0
    cap_s: float = 300.0
    healthy_s: float = 600.0


class Identity(NamedTuple):
    """What tells one failure from another: see Diagnosis. Each may be unknown; `end` counts where all others are."""

    fingerprint: str | None = None
    signature: str | None = None
    text: str | None = None
    phase: str | None = None
    end: str | None = None

    @property
    def known(self) -> bool:
        """Whether there is anything to compare: two failures of which nothing is known are not the same for that."""
        return self.printed or self.end is not None

    @property
    def printed(self) -> bool:
        """Whether somebody printed a cause; otherwise two that are the same have ended alike, and that is all."""
        return any((self.fingerprint, self.signature, self.text))

    def same_as(self, other: Identity) -> bool:
        """Whether it is the same cause at the same phase, by the best that is known of both."""
        if self.phase != other.phase:
            return False
        for mine, theirs in zip(self[:3], other[:3], strict=True):
            if mine and theirs:
                return mine == theirs
        return not self.printed and not other.printed and self.end is not None and self.end == other.end
