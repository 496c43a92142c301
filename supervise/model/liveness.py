"""What tells of one engine that it still serves, and how long a user bears it if nothing does."""

from __future__ import annotations

import re
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Awake:
    """The gauge that is 0 while the engine sleeps: a metric, and a label with the value that it must have."""

    metric: str
    label: str
    value: str


@dataclass(frozen=True, slots=True)
class LivenessRule:
    """What an engine tells of itself while it serves.

    `hang_timeout_s` is how long it may stand still by default; the engine's own time-outs should come first. `metrics`
    is the path of its counters: `running` counts the requests that it works on, `progress` are those of which any
    moves while it does, the first of them is told to people. `completions` takes a canary, which may take
    `canary_timeout_s`. `generates`: its health endpoint has a token generated. `paused` maps paths to the fields of
    their answers that are true while it holds still on purpose. `says` are lines of its log that mean it gets no
    further, unless it still loads or compiles.
    """

    hang_timeout_s: float
    metrics: str | None = None
    running: str | None = None
    progress: tuple[str, ...] = ()
    awake: Awake | None = None
    completions: str | None = None
    canary_timeout_s: float = 60.0
    generates: bool = False
    paused: dict[str, str] = field(default_factory=dict)
    says: tuple[re.Pattern[str], ...] = ()


@dataclass(frozen=True, slots=True)
class Vigil:
    """What the user wants of it.

    `hang_timeout_s` in seconds, 0 for no vigil at all, None for what the profile says. With `canary_every_s` a
    completion of one token is asked for that often.
    """

    hang_timeout_s: float | None = None
    canary_every_s: float | None = None
