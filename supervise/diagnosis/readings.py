"""Where a line stands in a report that goes over several lines."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from supervise.model.diagnosis import Traceback


class Place(Enum):
    """Where a line stands.

    In no report; in its body; the line naming the failure; the rest of its message; the line of that rest, or of a
    report it quotes, that says more exactly what went wrong.
    """

    OUTSIDE = "outside"
    BODY = "body"
    EXCEPTION = "exception"
    MESSAGE = "message"
    CAUSE = "cause"


@dataclass(frozen=True, slots=True)
class Reading:
    """A line's place; `traceback` is present for EXCEPTION, MESSAGE and CAUSE.

    A later reading of the same report may know more of it: its frames, its `cause`.
    """

    place: Place
    traceback: Traceback | None = None


OUTSIDE = Reading(Place.OUTSIDE)
BODY = Reading(Place.BODY)
