"""Where a hostile tree is put: by whom and in which containment, and the tree with what there is to know about it."""

from __future__ import annotations

import functools
import json
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from supervise.model.process import ProcessId
from tests.support.hydra import ALL, FOR_ROOT, members
from tests.support.hydra_census import Tree, hunt_down
from tests.support.launcher import Launched, Supervise
from tests.support.waiting import wait_until

GRACE_S = 0.5


class Tier(NamedTuple):
    """What contains the group: the options that ask for it and no other, and who can have it."""

    options: tuple[str, ...]
    users: tuple[str, ...] = ("ourselves", "nobody")


TIERS = {
    "subreaper": Tier(("--no-cgroup",)),
    "cgroup": Tier(("--require-tier", "cgroup"), users=("ourselves",)),
    "pidns": Tier(("--pidns", "--require-tier", "pidns")),
}
# Where neither kernel object holds the group together, these cannot be told from anybody's processes once both who
# contain it are dead: they have no marker, or are gone when the marker has been read.
LOST: tuple[str, ...] = ()


@dataclass
class Place:
    """A user and a tier, and the trees that were started there."""

    supervise: Supervise
    tier: str
    trees: list[Tree] = field(default_factory=list)

    def start(self, *hydra: str, after: Tree | None = None, grace_s: float = GRACE_S) -> tuple[Launched, Tree]:
        """Start a tree; returns at once."""
        tree = Tree(self.supervise.tmp / f"pids-{len(self.trees)}")
        self.trees.append(tree)
        told = ("--tell-namespace", *(("--after", str(after.path)) if after else ()))
        command = self.supervise.hydra(*told, *hydra, pids=tree.path)
        options = (*TIERS[self.tier].options, "--name", "X", "--grace", grace_s)
        return self.supervise.start(*options, *command), tree

    def roles(self, *without: str) -> tuple[str, ...]:
        """All that this user can play, but for some."""
        denied = () if self.supervise.uid is None and os.geteuid() == 0 else FOR_ROOT
        return tuple(role for role in ALL if role not in (*denied, *without))

    def attempts(self) -> list[Path]:
        """What is recorded of the attempts so far."""
        return sorted(self.supervise.state.glob("supervise/X/attempts/[0-9]*/attempt.json"))

    def markers(self) -> list[str]:
        """Their SUPERVISE_ID."""
        return [json.loads(path.read_text())["id"] for path in self.attempts()]

    def close(self) -> None:
        self.supervise.close()
        for tree in self.trees:
            tree.kill()
            wait_until(lambda path=tree.path: hunt_down(path), 70.0)


@dataclass
class Scene:
    """A tree under supervision with all its members, and who they are."""

    place: Place
    launched: Launched
    tree: Tree
    marker: str
    keeper: ProcessId

    @classmethod
    def ready(cls, place: Place, *options: str, roles: tuple[str, ...], grace_s: float = GRACE_S) -> Scene:
        launched, tree = place.start(*options, *roles, grace_s=grace_s)
        tree.wait_ready(failure=place.supervise.said)
        expected = {"leader", *(name for role in roles for name in members(role))}
        assert tree.living == set(tree.members) == expected
        (marker,) = place.markers()
        return cls(place, launched, tree, marker, place.supervise.identity("keeper"))


CELLS = [(user, tier) for tier, (_, users) in TIERS.items() for user in users]


@functools.cache
def refused(uid: int | None, tier: str) -> bool:
    """Whether this host cannot have it, found out without any code of ours."""
    if tier == "pidns":
        inside = ["unshare", *(("--user",) if uid or os.geteuid() else ()), "--pid", "--fork", "--mount-proc", "true"]
        return subprocess.run(inside, user=uid, stderr=subprocess.DEVNULL).returncode != 0
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return tier == "cgroup" and not any("cgroup2" in words and os.access(words[4], os.W_OK) for words in mounts)
