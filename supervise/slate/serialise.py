"""A slate as JSON, for slate.json and `clean --json`. Pure."""

from __future__ import annotations

from typing import Any

from supervise.model.preflight import Check
from supervise.model.slate import Finding, Outcome, SlateResult


def to_json(result: SlateResult) -> dict[str, Any]:
    """The whole result; keys are stable, additions may follow."""
    return {
        "run": result.run,
        "clean": result.clean,
        "seconds": round(result.seconds, 3),
        "outcomes": [_outcome(outcome) for outcome in result.outcomes],
        "obstacles": [_finding(finding) for finding in result.obstacles],
        "remarks": [_finding(finding) for finding in result.remarks],
        "checks": list(result.checks),
        # None: it was not asked for, as in `clean`.
        "preflight": [_check(check) for check in result.preflight] or None,
    }


def _check(check: Check) -> dict[str, Any]:
    return {"name": check.name, "level": check.level.value, "text": check.text, "fix": check.fix}


def _outcome(outcome: Outcome) -> dict[str, Any]:
    return {
        **_finding(outcome.finding),
        "did": outcome.did,
        "verdict": outcome.verdict.value,
        "seconds": round(outcome.seconds, 3),
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "kind": finding.kind,
        "subject": finding.subject,
        "ownership": finding.ownership.value,
        "evidence": list(finding.evidence),
        "action": type(finding.action).__name__ if finding.action else None,
        "remedy": finding.remedy,
        "evict": finding.eviction.level.value if finding.eviction else None,
    }
