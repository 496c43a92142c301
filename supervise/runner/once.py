"""What is asked for the next clean slate alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from supervise.runner.plan import Plan

_CACHES = ("compile",)


class Once:
    """Remembers until the next attempt begins that its slate shall go further than the others."""

    def __init__(self) -> None:
        self._caches: tuple[str, ...] = ()

    def purge(self) -> None:
        """Move the compile caches aside, as `--purge-cache compile` does."""
        self._caches = _CACHES

    def settle(self, planned: Plan) -> Plan:
        """The plan of the attempt that begins now; what was asked for is done with then."""
        caches, self._caches = self._caches, ()
        if not caches:
            return planned
        clearing = planned.options.clearing
        purge = tuple(dict.fromkeys((*clearing.purge, *caches)))
        return replace(planned, options=replace(planned.options, clearing=replace(clearing, purge=purge)))
