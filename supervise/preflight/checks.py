"""All checks, in the order in which they are told."""

from __future__ import annotations

from collections.abc import Mapping

from supervise.model.need import Need
from supervise.model.preflight import Check
from supervise.model.slate import Gpus

NAMES: tuple[str, ...] = ()
"""What --no-preflight takes."""


def check(need: Need, env: Mapping[str, str], gpus: Gpus, skip: frozenset[str]) -> tuple[Check, ...]:
    """Not built yet."""
    del need, env, gpus, skip
    return ()
