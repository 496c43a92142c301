"""What an engine counts, as its Prometheus endpoint tells it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from http import HTTPStatus
from typing import NamedTuple

from supervise.lifecycle.hang import Counters
from supervise.model.liveness import LivenessRule
from supervise.probes.http import CLOSED, MOST_BYTES, Asks, Response

_TIMEOUT_S = 10.0


class Told(NamedTuple):
    """Its counters, None where it does not tell them; and whether it sleeps, None where nobody knows.

    `why` says what is wrong with an answer without counters, and `never` that there will be none.
    """

    counters: Counters | None
    asleep: bool | None
    why: str | None = None
    never: bool = False


UNTOLD = Told(None, None)


def read(client: Asks, rule: LivenessRule) -> Told:
    """Ask once; blocking, 10 s at most.

    Args:
        client: of the server.
        rule: which metrics matter.

    Returns:
        What it tells, summed over engines and processes.
    """
    if rule.metrics is None:
        return UNTOLD
    answer = client.get(rule.metrics, _TIMEOUT_S)
    return UNTOLD if answer is None else _read(answer, rule)


def _read(answer: Response, rule: LivenessRule) -> Told:
    asked = f"GET {rule.metrics}"
    if answer.status != HTTPStatus.OK:
        return Told(None, None, f"{asked} is answered {answer.status}", never=answer.status in CLOSED)
    if len(answer.body) >= MOST_BYTES:
        # Of one that is cut nobody knows what its sums lack.
        return Told(None, None, f"{asked} is longer than {MOST_BYTES >> 20} MiB")
    told = parse(answer.body.decode("utf-8", "replace"), rule)
    return told if told.counters else told._replace(why=f"{asked} does not tell {rule.running} and {rule.progress[0]}")


def parse(text: str, rule: LivenessRule) -> Told:
    """Read the answer.

    Args:
        text: in the text format of Prometheus.
        rule: which metrics matter.
    """
    assert rule.running is not None
    samples = _samples(text, {rule.running, *rule.progress, *([rule.awake.metric] if rule.awake else [])})
    if samples is None:
        return UNTOLD
    running = [each.value for each in samples if each.name == rule.running]
    # Each on its own, not their sum: one may fall as another rises. One that an engine does not have stays at 0.
    progress = tuple(sum(each.value for each in samples if each.name == name) for name in rule.progress)
    known = any(each.name in rule.progress for each in samples)
    counters = Counters(sum(running), (*progress, sum(running)), rule.progress[0]) if running and known else None
    return Told(counters, _asleep(samples, rule))


class _Sample(NamedTuple):
    name: str
    labels: dict[str, str]
    value: float


def _samples(text: str, names: Iterable[str]) -> list[_Sample] | None:
    """The samples of these names; None if that is not what it is. A large server has thousands of others."""
    from prometheus_client.parser import text_string_to_metric_families as families

    wanted = tuple(names)
    lines = [line for line in text.splitlines() if line.startswith(wanted)]
    try:
        found = [each for family in families("\n".join(lines) + "\n") for each in family.samples]
    except ValueError:
        return None
    # NaN and Inf are numbers to Prometheus, and no counts.
    counts = (each for each in found if each.name in wanted and math.isfinite(each.value))
    return [_Sample(each.name, dict(each.labels), each.value) for each in counts]


def _asleep(samples: Iterable[_Sample], rule: LivenessRule) -> bool | None:
    """With several engines it sleeps as soon as one does."""
    if rule.awake is None:
        return None
    awake = [
        each.value
        for each in samples
        if each.name == rule.awake.metric and each.labels.get(rule.awake.label) == rule.awake.value
    ]
    return None if not awake else min(awake) == 0
