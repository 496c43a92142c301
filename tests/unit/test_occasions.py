"""What hooks are run on, from histories of news; each occasion with a decoy."""

from __future__ import annotations

import pytest

from supervise.model.news import (
    BecameReady,
    Ended,
    Ending,
    Entered,
    Launched,
    Over,
    Progressed,
    Relaunching,
    Stalled,
    WasHung,
    Working,
)  # fmt: skip
from supervise.report.occasions import Occasions

STOP = Ending("SIGTERM", True, False, 40.0)
LAUNCHED = Launched(7, "/state/server.log", 4711)
ENDED = Ended(
    7,
    1,
    "died",
    "boom",
    "transient",
    "sig",
    "f",
    None,
    {"load": 1.2345},
    0.5,
    0,
    9,
    False,
    "/state/server.log",
    ("more",),
)


def heard(*news):
    occasions = Occasions("vllm-8000", "vllm")
    return [found.told for each in news if (found := occasions.hear(each, 1000.0))]


def names(*news):
    return [told["event"] for told in heard(*news)]


@pytest.mark.parametrize(
    ("news", "expected"),
    [
        ((LAUNCHED,), ["launch"]),
        ((BecameReady(7, 3.0, {}),), ["ready"]),
        ((Stalled("load", "no progress"),), ["stall"]),
        ((WasHung(("a", "b")),), ["hang"]),
        ((Ending("SIGTERM", True, False, 40.0),), ["stop"]),
        ((Ending("it hangs", False, False, 40.0),), []),
        ((ENDED,), ["crash"]),
        ((ENDED._replace(asked=True),), []),
        ((WasHung(("a",)), ENDED._replace(outcome="hung")), ["hang"]),
        ((Relaunching(7, 4.0, "why", "boom", "transient"),), ["relaunch"]),
        ((Over(96, "gave up", "boom"),), ["giveup"]),
        ((Over(94, None, None),), ["giveup"]),
        ((Over(0, None, None),), []),
        # Stopped while nothing ran, before and between attempts.
        ((Over(143, None, None),), []),
        ((LAUNCHED, STOP, ENDED._replace(asked=True), Over(143, None, None)), ["launch", "stop"]),
        # A server that was killed by somebody else is given up.
        ((LAUNCHED, ENDED, Over(143, None, "killed by SIGTERM")), ["launch", "crash", "giveup"]),
        # What was asked of the first attempt was not asked of the second.
        ((STOP._replace(restarts=True), LAUNCHED, ENDED, Over(1, None, "x")), ["stop", "launch", "crash", "giveup"]),
        ((Entered("ready", 7, None, None, 1.0), Working("load", 1.0, 2.0)), []),
        ((Progressed("load", None, None, None, 1.0, None, True),), []),
    ],
)  # fmt: skip
def test_each_occasion(news, expected):
    assert names(*news) == expected


def test_every_object_has_every_key_and_what_is_known():
    found = heard(Entered("starting", 7, None, None, 1.0), LAUNCHED, ENDED, Over(96, "gave up", "boom"))
    assert len({tuple(sorted(told)) for told in found}) == 1
    launch, crash, giveup = found
    assert (launch["version"], launch["run"], launch["engine"], launch["time"]) == (1, "vllm-8000", "vllm", 1000.0)
    assert (launch["attempt"], launch["pid"], launch["state"], launch["exit_status"]) == (7, 4711, "starting", None)
    assert (crash["exit_status"], crash["cause"], crash["class"], crash["signature"]) == (1, "boom", "transient", "sig")
    assert (crash["phases"], crash["survivors"], crash["advice"]) == ({"load": 1.234}, 0, ["more"])
    assert (giveup["exit_status"], giveup["why"], giveup["attempt"]) == (96, "gave up", 7)


def test_no_secret_is_told():
    crash, *_ = heard(
        ENDED._replace(cause="denied: Authorization: Bearer hf_abcdefghijklmnop", advice=("--api-key sk-12345678",))
    )
    assert "hf_abcdef" not in crash["cause"]
    assert "sk-1234" not in str(crash["advice"])
    assert crash["cause"].startswith("denied")


def test_nothing_to_say_is_null():
    (relaunch,) = heard(Relaunching(7, 0.0, "restart", "", "asked"))
    assert (relaunch["cause"], relaunch["why"], relaunch["after_s"]) == (None, "restart", 0.0)
    bare = ENDED._replace(cause="", failure="", signature="", log="", outcome="")
    for told in heard(Entered("", None, None, "", 1.0), LAUNCHED._replace(log=""), Stalled("", ""), WasHung(()), bare):
        assert "" not in told.values()
