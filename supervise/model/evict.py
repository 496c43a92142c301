"""How far a clean slate may go."""

from __future__ import annotations

from enum import StrEnum


class Evict(StrEnum):
    """Whose processes and leftovers may be ended or removed; each level includes those before it.

    OWN is what this run left behind. STALE adds what no living server owns any more: dead or orphaned engine processes
    of the same user, and their names in /dev/shm, sockets and locks. ENGINES adds live engine processes of the same
    user that hold what the launch needs, and unused segments that name no owner. ALL adds any holder of a needed port
    or GPU that we may signal.
    """

    OWN = "own"
    STALE = "stale"
    ENGINES = "engines"
    ALL = "all"

    def covers(self, level: Evict) -> bool:
        """Whether this policy goes as far as `level`."""
        order = list(Evict)
        return order.index(self) >= order.index(level)
