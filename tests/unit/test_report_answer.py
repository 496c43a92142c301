"""What people are told who ask for something of an attempt that is ending already."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from supervise.lifecycle import Cause, Reason
from supervise.runner.report import answer, why

STOPPED = Reason(Cause.ASKED, signum=signal.SIGTERM)
BY_KEY = Reason(Cause.ASKED, signum=signal.SIGINT, detail="key q")
AGAIN = Reason(Cause.ASKED, restarts=True, anew="key r")
DIED = Reason(Cause.DIED, status=1)
NOT_AGAIN = "it is being stopped, and does not begin again"


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        (AGAIN, AGAIN, ""),
        (AGAIN, replace(AGAIN, status=0), ""),
        (AGAIN, replace(AGAIN, anew="key c"), "key c: it is being stopped already, and begins again"),
        (AGAIN, replace(AGAIN, signum=signal.SIGINT, detail="key q"), "key q: nothing follows"),
        (AGAIN, replace(AGAIN, signum=signal.SIGTERM), "SIGTERM: nothing follows"),
        (STOPPED, replace(STOPPED, restarts=True, anew="key r"), f"key r: {NOT_AGAIN}"),
        (STOPPED, replace(STOPPED, restarts=True), f"restart: {NOT_AGAIN}"),
        (replace(STOPPED, restarts=True, anew="x"), replace(STOPPED, restarts=True, anew="x"), ""),
        (STOPPED, STOPPED, ""),
        (DIED, replace(DIED, signum=signal.SIGTERM), ""),
        (DIED, replace(DIED, restarts=True, anew="key r"), "key r: it is being stopped already, and begins again"),
    ],
)
def test_the_answer(before: Reason, now: Reason, told: str) -> None:
    assert answer(before, now) == told


@pytest.mark.parametrize(
    ("reason", "told"),
    [(STOPPED, "SIGTERM"), (BY_KEY, "key q"), (AGAIN, "key r"), (replace(AGAIN, signum=signal.SIGINT), "SIGINT")],
)
def test_why_it_is_stopped(reason: Reason, told: str) -> None:
    assert why(reason) == told
