"""Looks after a server that serves: slowly, one question at a time, and it takes two proofs to call it hung."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

from supervise import lifecycle as life
from supervise.lifecycle import hang

if TYPE_CHECKING:
    from supervise.lifecycle.hang import Seen
    from supervise.model.liveness import LivenessRule, Vigil
    from supervise.runner.plan import Plan
    from supervise.runner.world import World

# Looks within the patience. Each costs a server in good health a few ms, and a line in its log: more often than every
# 10 s is only looked at where there would be too few to say that a sign held all the while.
_LOOKS, _SLOWEST_S, _OFTEN_S = 12, 30.0, 10.0
_FEWEST, _FASTEST_S = 6, 0.25
# A health endpoint that has a token generated is asked that seldom.
_HEALTH_EVERY_S = 60.0
# We may be stopped ourselves, or the whole machine: time that we did not live through proves nothing.
_BEAT_S, _LATE_S = 5.0, 5.0


class Looking(Protocol):
    """See Looker."""

    def look(self, health_s: float | None, canary_s: float | None, doubtful: bool) -> Seen:
        """One look; blocking."""

    def last_question(self, within_s: float) -> Seen:
        """One completion; blocking."""


class Liveness:
    """Watches one attempt from its readiness to its end.

    Args:
        looker: looks.
        patience_s: how long a sign must hold to be a proof, in seconds.
        health_every_s: how often its health endpoint is asked, and `health_s` how long an answer may take.
        canary_every_s: how often a token is asked for, None for never, and `canary_s` how long that may take.
        clock: monotonic seconds.
        in_thread: runs what blocks.
        tell: says a sentence to people.
        post: takes `lifecycle.Hung`.
        useless: says why canaries are no use, None while they are.
    """

    def __init__(
        self,
        looker: Looking,
        patience_s: float,
        *,
        health_every_s: float,
        health_s: float,
        canary_every_s: float | None,
        canary_s: float,
        clock: Callable[[], float],
        in_thread: Callable[..., Awaitable[Any]],
        tell: Callable[[str], None],
        post: Callable[[life.Event], None],
        useless: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._looker, self._patience_s = looker, patience_s
        self._health = _Turn(health_every_s, health_s)
        self._canary = None if canary_every_s is None else _Turn(canary_every_s, canary_s)
        self._canary_s = canary_s
        self._clock, self._in_thread, self._tell, self._post = clock, in_thread, tell, post
        self._useless = useless
        self._tasks: list[asyncio.Task[None]] = []
        self._watch: hang.Watch | None = None
        self._said: set[str] = set()
        self._slept = False

    def start(self) -> None:
        """It is ready: begin."""
        self._tasks = [asyncio.ensure_future(self._look_again_and_again()), asyncio.ensure_future(self._beat())]

    def stop(self) -> None:
        """It is to be stopped, or is over. A question that is out is left to its time-out."""
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()

    async def _beat(self) -> None:
        while True:
            before = self._clock()
            await asyncio.sleep(_BEAT_S)
            self._slept = self._slept or self._clock() - before > _BEAT_S + _LATE_S

    async def _look_again_and_again(self) -> None:
        while not await self._hung():
            await asyncio.sleep(pause(self._patience_s))

    async def _hung(self) -> bool:
        """Look once; True once it has been said that it hangs."""
        verdict = await self._take(self._look)
        if verdict is None:
            self._said.discard(_DOUBT)
            return False
        if verdict.hung:
            # Whatever we have seen: a server that gives us a token is not hung.
            verdict = await self._take(self._ask)
        if verdict is not None and verdict.hung:
            self._post(life.Hung(verdict.sentences))
            return True
        if verdict is not None:
            self._say(f"{'; '.join(verdict.sentences)}. That alone proves nothing, it is left alone.", _DOUBT)
        return False

    async def _take(self, question: Callable[[], Awaitable[Seen]]) -> hang.Verdict | None:
        try:
            seen = await question()
        except Exception as error:  # noqa: BLE001 - the server must not end because we cannot look
            self._say(f"whether the server still serves cannot be seen: {type(error).__name__}: {error}")
            seen = hang.Seen(self._clock(), excuse="we cannot look")
        if self._slept:
            seen, self._slept = hang.Seen(self._clock(), excuse="we did not run ourselves"), False
        self._watch = hang.after(self._watch, seen)
        return hang.judge(self._watch, self._patience_s)

    async def _look(self) -> Seen:
        now, doubtful = self._clock(), bool(self._watch and hang.judge(self._watch, self._patience_s))
        canary_s = None if self._canary is None else self._canary.due(now)
        seen: Seen = await self._in_thread(self._looker.look, self._health.due(now), canary_s, doubtful)
        if seen.note is not None:
            self._say(seen.note, _BLIND)
        if self._canary is not None and (why := self._useless()) is not None:
            self._say(f"no canary: {why}")
            self._canary = None
        return seen

    async def _ask(self) -> Seen:
        """What was seen before holds, unless it answers."""
        assert self._watch is not None
        last: Seen = await self._in_thread(self._looker.last_question, self._canary_s)
        if last.canary is not None and last.canary.answered:
            return hang.Seen(self._clock(), canary=last.canary)
        return self._watch.seen

    def _say(self, text: str, about: str | None = None) -> None:
        """Once."""
        if (about or text) not in self._said:
            self._said.add(about or text)
            self._tell(text)


_DOUBT, _BLIND = "doubt", "blind"


def pause(patience_s: float) -> float:
    """Seconds between two looks: a twelfth of the patience, 10 to 30 s; of a short one a sixth."""
    every_s = max(min(_OFTEN_S, patience_s / _FEWEST), min(_SLOWEST_S, patience_s / _LOOKS))
    return max(_FASTEST_S, every_s)


class _Turn:
    """A question that is asked every so often."""

    def __init__(self, every_s: float, within_s: float) -> None:
        self._every_s, self._within_s = every_s, within_s
        self._last: float | None = None

    def due(self, now: float) -> float | None:
        """How long it may take, in seconds, if it is time for it; None if not."""
        if self._last is not None and now - self._last < self._every_s:
            return None
        self._last = now
        return self._within_s


def liveness(
    plan: Plan,
    world: World,
    root: int,
    log: str,
    *,
    tell: Callable[[str], None],
    post: Callable[[life.Event], None],
) -> Liveness | None:
    """What looks after this server.

    Args:
        plan: what is run.
        world: the outside.
        root: pid below which all its processes run.
        log: path of its log.
        tell: says a sentence to people.
        post: takes events.

    Returns:
        None where nobody wants it, or nobody knows how.
    """
    vigil, rule = plan.options.vigil, plan.profile.liveness
    patience_s = _patience(vigil, rule)
    served = plan.need.http is not None or plan.need.uds is not None
    if rule is None or not patience_s or not served:
        if rule is None and (vigil.hang_timeout_s or vigil.canary_every_s):
            tell(f"how the server tells that it hangs is not known (profile {plan.profile.name}): nobody looks")
        elif rule is not None and not served and (vigil.hang_timeout_s or vigil.canary_every_s):
            tell("it has no HTTP address that is known beforehand: nobody looks whether it hangs")
        return None
    from supervise.probes.canary import Canary
    from supervise.probes.http import Client
    from supervise.runner.looking import Looker

    client, ready = Client(plan.need, plan.need.key), plan.profile.ready
    canary = Canary(client, rule, ready.models, world.clock)
    looker = Looker(rule, plan.need, client, canary, root, world.probe, world.effort, log, world.clock)
    return Liveness(
        looker,
        patience_s,
        health_every_s=min(_HEALTH_EVERY_S, patience_s / 2) if rule.generates else 0.0,
        health_s=ready.timeout_s,
        canary_every_s=vigil.canary_every_s,
        canary_s=min(rule.canary_timeout_s, patience_s),
        clock=world.clock,
        in_thread=world.in_thread,
        tell=tell,
        post=post,
        useless=lambda: canary.useless,
    )


def _patience(vigil: Vigil, rule: LivenessRule | None) -> float:
    if vigil.hang_timeout_s is not None:
        return vigil.hang_timeout_s
    return 0.0 if rule is None else rule.hang_timeout_s
