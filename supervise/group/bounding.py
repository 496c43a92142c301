"""A stop path that fits into the time which somebody else gives: `docker stop`, a pod's grace period, TimeoutStopSec.

After that time they send SIGKILL to everything, and nobody is left to verify and to tell. Most of it is the leader's,
for requests that are under way; the other steps need little, and have it for the case that they do not.
"""

from __future__ import annotations

from typing import NamedTuple

from supervise.group.ending import Deadlines

LEAST_S = 3.0
"""Below this there is no time left for the leader."""

# What no deadline counts: the way of a signal through the loop, the look into the log, the farewell.
_SLACK_S = 0.5


class Bounded(NamedTuple):
    """Deadlines of the stop path, and how long the second look after it may take, in seconds."""

    deadlines: Deadlines
    verify_s: float


def bounded(within_s: float, grace_s: float | None) -> Bounded:
    """Divide the time.

    Args:
        within_s: all there is from the signal to our exit, at least `LEAST_S`.
        grace_s: what the user gives the leader; None: as much as there is.

    Returns:
        Deadlines whose sum is within it.
    """
    verify_s, term_s = _part(within_s, 0.1, 0.5, 5.0), _part(within_s, 0.1, 0.5, 10.0)
    kill_s, tracker_s = _part(within_s, 0.15, 1.0, 15.0), _part(within_s, 0.05, 0.2, 1.0)
    left_s = max(0.0, within_s - verify_s - kill_s - term_s - tracker_s - _SLACK_S)
    grace_s = left_s if grace_s is None else min(grace_s, left_s)
    return Bounded(Deadlines(grace_s, min(term_s, grace_s), tracker_s, kill_s), verify_s)


def _part(within_s: float, share: float, least_s: float, most_s: float) -> float:
    return max(least_s, min(most_s, within_s * share))
