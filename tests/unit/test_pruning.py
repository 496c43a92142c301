"""What may be pruned."""

from hypothesis import given
from hypothesis import strategies as st

from supervise.attempts.pruning import Kept, Pruning, to_remove


def test_oldest_go_first_until_both_limits_hold():
    kept = [Kept(n, 10, first_failure=False) for n in range(1, 8)]
    assert to_remove(kept, Pruning(attempts=5, size=10**9), running=7) == [1, 2]
    assert to_remove(kept, Pruning(attempts=100, size=35), running=7) == [1, 2, 3, 4]


def test_the_first_failure_of_a_streak_and_the_running_attempt_stay():
    kept = [Kept(1, 10, first_failure=True), Kept(2, 10, first_failure=False), Kept(3, 10, first_failure=False)]
    assert to_remove(kept, Pruning(attempts=1, size=1), running=3) == [2]


@given(
    st.lists(st.builds(Kept, st.integers(1, 999), st.integers(0, 1000), st.booleans()), unique_by=lambda k: k.number),
    st.integers(1, 10),
    st.integers(0, 5000),
)
def test_protected_attempts_survive_any_limit(kept, attempts, size):
    kept.sort(key=lambda each: each.number)
    running = kept[-1].number if kept else 1
    doomed = to_remove(kept, Pruning(attempts, size), running=running)
    assert running not in doomed
    assert not {each.number for each in kept if each.first_failure} & set(doomed)
    assert doomed == sorted(doomed)
