"""What becomes of a change, and when it is looked for."""

from __future__ import annotations

import pytest

from supervise.lifecycle.changes import Debounce, Pace, Then, follows
from supervise.model.watch import OnChange

NOW, AFTER, ASK = OnChange.NOW, OnChange.AFTER_READY, OnChange.ASK
RELAUNCH, LATER, SAID, NOTHING = Then.RELAUNCH, Then.LATER, Then.ASK, Then.NOTHING


@pytest.mark.parametrize(
    ("state", "now", "after", "ask"),
    [
        ("sweeping", NOTHING, NOTHING, NOTHING),
        ("starting", RELAUNCH, LATER, SAID),
        ("ready", RELAUNCH, RELAUNCH, SAID),
        ("capturing", RELAUNCH, RELAUNCH, SAID),
        ("stopping", RELAUNCH, RELAUNCH, SAID),
        ("killing", RELAUNCH, RELAUNCH, SAID),
        ("verifying", RELAUNCH, RELAUNCH, SAID),
        ("waiting", RELAUNCH, RELAUNCH, SAID),
        ("done", NOTHING, NOTHING, NOTHING),
    ],
)
def test_what_becomes_of_a_change(state: str, now: Then, after: Then, ask: Then) -> None:
    assert [follows(choice, state, ending=False) for choice in (NOW, AFTER, ASK)] == [now, after, ask]
    # What ends already because somebody asked takes the change along, or nobody wants it any more.
    assert {follows(choice, state, ending=True) for choice in OnChange} == {NOTHING}


def looks(notices: list[float], cost_s: float, until: float) -> list[float]:
    """When is looked, on a clock that nothing else moves."""
    debounce, seen, now = Debounce(Pace(), 0.0), [], 0.0
    pending = list(notices)
    while now < until:
        upcoming = min(debounce.due, *pending[:1], until)
        now = max(now, upcoming)
        if pending and pending[0] <= now:
            debounce.noticed(pending.pop(0))
        elif debounce.due <= now < until:
            seen.append(now)
            debounce.looked(now, now := now + cost_s)
    return seen


def test_one_save_is_looked_at_once_it_is_quiet() -> None:
    assert looks([1.0], 0.01, 9.0) == pytest.approx([1.4])


def test_of_many_saves_in_a_row_the_last_one_is_waited_for() -> None:
    assert looks([1.0 + step / 10 for step in range(21)], 0.01, 9.0) == pytest.approx([3.4])


def test_saves_without_end_are_looked_at_all_the_same() -> None:
    seen = looks([step / 10 for step in range(1, 200)], 0.01, 20.0)
    assert seen[0] == pytest.approx(5.1)
    assert 3 <= len(seen) <= 4


def test_without_a_notice_it_is_looked_now_and_then() -> None:
    assert looks([], 0.01, 35.0) == pytest.approx([10.0, 20.01, 30.02])


@pytest.mark.parametrize("notices", [[], [step / 10 for step in range(3000)]])
def test_looks_that_cost_much_are_few(notices: list[float]) -> None:
    cost_s = 3.0
    seen = looks(notices, cost_s, 300.0)
    assert 1 <= len(seen) <= 300.0 * Pace().share / cost_s + 1


def test_what_is_noticed_during_a_look_is_looked_at_again() -> None:
    debounce = Debounce(Pace(), 0.0)
    debounce.noticed(1.0)
    debounce.looked(1.4, 1.5)
    assert not debounce.awaited
    debounce.noticed(1.6)
    debounce.noticed(1.7)
    debounce.looked(1.65, 1.75)
    assert debounce.awaited
    assert debounce.due < 1.75 + Pace().idle_s
