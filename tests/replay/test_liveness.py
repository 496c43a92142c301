"""Whole vigils in virtual time: what the loop asks, when, and what it makes of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from supervise import lifecycle as life
from supervise.lifecycle.hang import Asked, Counters, Seen
from supervise.model.liveness import Vigil
from supervise.model.need import Need
from supervise.model.process import ProcessId
from supervise.profiles.load import load
from supervise.runner.liveness import Liveness, liveness, pause
from supervise.runner.plan import Options, Plan
from supervise.runner.worlds import _world
from tests.support.virtual import play

PATIENCE_S = 360.0
STUCK = Counters(3.0, (8124.0, 3.0), "tokens")
ENGINE = {ProcessId(42, 7): "VLLM::EngineCor"}


@dataclass
class Scene:
    """What each look finds, as a function of the time; and whether the last question is answered."""

    finds: Callable[[float], dict]
    answers: bool = False
    canary_every_s: float | None = None
    generates: bool = False
    told: list[str] = field(default_factory=list)
    posted: list[life.Event] = field(default_factory=list)
    asked: list[tuple[float, str]] = field(default_factory=list)
    out: int = 0
    useless: str | None = None
    clock: Callable[[], float] | None = None

    def watch(self, seconds: float) -> Scene:
        play(self._watch(seconds))
        return self

    async def _watch(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self.now = self.clock or loop.time
        vigil = Liveness(
            self,
            PATIENCE_S,
            health_every_s=60.0 if self.generates else 0.0,
            health_s=5.0,
            canary_every_s=self.canary_every_s,
            canary_s=60.0,
            clock=self.now,
            in_thread=self._in_thread,
            tell=self.told.append,
            post=self.posted.append,
            useless=lambda: self.useless,
        )
        vigil.start()
        await asyncio.sleep(seconds)
        vigil.stop()
        before = len(self.asked)
        await asyncio.sleep(1000)
        assert len(self.asked) == before

    async def _in_thread(self, function, *args):
        """A canary that gets no answer takes all its time, in which nobody may ask anything else."""
        assert self.out == 0
        self.out += 1
        try:
            seen = function(*args)
            await asyncio.sleep(60.0 if seen.canary and not seen.canary.answered else 0.2)
            return seen
        finally:
            self.out -= 1

    def look(self, health_s, canary_s, doubtful) -> Seen:
        at = self.now()
        self.asked += [(at, name) for name, s in (("look", 1), ("health", health_s), ("canary", canary_s)) if s]
        found = self.finds(at)
        if isinstance(found, Exception):
            raise found
        canary = found.pop("canary", None)
        if canary_s is not None and canary is not None:
            found["canary"] = Asked(at, canary_s, answered=canary)
        return Seen(at, **found)

    def last_question(self, within_s) -> Seen:
        self.asked.append((self.now(), "last"))
        return Seen(self.now(), canary=Asked(self.now(), within_s, answered=self.answers))

    def count(self, what: str) -> int:
        return sum(name == what for _, name in self.asked)


def test_two_proofs_end_it_once_and_nobody_is_asked_any_more() -> None:
    scene = Scene(lambda _: {"counters": STUCK, "stopped": ENGINE}).watch(3600)
    (hung,) = scene.posted
    assert isinstance(hung, life.Hung)
    assert hung.proofs[0].startswith("3 requests run, no token for 6 min")
    assert len(hung.proofs) == 2
    assert PATIENCE_S <= scene.asked[-1][0] <= PATIENCE_S + 60


def test_a_server_that_answers_the_last_question_is_not_hung() -> None:
    scene = Scene(lambda _: {"counters": STUCK, "stopped": ENGINE}, answers=True).watch(3600)
    assert scene.posted == []
    assert scene.count("last") >= 2


def test_one_proof_is_told_once_and_never_acted_upon() -> None:
    scene = Scene(lambda _: {"counters": STUCK}).watch(4 * 3600)
    assert scene.posted == []
    assert len(scene.told) == 1
    assert "no token for" in scene.told[0]
    assert scene.count("last") == 0


def test_a_doubt_that_comes_back_is_told_again() -> None:
    def finds(at: float) -> dict:
        return {"counters": STUCK if at % 7200 < 3600 else Counters(3.0, (at, 3.0), "tokens")}

    assert len(Scene(finds).watch(2 * 7200 - 10).told) == 2


def test_a_server_that_is_slow_and_goes_on_is_left_alone() -> None:
    slow = Scene(lambda at: {"counters": Counters(3.0, (at // 300, 3.0), "tokens"), "still": True, "stopped": ENGINE})
    slow.watch(4 * 3600)
    assert (slow.posted, slow.told) == ([], [])


def test_an_idle_server_is_left_alone_for_ever_and_asked_seldom() -> None:
    idle = Scene(lambda _: {"counters": Counters(0.0, (5.0, 0.0), "tokens"), "still": True}).watch(4 * 3600)
    assert (idle.posted, idle.told) == ([], [])
    assert idle.count("look") <= 4 * 3600 / 29


def test_sleep_puts_an_end_to_what_was_seen_before() -> None:
    def finds(at: float) -> dict:
        return {"excuse": "it sleeps"} if at % 300 > 250 else {"counters": STUCK, "stopped": ENGINE}

    assert Scene(finds).watch(4 * 3600).posted == []


def test_canaries_that_do_not_come_back_beside_counters_that_stand_are_a_hang() -> None:
    scene = Scene(lambda _: {"counters": STUCK, "canary": False}, canary_every_s=60.0).watch(3600)
    (hung,) = scene.posted
    assert hung.proofs[0].startswith("3 requests run, no token for")
    assert hung.proofs[1].startswith("the canary got no answer in 1 min 0 s")


def test_canaries_that_do_not_come_back_while_nobody_else_asks_are_one_proof() -> None:
    idle = Counters(0.0, (5.0, 0.0), "tokens")
    scene = Scene(lambda _: {"counters": idle, "canary": False}, canary_every_s=60.0).watch(4 * 3600)
    assert scene.posted == []
    assert len(scene.told) == 1
    assert scene.told[0].endswith("That alone proves nothing, it is left alone.")


def test_what_people_should_know_of_our_looking_is_told_once() -> None:
    notes = iter(f"GET /metrics is answered {status}" for status in (500, 404, *[404] * 1000))
    assert Scene(lambda _: {"note": next(notes)}).watch(3600).told == ["GET /metrics is answered 500"]


@pytest.mark.parametrize("patience_s", [30, 59.9, 60, 119, 120, 360, 3600])
def test_looks_are_seldom_and_still_enough_to_say_that_a_sign_held_all_the_while(patience_s: float) -> None:
    assert patience_s / pause(patience_s) >= 6
    assert pause(patience_s) >= (10 if patience_s >= 60 else patience_s / 6)
    assert pause(patience_s) <= 30


def test_the_shortest_patience_makes_no_storm() -> None:
    assert pause(0.001) == 0.25


@pytest.mark.parametrize(
    ("need", "vigil", "told"),
    [
        (Need("vllm", "r", (), ()), Vigil(60.0), 1),
        (Need("vllm", "r", (), ()), Vigil(canary_every_s=60.0), 1),
        (Need("vllm", "r", (), ()), Vigil(), 0),
        (Need("vllm", "r", (), (), uds="/s"), Vigil(60.0), 0),
    ],
    ids=["patience", "canary", "unasked", "unix socket"],
)
def test_who_wants_it_where_nobody_can_look_is_told(need: Need, vigil: Vigil, told: int) -> None:
    said: list[str] = []
    plan = Plan(load("vllm"), need, {}, Options(vigil=vigil))
    world = SimpleNamespace(clock=time.monotonic, probe=None, effort=None, in_thread=None)
    made = liveness(plan, world, 1, "/log", tell=said.append, post=said.append)
    assert len(said) == told
    assert all(each.startswith("it has no HTTP address") for each in said)
    assert (made is None) == (need.uds is None)


def test_one_attempt_asks_for_names_until_they_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """All looks of a start-up and of a vigil go through the one that remembers them."""
    made: list[Need] = []

    class Asker:
        def __init__(self, need: Need, _rule: object) -> None:
            made.append(need)

        def ready(self, _members: object) -> int:
            return len(made)

    monkeypatch.setattr("supervise.probes.Asker", Asker)
    plan = Plan(load("generic"), Need("generic", "r", (), ()), {}, Options())
    worlds = [_world(plan, None, None, 0, None, SimpleNamespace(), None) for _ in range(2)]
    assert [world.probe(list) for world in worlds for _ in range(3)] == [1, 1, 1, 2, 2, 2]


def test_canaries_that_come_back_say_nothing_and_come_as_often_as_wanted() -> None:
    scene = Scene(lambda _: {"canary": True}, canary_every_s=120.0).watch(3600)
    assert (scene.posted, scene.told) == ([], [])
    assert 25 <= scene.count("canary") <= 30


def test_canaries_that_wait_behind_a_long_queue_do_not_end_a_busy_server() -> None:
    busy = Scene(lambda at: {"counters": Counters(256.0, (at, 256.0), "t"), "canary": False}, canary_every_s=60.0)
    assert busy.watch(4 * 3600).posted == []


def test_a_useless_canary_is_told_once_and_not_sent_again() -> None:
    scene = Scene(lambda _: {}, canary_every_s=60.0, useless="POST /v1/completions is answered 404").watch(3600)
    assert scene.told == ["no canary: POST /v1/completions is answered 404"]
    assert scene.count("canary") == 1


def test_a_health_that_generates_is_asked_seldom() -> None:
    scene = Scene(lambda _: {}, generates=True).watch(3600)
    assert scene.count("health") <= 61
    assert scene.count("look") > scene.count("health")


def test_a_look_that_fails_ends_nothing_and_is_told_once() -> None:
    scene = Scene(
        lambda at: OSError(24, "Too many open files") if at % 300 > 150 else {"counters": STUCK, "stopped": ENGINE}
    )
    scene.watch(3600)
    assert scene.posted == []
    assert len(scene.told) == 1
    assert "Too many open files" in scene.told[0]


def test_time_that_we_did_not_live_through_proves_nothing() -> None:
    """A laptop that was closed, a supervise that was stopped: the clock jumps, the loop's timers do not."""
    jumped = [0.0]

    def finds(at: float) -> dict:
        if at - jumped[0] > 200:
            jumped[0] = at + 1000
            shift[0] += 1000
        return {"counters": STUCK, "stopped": ENGINE}

    shift = [0.0]
    scene = Scene(finds, clock=lambda: asyncio.get_running_loop().time() + shift[0])
    scene.watch(4 * 3600)
    assert scene.posted == []
