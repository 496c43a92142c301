"""Mechanisms that hold a group: which are wanted, which were had, which were refused and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Tier(StrEnum):
    """A mechanism of containment, weakest first."""

    SUBREAPER = "subreaper"
    CGROUP = "cgroup"
    PIDNS = "pidns"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user chose.

    `pidns` asks for a PID namespace; `cgroup` may be switched off; a `required` tier that is refused is an error.
    """

    cgroup: bool = True
    pidns: bool = False
    required: frozenset[Tier] = frozenset()

    def wants(self, tier: Tier) -> bool:
        """Whether it is to be had if it can; what is required is wanted, whatever else was said."""
        chosen = {Tier.SUBREAPER: True, Tier.CGROUP: self.cgroup, Tier.PIDNS: self.pidns}
        return chosen[tier] or tier in self.required


@dataclass(frozen=True, slots=True)
class Tiers:
    """What was had. `leaf` is the directory of the cgroup leaf; `refused` has the reason for each that was not."""

    held: tuple[Tier, ...]
    leaf: str | None
    refused: dict[Tier, str]

    @property
    def pidns(self) -> bool:
        """Whether the server gets a PID namespace."""
        return Tier.PIDNS in self.held

    def without(self, tier: Tier, why: str) -> Tiers:
        """The same, less one that turned out not to be had after all."""
        held = tuple(other for other in self.held if other is not tier)
        return Tiers(held, None if tier is Tier.CGROUP else self.leaf, {**self.refused, tier: why})
