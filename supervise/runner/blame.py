"""What a refused launch says of the values that were tried with it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from supervise.model.need import Need
from supervise.model.preflight import Check
from supervise.model.profile import Profile
from supervise.model.slate import Finding, SlateResult, Verdict
from supervise.model.trial import Setting

# The checks of what the command line alone decides, and the values of a profile that each looks at.
_OWN: dict[str, tuple[str, ...]] = {
    "model": ("model",),
    "heads": ("tp",),
    "length": ("max_length",),
    "gpus": ("tp", "pp", "pcp", "dp", "dp_local", "devices", "nodes"),
}
# Who holds a port, or the run itself, does so for the next value as well.
_LASTING = ("port", "socket", "process")
_DOORS = frozenset({"--port", "--host", "--uds"})


def refusal(result: SlateResult) -> str:
    """What stands in the way of a launch, the first of it."""
    found = [_said(check) for check in result.refusals]
    found += [f"{finding.subject} ({', '.join(finding.evidence)})" for finding in result.obstacles]
    left = [finding.subject for finding in _left(result)]
    return f"the slate is not clean: {next(iter((*found, *left)), 'see above')}"


def blamed(result: SlateResult, settings: Iterable[Setting], profile: Profile) -> str | None:
    """Why no launch with these settings can come to anything, None if that may be the fault of something else.

    Args:
        result: the slate that was refused.
        settings: what was set for this launch alone.
        profile: of what was to be launched.
    """
    tried = tuple(settings)
    own = (check for check in result.refusals if check.name in _OWN and _depends(check, tried, profile))
    return next((f"refused before the launch: {_said(check)}" for check in own), None)


def lasting(result: SlateResult, settings: Iterable[Setting], need: Need) -> bool:
    """Whether whatever else is tried is refused for the same reason: somebody has the port, or the run.

    Args:
        result: the slate that was refused.
        settings: what was set for this launch alone.
        need: of the launch.
    """
    doors = _DOORS | {port.source for port in need.ports}
    if any(setting.names & doors for setting in settings):
        return False
    return any(finding.kind in _LASTING for finding in (*result.obstacles, *_left(result)))


def _left(result: SlateResult) -> list[Finding]:
    """What was to be cleared away and is still there."""
    return [
        outcome.finding
        for outcome in result.outcomes
        if outcome.finding.blocking and outcome.verdict is not Verdict.GONE
    ]


def _said(check: Check) -> str:
    return f"{check.name}: {check.text}"


def _depends(check: Check, settings: Iterable[Setting], profile: Profile) -> bool:
    specs = [profile.values[name] for name in _OWN[check.name] if name in profile.values]
    looked_at = {name for spec in specs for name in (*spec.flags, *spec.env)}
    text = f"{check.text} {check.fix}"
    return any(setting.names & looked_at or _speaks(text, setting) for setting in settings)


def _speaks(text: str, setting: Setting) -> bool:
    return any(re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text) for name in setting.names)
