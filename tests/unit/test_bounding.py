"""A stop path within a bound: the sum is what counts, and the leader gets what the others do not need."""

from __future__ import annotations

import pytest

from supervise.group.bounding import LEAST_S, bounded
from supervise.profiles.errors import ProfileError
from supervise.runner.plan import Options, make

BOUNDS = (LEAST_S, 5.0, 10.0, 25.0, 30.0, 90.0, 120.0, 600.0, 7200.0)


def test_it_fits() -> None:
    for within_s in BOUNDS:
        for grace_s in (None, 0.0, 1.0, 30.0, 1e9):
            deadlines, verify_s = bounded(within_s, grace_s)
            assert deadlines.total_s + verify_s < within_s, (within_s, grace_s)
            assert min(deadlines.term_s, deadlines.grace_s) >= 0
            assert min(deadlines.kill_s, verify_s) > 0


def test_more_time_is_never_less_grace() -> None:
    graces = [bounded(within_s, None).deadlines.grace_s for within_s in BOUNDS]
    assert graces == sorted(graces)
    assert graces[0] > 0
    assert bounded(10.0, None).deadlines.grace_s >= 5.0


def test_what_the_user_gives_the_leader_counts_where_it_fits() -> None:
    assert bounded(120.0, 7.0).deadlines.grace_s == 7.0
    assert bounded(10.0, 7.0).deadlines.grace_s < 7.0


def test_of_a_plan() -> None:
    command = ["sleep", "1"]
    free, bound = make(command, {}, Options()), make(command, {"SUPERVISE_STOP_TIMEOUT": "10"}, Options())
    assert free.deadlines.total_s > 10.0 > bound.deadlines.total_s + bound.verify_s
    said = make(command, {"SUPERVISE_STOP_TIMEOUT": "10"}, Options(stop_within_s=60.0))
    assert said.deadlines == bounded(60.0, None).deadlines


@pytest.mark.parametrize("said", ["soon", "0", "2.9", "-5", "1e9", "nan", "inf", "٣٠", "9999999"])
def test_what_is_no_time_is_refused(said: str) -> None:
    with pytest.raises(ProfileError, match="SUPERVISE_STOP_TIMEOUT"):
        make(["sleep", "1"], {"SUPERVISE_STOP_TIMEOUT": said}, Options())
