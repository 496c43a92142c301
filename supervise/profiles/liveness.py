"""The `[liveness]` table of a profile: what tells that the engine still serves."""

from __future__ import annotations

from supervise.model.liveness import Awake, LivenessRule
from supervise.profiles.table import Table

_CANARY_TIMEOUT_S = 60


def liveness(table: Table) -> LivenessRule | None:
    """Take the table.

    Args:
        table: as it is in the file; one without keys says that nothing is known.

    Returns:
        The rule, None where nothing is known.

    Raises:
        ProfileError: it is damaged.
    """
    if not table.present():
        return None
    rule = LivenessRule(
        hang_timeout_s=table.seconds("hang_timeout_s"),
        metrics=_path(table, "metrics"),
        running=table.maybe_text("running"),
        progress=table.texts("progress"),
        awake=_awake(table.table("awake")),
        completions=_path(table, "completions"),
        canary_timeout_s=float(table.count("canary_timeout_s") or _CANARY_TIMEOUT_S),
        generates=table.truth("generates"),
        paused=_paused(table.table("paused")),
        says=table.patterns("says"),
    )
    table.done()
    if rule.metrics is not None and (rule.running is None or not rule.progress):
        missing = "running" if rule.running is None else "progress"
        raise table.error(missing, "is missing", "names of metrics: without them `metrics` tells nothing")
    return rule


def _path(table: Table, key: str) -> str | None:
    path = table.maybe_text(key)
    if path is not None and not path.startswith("/"):
        raise table.error(key, f"is {path!r}", 'an absolute path such as "/metrics"')
    return path


def _awake(table: Table) -> Awake | None:
    if not table.present():
        return None
    found = Awake(table.text("metric"), table.text("label"), table.text("value"))
    table.done()
    return found


def _paused(table: Table) -> dict[str, str]:
    for path in table.present():
        if not path.startswith("/"):
            raise table.error(path, "is no path", 'an absolute path such as "/is_paused"')
    return {path: table.text(path) for path in table.present()}
