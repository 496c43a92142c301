"""Getting the mechanisms that hold the group: as strong as this host lets us."""

from __future__ import annotations

from collections.abc import Iterable

from supervise.host import cgroupfs, namespaces
from supervise.model.tier import Tier, Tiers, Wanted


class TierError(Exception):
    """A tier that was required cannot be had; the text says which and why."""


def choose(wanted: Wanted, run: str, token: str) -> Tiers:
    """Get every tier that is wanted and can be had.

    Args:
        wanted: the user's choice.
        run: name of the run; its lock is held.
        token: names the leaf, see `cgroupfs.make_leaf`.

    Returns:
        What was had; the leaf exists.

    Raises:
        TierError: a required one was refused; nothing was left behind.
    """
    refused: dict[Tier, str] = {}
    if wanted.wants(Tier.PIDNS) and (why := namespaces.refusal()):
        refused[Tier.PIDNS] = f"a PID namespace is refused here: {why}"
    leaf = None
    if wanted.wants(Tier.CGROUP):
        try:
            leaf = cgroupfs.make_leaf(run, token)
        except cgroupfs.NoCgroupError as error:
            refused[Tier.CGROUP] = str(error)
    tiers = Tiers(tuple(tier for tier in Tier if wanted.wants(tier) and tier not in refused), leaf, refused)
    try:
        insist(tiers, wanted.required)
    except TierError:
        if leaf is not None:
            cgroupfs.remove(leaf)
        raise
    return tiers


def insist(tiers: Tiers, required: Iterable[Tier]) -> None:
    """Make sure that what is required is there.

    Raises:
        TierError: it is not.
    """
    for tier in required:
        if tier in tiers.refused:
            remedy = "; try --scope, or Delegate=yes in the unit" if tier is Tier.CGROUP else ""
            raise TierError(f"--require-tier {tier}: {tiers.refused[tier]}{remedy}")
