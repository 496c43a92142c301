"""How far an attempt got and what it failed of, in a few words. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from supervise.report.cause import from_data
from supervise.report.revisions import short_names
from supervise.text import shorten

if TYPE_CHECKING:
    from supervise.model.diagnosis import Diagnosis
    from supervise.model.sources import Sources

# The name of an exception at the beginning of what Python prints of it.
_EXCEPTION = re.compile(r"(?:[A-Za-z_]\w*\.)*(?P<name>[A-Z]\w{2,60})(?=:\s|$)")
_SHORT, _LONG = 40, 120
_RUN = "run"
_ENDS = {
    "asked": "stopped before it was ready",
    "died": "died before it was ready",
    "not-ready": "not ready in time",
    "keeper-lost": "its keeper was killed",
    "not-launched": "could not be launched",
    "broken": "supervise itself failed",
}


@dataclass(frozen=True, slots=True)
class Side:
    """What an attempt has left, None where it is missing or damaged: attempt.json, outcome.json, slate.json, its code.

    `live` says that it still runs, `serves` that it is ready by now; `notes` what is wrong with the files.
    """

    number: int
    record: Mapping[str, Any] | None
    outcome: Mapping[str, Any] | None
    slate: Mapping[str, Any] | None = None
    sources: Sources | None = None
    live: bool = False
    notes: tuple[str, ...] = ()
    serves: bool = False

    @property
    def cause(self) -> Diagnosis | None:
        """What it failed of, None if it did not or nobody knows."""
        return from_data((self.outcome or {}).get("cause"))

    @property
    def ready_s(self) -> float | None:
        """Seconds until it was ready, None if it was not or nobody knows."""
        said = (self.outcome or {}).get("ready_s")
        return float(said) if said is not None else None

    @property
    def phases(self) -> dict[str, float]:
        """Seconds of each phase of its start, and of all of it if it became ready."""
        said = dict((self.outcome or {}).get("phases") or {})
        return said if self.ready_s is None else {**said, "ready": self.ready_s}

    @property
    def meanwhile(self) -> str:
        """Names of the files that were written while it loaded, so that nobody knows which content it imported."""
        effect = (self.outcome or {}).get("effect")
        files = effect.get("files") if isinstance(effect, Mapping) else None
        named = files.get("changed_while_loading") if isinstance(files, Mapping) else None
        paths = [each for each in named if isinstance(each, str)] if isinstance(named, list) else []
        return shorten(", ".join(short_names(paths)), _SHORT)

    def ended(self, *, whole: bool = False) -> str:
        """How it ended in a few words: `KeyError at weights`, `ready`; with the whole line of the cause."""
        if self.outcome is None:
            return ("ready, and runs" if self.serves else "runs") if self.live else "unknown"
        if self.cause is not None:
            return cause_named(self.cause, whole=whole)
        outcome = str(self.outcome.get("outcome"))
        if self.ready_s is not None:
            return "ready" if outcome == "asked" else f"ready, then {outcome}"
        return _ENDS.get(outcome, outcome)


def cause_named(cause: Diagnosis, *, whole: bool = False) -> str:
    """A cause, and where: `KeyError at weights`.

    Args:
        cause: a first cause.
        whole: whether the line that was printed is told, not just the name of the exception or of the failure.
    """
    if whole:
        said = shorten(cause.text or cause.end or cause.meaning, _LONG)
    else:
        printed = _EXCEPTION.match(cause.text or "")
        known = f" ({cause.signature})" if cause.signature else ""
        name = f"{printed['name']}{known}" if printed else cause.signature
        said = name or shorten(cause.text or cause.end or cause.meaning or "unknown cause", _SHORT)
    if cause.phase is None:
        return said
    return f"{said} once it was ready" if cause.phase == _RUN else f"{said} at {cause.phase}"
