"""Every way in which a run can end x who runs it x what contains it, on the worst tree there is: nobody escapes.

HYDRA_ROUNDS says how often something is killed at a random moment (10 over all cells, 200 for a night), HYDRA_SEED
repeats the moments of a run that failed.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from supervise.host import signals
from supervise.model.process import ProcessId
from tests.support.hydra_census import Tree
from tests.support.hydra_places import CELLS, LOST, Place, Scene, refused
from tests.support.launcher import Launched
from tests.support.waiting import wait_gone, wait_until

ROUNDS = int(os.environ.get("HYDRA_ROUNDS", "10"))
SEED = int(os.environ.get("HYDRA_SEED") or random.SystemRandom().randrange(2**32))
# Long enough for the next launch to come far while the tree is still ending.
SLOW_GRACE_S = 2.0
SLATE = 94


def _marks(user: str, tier: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.root] if user == "nobody" or tier == "cgroup" else []


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    user, tier = request.param
    supervise = request.getfixturevalue("supervise" if user == "ourselves" else "supervise_as_nobody")
    if refused(supervise.uid, tier):
        pytest.skip(f"no {tier} for {user} on this host")
    made = Place(supervise, tier)
    yield made
    made.close()


everywhere = pytest.mark.parametrize(
    "place",
    [pytest.param(cell, id="-".join(cell), marks=_marks(*cell)) for cell in CELLS],
    indirect=True,
)


@everywhere
class TestEveryEnd:
    """Once supervise has ended nothing is left; where it cannot tell its end, soon after."""

    def test_stop(self, place: Place) -> None:
        scene = Scene.ready(place, roles=place.roles())
        scene.launched.send(signal.SIGTERM)
        assert scene.launched.wait() == -signal.SIGTERM
        assert scene.tree.left(scene.marker) == []
        assert place.supervise.outcome()["verified"] is True

    def test_stop_of_a_leader_that_is_stuck(self, place: Place) -> None:
        scene = Scene.ready(place, "--leader-ignores-term", roles=place.roles())
        scene.launched.send(signal.SIGTERM)
        assert scene.launched.wait() == -signal.SIGTERM
        assert scene.tree.left(scene.marker) == []
        assert place.supervise.outcome()["verified"] is True

    def test_supervise_is_killed(self, place: Place) -> None:
        scene = Scene.ready(place, roles=place.roles())
        scene.launched.send(signal.SIGKILL)
        assert scene.launched.wait() == -signal.SIGKILL
        scene.tree.wait_nothing_left(scene.marker)
        wait_gone([scene.keeper])

    def test_keeper_is_killed(self, place: Place) -> None:
        scene = Scene.ready(place, roles=place.roles())
        signals.send(scene.keeper, signal.SIGKILL)
        assert scene.launched.wait() == 125
        assert scene.tree.left(scene.marker) == []

    def test_leader_dies_alone(self, place: Place) -> None:
        scene = Scene.ready(place, roles=place.roles())
        signals.send(scene.tree.members["leader"], signal.SIGKILL)
        assert scene.launched.wait() == 128 + signal.SIGKILL
        assert scene.tree.left(scene.marker) == []

    def test_both_are_killed_and_clean_ends_what_they_left(self, place: Place) -> None:
        scene = Scene.ready(place, roles=place.roles(*(LOST if place.tier == "subreaper" else ())))
        end_both(place, scene.launched, scene.tree)
        assert scene.launched.wait() == -signal.SIGKILL
        wait_gone([scene.keeper])
        cleaned = place.supervise.run("clean")
        assert cleaned.popen.returncode == 0, cleaned.stderr
        assert scene.tree.left(scene.marker) == []


def end_by_stop(place: Place, launched: Launched, tree: Tree) -> None:
    launched.send(signal.SIGTERM)


def end_supervise(place: Place, launched: Launched, tree: Tree) -> None:
    launched.send(signal.SIGKILL)


def end_keeper(place: Place, launched: Launched, tree: Tree) -> None:
    signals.send(_keeper(place) or launched.id, signal.SIGKILL)


def end_leader(place: Place, launched: Launched, tree: Tree) -> None:
    signals.send(tree.refresh().members.get("leader", launched.id), signal.SIGKILL)


def end_both(place: Place, launched: Launched, tree: Tree) -> None:
    """Without a moment in which one can see the other die."""
    both = [launched.id, *filter(None, [_keeper(place)])]
    for signum in (signal.SIGSTOP, signal.SIGKILL):
        for target in both:
            signals.send(target, signum)


def _keeper(place: Place) -> ProcessId | None:
    """As run.json has it; None before it is there."""
    told = place.supervise.status().get("keeper") if place.supervise.runs() else None
    return ProcessId(told["pid"], told["ticks"]) if told else None


End = Callable[[Place, Launched, Tree], None]
ENDS: tuple[End, ...] = (end_by_stop, end_supervise, end_keeper, end_leader, end_both)


def roles_for(place: Place, end: End) -> tuple[str, ...]:
    return place.roles(*(LOST if place.tier == "subreaper" and end is end_both else ()))


def relaunch(place: Place, first: Tree) -> tuple[Launched, Tree]:
    """Start the same run over and over until one is let in: by then nothing of the first may be alive."""
    deadline = time.monotonic() + 60.0
    while time.monotonic() < deadline:
        launched, tree = place.start("plain", after=first)
        if _let_in(launched, tree):
            # The leader itself has looked at the lock before it did anything else; without a lock, it is for us to see.
            assert not tree.overlapped
            assert first.survivors == []
            return launched, tree
        assert launched.popen.returncode == SLATE, launched.stderr
        assert "is live" in launched.stderr
    raise AssertionError(f"never let in: {place.supervise.said()}")


def _let_in(launched: Launched, tree: Tree) -> bool:
    def leads() -> bool:
        return "leader" in tree.refresh().members

    wait_until(lambda: leads() or launched.popen.poll() is not None, 60.0, failure=lambda: launched.stderr)
    return leads()


def assert_survives(place: Place, launched: Launched, tree: Tree, end: End) -> None:
    """End it, start the same run at once, and stop that: never two of them, nothing left in the end."""
    end(place, launched, tree)
    again, second = relaunch(place, tree)
    launched.wait()
    again.send(signal.SIGTERM)
    assert again.wait() == -signal.SIGTERM
    assert [left for marker in place.markers() for left in (*tree.left(marker), *second.left(marker))] == []


# Each end in every other place, each place with every other end: the whole matrix takes two minutes more.
_OVERLAPS = [
    pytest.param(cell, end, id="-".join((end.__name__, *cell)), marks=_marks(*cell))
    for nth_cell, cell in enumerate(CELLS)
    for nth_end, end in enumerate(ENDS)
    if (nth_cell + nth_end) % 2 == 0
]


@pytest.mark.parametrize(("place", "end"), _OVERLAPS, indirect=["place"])
def test_relaunch_never_overlaps(place: Place, end: End) -> None:
    scene = Scene.ready(place, "--leader-ignores-term", roles=roles_for(place, end), grace_s=SLOW_GRACE_S)
    assert_survives(place, scene.launched, scene.tree, end)


class Round(NamedTuple):
    """One launch that is ended at a moment which its own seed decides."""

    seed: int
    cell: tuple[str, str]
    end: End

    @property
    def name(self) -> str:
        return f"{self.end.__name__}-{'-'.join(self.cell)}-{self.seed}"


def _rounds() -> Iterator[Round]:
    """As many as asked for: all combinations in a random order, then once more from the start."""
    order = random.Random(SEED)
    combinations = [(cell, end) for cell in CELLS for end in ENDS]
    order.shuffle(combinations)
    for number in range(ROUNDS):
        yield Round(order.randrange(2**32), *combinations[number % len(combinations)])


def wait_random_moment(chance: random.Random, place: Place, launched: Launched, tree: Tree, roles: int) -> str:
    """Let it come some way, to one of the handshakes of a launch and a little further; says how far."""
    supervise = place.supervise
    steps: tuple[tuple[str, Callable[[], object], float], ...] = (
        ("started", lambda: True, 0.5),
        ("run.json", supervise.runs, 0.2),
        ("attempt.json", place.attempts, 0.1),
        *((f"line {line}", lambda line=line: tree.told >= line, 0.01) for line in range(1, roles + 2)),
        ("ready", lambda: tree.refresh().ready, 0.1),
    )
    name, reached, most_s = chance.choice(steps)
    wait_until(reached, failure=lambda: f"{name}: {launched.stderr}")
    further_s = chance.uniform(0.0, most_s)
    time.sleep(further_s)
    return f"{further_s:.4f} s after {name}"


@pytest.mark.parametrize(
    ("place", "round_"),
    [pytest.param(each.cell, each, id=each.name, marks=_marks(*each.cell)) for each in _rounds()],
    indirect=["place"],
)
def test_killed_at_a_random_moment(place: Place, round_: Round) -> None:
    print(f"to repeat: HYDRA_SEED={SEED} HYDRA_ROUNDS={ROUNDS}, {round_.name}")
    chance = random.Random(round_.seed)
    roles = list(roles_for(place, round_.end))
    chance.shuffle(roles)
    launched, tree = place.start("--crowd", "20", *roles)
    print(wait_random_moment(chance, place, launched, tree, len(roles)), roles)
    assert_survives(place, launched, tree, round_.end)
