"""What differs of the machine that two attempts ran on: GPUs, driver, limits. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from supervise.report.changes import Difference, moved


def equipped(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Difference]:
    """What differs of the machine.

    Args:
        before: attempt.json of the earlier attempt.
        after: of the later one.

    Yields:
        Driver, GPUs and limits that both have recorded and that differ.
    """
    if not unequipped(before) and not unequipped(after):
        (old_driver, old_gpus), (new_driver, new_gpus) = _gpus(before["gpus"]), _gpus(after["gpus"])
        if old_driver != new_driver:
            yield moved("driver", "driver", old_driver, new_driver)
        if old_gpus != new_gpus:
            one, other = _counted(old_gpus), _counted(new_gpus)
            yield moved("gpus", "GPUs", one, f"others: {other}" if one == other else other)
    old, new = before.get("limits"), after.get("limits")
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted({*old, *new}):
            if old.get(name) != new.get(name):
                yield moved("limit", name, _limit(old.get(name)), _limit(new.get(name)), f"limit {name}")


def unequipped(record: Mapping[str, Any]) -> bool:
    """Whether nobody knows which GPUs there were: not recorded, or the driver did not answer."""
    gpus = record.get("gpus")
    if "gpus" not in record or not isinstance(gpus, dict | None):
        return True
    return gpus is not None and (gpus.get("error") is not None or not isinstance(gpus.get("devices"), list))


def _gpus(said: dict[str, Any] | None) -> tuple[str, list[tuple[str, str, str]]]:
    """The driver, and index, name and UUID of each GPU; `none` where there is no driver."""
    if said is None:
        return "none", []
    devices = [each for each in said["devices"] if isinstance(each, dict)]
    found = [(str(each.get("index")), str(each.get("name")), str(each.get("uuid"))) for each in devices]
    return str(said.get("driver") or "unknown"), found


def _counted(gpus: list[tuple[str, str, str]]) -> str:
    """`8 NVIDIA H100`."""
    return ", ".join(f"{count} {name}" for name, count in Counter(name for _, name, _ in gpus).items()) or "none"


def _limit(value: object) -> str:
    """`1024 of 4096`: the soft limit, of the hard one."""
    if isinstance(value, list) and len(value) == 2:
        soft, hard = ("unlimited" if each in (None, -1) else str(each) for each in value)
        return soft if soft == hard else f"{soft} of {hard}"
    return "unknown" if value is None else str(value)
