"""Which GPUs a launch may touch, and how many of them."""

from __future__ import annotations

import re
from dataclasses import replace

from supervise.model.need import DeviceKind, Devices
from supervise.model.profile import Profile
from supervise.profiles.values import Values

_NVIDIA = ("cuda", "auto", "gpu")
_INDEX = re.compile(r"\d+")
_DEVICE = re.compile(r"\d+|(?:GPU|MIG)-\S+")


def devices(values: Values, profile: Profile) -> Devices:
    """Tell the GPUs from flags and environment.

    Args:
        values: looks up what was given.
        profile: says what multiplies into the number of GPUs.

    Returns:
        None at all for another kind of device; a list if there is one; else all, of which `count` are used.
    """
    platform = values.text("device")
    if platform is not None and platform.partition(":")[0] not in _NVIDIA:
        return Devices(DeviceKind.NONE, source=values.source("device"))
    found = _listed(values)
    if found.kind is DeviceKind.NONE:
        return found
    return _shifted(replace(found, count=_count(values, profile)), values)


def visible(text: str) -> tuple[str, ...]:
    """Read CUDA_VISIBLE_DEVICES as the CUDA runtime does: what follows the first entry that names nothing is invisible.

    Args:
        text: its value.

    Returns:
        Indices and UUIDs, none for an empty value or -1 (CUDA C++ Programming Guide, environment variables).
    """
    found: list[str] = []
    for entry in (part.strip() for part in text.split(",")):
        if not _DEVICE.fullmatch(entry):
            break
        found.append(entry)
    return tuple(found)


def _listed(values: Values) -> Devices:
    words = values.all("devices")
    if not words:
        return Devices(DeviceKind.ALL)
    source = values.source("devices")
    if not values.given("devices"):
        ids = visible(words[0])
        return Devices(DeviceKind.LISTED if ids else DeviceKind.NONE, ids, source=source)
    return _chosen(values, re.findall(r"[^\s,\[\]\"']+", ",".join(words)), source)


def _chosen(values: Values, ids: list[str], source: str) -> Devices:
    """Read --device-ids: indices count among the visible devices, UUIDs stand for themselves."""
    variable = values.variable("devices")
    if variable and all(_INDEX.fullmatch(each) for each in ids):
        seen = visible(variable)
        beyond = [each for each in ids if int(each) >= len(seen)]
        if beyond:
            values.note(f"{source} {beyond[0]} is not among the visible devices")
        ids = [seen[int(each)] for each in ids if int(each) < len(seen)]
    return Devices(DeviceKind.LISTED, tuple(ids), source=source) if ids else Devices(DeviceKind.ALL)


def _count(values: Values, profile: Profile) -> int | None:
    """The product of the parallel sizes over the nodes; None if one is not known or it does not divide."""
    if not profile.gpu_product:
        return None
    total = 1
    for name in profile.gpu_product:
        if (unless := profile.gpu_unless.get(name)) is not None and values.given(unless):
            continue
        size = values.number(name)
        if size is None or size < 1:
            return None
        total *= size
    nodes = values.number("nodes") or 1
    return total // nodes if nodes > 0 and total % nodes == 0 else None


def _shifted(found: Devices, values: Values) -> Devices:
    """Apply --base-gpu-id and --gpu-id-step, which count among the visible devices."""
    base, step = values.number("device_base") or 0, values.number("device_step") or 1
    if (base, step) == (0, 1) or found.count is None:
        return found
    places = [base + step * number for number in range(found.count)]
    source = values.source("device_base" if base else "device_step")
    if found.kind is DeviceKind.ALL:
        return Devices(DeviceKind.LISTED, tuple(map(str, places)), found.count, source)
    if base < 0 or places[-1] >= len(found.ids):
        values.note(f"{source} goes beyond the visible devices")
    ids = tuple(found.ids[place] for place in places if 0 <= place < len(found.ids))
    return Devices(DeviceKind.LISTED, ids, found.count, source)
