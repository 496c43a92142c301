"""When a server that was ready counts as hung: two independent proofs, each of which has held for long.

No single sign is one. A vLLM whose engine is stopped answers `/health` with 200 for ever, an idle one says nothing for
ever, one with a long queue keeps a canary waiting, and a large model that compiles looks like all of that (FIELD.md
rows 113 to 120, D3). Two looks at the same thing are one proof, and a server whose counters move is never hung.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from supervise.model.process import ProcessId
from supervise.text import plural


class Proof(Enum):
    """What speaks for a hang."""

    COUNTERS = "requests of others run, and no counter of the engine moves"
    HEALTH = "its health endpoint does not answer, or not with 200"
    CANARY = "a completion that we ask for does not come"
    STOPPED = "a process of its is stopped, or waits in the kernel"
    STILL = "neither its processes nor its GPUs do anything, while something is asked of it"
    SAID = "its log says again and again that it gets no further"


INDEPENDENT = frozenset(
    frozenset(pair)
    for pair in (
        # What the engine reports, against what comes back of it, what the kernel sees, and what it says itself. It
        # reports on requests of others: that ours does not come back and that no token of it is counted is one sight.
        (Proof.COUNTERS, Proof.CANARY),
        (Proof.COUNTERS, Proof.HEALTH),
        (Proof.COUNTERS, Proof.STOPPED),
        (Proof.COUNTERS, Proof.STILL),
        (Proof.COUNTERS, Proof.SAID),
        # What comes back, against what the kernel sees and what it says. Not against HEALTH: it is the same door.
        (Proof.CANARY, Proof.STOPPED),
        (Proof.CANARY, Proof.STILL),
        (Proof.CANARY, Proof.SAID),
        (Proof.HEALTH, Proof.STOPPED),
        (Proof.HEALTH, Proof.STILL),
        # STOPPED and STILL are one thing seen twice; SAID beside what the kernel sees may be an idle server.
    )
)
"""The pairs that prove a hang; of any other two one may be the cause, or only another look, of the other."""

SAID_OFTEN = 3
"""So often it must say so: vLLM does once or twice whenever it compiles (FIELD.md row 114)."""


class Counters(NamedTuple):
    """What the engine counts: requests that run, and figures of which one moves while it works; the first is `name`."""

    running: float
    progress: tuple[float, ...]
    name: str


class Asked(NamedTuple):
    """A question to the server: when it was begun, how long it was given, and whether it was answered well."""

    began: float
    within_s: float
    answered: bool


@dataclass(frozen=True, slots=True)
class Seen:
    """One look, begun at `at`; times in monotonic seconds. What could not be seen, or was not asked, is None.

    `generates`: for `health` a token had to be generated. `stopped` are members that are stopped or wait in the kernel,
    with what they call themselves. `still`: nothing has been done since the last look. `said` counts new lines that say
    it gets no further. With `excuse` nothing of this counts, nor anything before it. `note` is what people should know
    of our looking.
    """

    at: float
    counters: Counters | None = None
    health: Asked | None = None
    generates: bool = False
    canary: Asked | None = None
    stopped: Mapping[ProcessId, str] = field(default_factory=dict)
    still: bool | None = None
    said: int = 0
    excuse: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Watch:
    """What all looks together say.

    `since` is when each sign that is there now began. `stood` is when the counters were first seen as they are,
    `asked` since when something is asked of the engine, `others` since when by others, `moved` when it last was seen to
    work.
    """

    seen: Seen
    since: Mapping[Proof, float] = field(default_factory=dict)
    stood: float | None = None
    asked: float | None = None
    others: float | None = None
    moved: float | None = None
    members: Mapping[ProcessId, float] = field(default_factory=dict)
    said: int = 0


class Verdict(NamedTuple):
    """Sentences for people, and whether they are enough."""

    hung: bool
    sentences: tuple[str, ...]


def after(watch: Watch | None, seen: Seen) -> Watch:
    """What is known after one more look.

    Args:
        watch: what was known before, None at the first look.
        seen: the look.
    """
    if watch is None or seen.excuse is not None:
        watch = Watch(Seen(seen.at))
    if seen.excuse is not None:
        return replace(watch, seen=seen)
    moved = _moved(watch.seen.counters, seen.counters) or (seen.canary is not None and seen.canary.answered)
    stood = _stood(watch, seen)
    questions = {proof: _unanswered(proof, watch, seen) for proof in (Proof.CANARY, Proof.HEALTH)}
    since = {proof: began for proof, began in questions.items() if began is not None}
    members = {member: watch.members.get(member, seen.at) for member in seen.stopped}
    if members:
        since[Proof.STOPPED] = min(members.values())
    asked = _asked(watch, seen, since)
    others = _others(watch, seen, since, stood)
    if others is not None and stood is not None and not moved:
        since[Proof.COUNTERS] = max(others, stood)
    if seen.still and (asked is not None or Proof.HEALTH in since):
        since[Proof.STILL] = watch.since.get(Proof.STILL, seen.at)
    said = seen.said + (0 if moved else watch.said)
    if said:
        since[Proof.SAID] = watch.since.get(Proof.SAID, seen.at)
    moved_at = seen.at if moved else watch.moved
    return Watch(_with_last(watch, seen), since, stood, asked, others, moved_at, members, said)


def _moved(before: Counters | None, now: Counters | None) -> bool:
    return before is not None and now is not None and before.progress != now.progress


def _stood(watch: Watch, seen: Seen) -> float | None:
    if seen.counters is None:
        return None
    if watch.stood is None or _moved(watch.seen.counters, seen.counters):
        return seen.at
    return watch.stood


def _unanswered(proof: Proof, watch: Watch, seen: Seen) -> float | None:
    """Since when no such question has been answered; between two of them it stays as it is."""
    question = seen.canary if proof is Proof.CANARY else seen.health
    if question is None:
        return watch.since.get(proof)
    return None if question.answered else watch.since.get(proof, question.began)


def _asked(watch: Watch, seen: Seen, since: Mapping[Proof, float]) -> float | None:
    """Since when the engine has something to do: requests of others run, or one of ours is not answered."""
    asked = _ours(seen, since)
    if seen.counters is not None and seen.counters.running > 0:
        asked.append(seen.at if watch.asked is None else watch.asked)
    return min(asked, default=None)


def _ours(seen: Seen, since: Mapping[Proof, float]) -> list[float]:
    """Since when questions of ours are out that the engine itself would have to answer."""
    through = (Proof.CANARY, Proof.HEALTH) if seen.generates else (Proof.CANARY,)
    return [since[proof] for proof in through if proof in since]


def _others(watch: Watch, seen: Seen, since: Mapping[Proof, float], stood: float | None) -> float | None:
    """Since when more requests run than those of ours that had been begun when the counters stood still."""
    if seen.counters is None or stood is None:
        return None
    ours = sum(began < stood for began in _ours(seen, since))
    if seen.counters.running <= ours:
        return None
    return seen.at if watch.others is None else watch.others


def _with_last(watch: Watch, seen: Seen) -> Seen:
    """The look, with the last question of each kind: it is told how long that was given."""
    return replace(seen, health=seen.health or watch.seen.health, canary=seen.canary or watch.seen.canary)


def judge(watch: Watch, patience_s: float) -> Verdict | None:
    """Decide.

    Args:
        watch: what is known.
        patience_s: how long a sign must hold to be a proof, in seconds.

    Returns:
        Hung with two independent proofs or more; not hung, but worth a word, with proofs that are not; None without
        any, or while the engine was seen to work within that time.
    """
    now = watch.seen.at
    if watch.seen.excuse is not None or (watch.moved is not None and now - watch.moved < patience_s):
        return None
    held = [proof for proof in Proof if _holds(proof, watch, patience_s)]
    if not held:
        return None
    hung = any(pair.issubset(held) for pair in INDEPENDENT)
    return Verdict(hung, tuple(_sentence(proof, watch) for proof in held))


def _holds(proof: Proof, watch: Watch, patience_s: float) -> bool:
    since = watch.since.get(proof)
    if since is None:
        return False
    if proof is Proof.SAID:
        return watch.said >= SAID_OFTEN
    return watch.seen.at - since >= patience_s


def _sentence(proof: Proof, watch: Watch) -> str:
    seen = watch.seen
    lasts = span(seen.at - watch.since[proof])
    match proof:
        case Proof.COUNTERS if seen.counters is not None:
            figure = f"{seen.counters.name} stands at {seen.counters.progress[0]:.0f}"
            running = int(seen.counters.running)
            return f"{plural(running, 'request')} {'run' if running > 1 else 'runs'}, no token for {lasts} ({figure})"
        case Proof.HEALTH if seen.health is not None:
            return f"its health endpoint has not answered well for {lasts}"
        case Proof.CANARY if seen.canary is not None:
            return f"the canary got no answer in {span(seen.canary.within_s)}, and none for {lasts}"
        case Proof.STOPPED:
            member = min(watch.members, key=lambda each: watch.members[each])
            return f"{seen.stopped[member]} (pid {member.pid}) has been stopped, or stuck in the kernel, for {lasts}"
        case Proof.STILL:
            return f"neither its processes nor its GPUs have done anything for {lasts}"
        case Proof.SAID:
            return f"its log has said {watch.said} times since then that it gets no further"
    return str(proof.value)


def span(seconds: float) -> str:
    """A time in which seconds count: 45 s, 6 min 12 s, 2 h 5 min."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
