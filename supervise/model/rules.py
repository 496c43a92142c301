"""What engines and their libraries leave behind, as data (profiles/leftovers/*.toml)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class LeftoverRules:
    """Names and places of leftovers; FIELD.md C5 is the source of the data.

    Regular expressions match a whole name. `segments` name an owner in /dev/shm (a process by the group `pid`, or the
    engine that made them), `anonymous` do not; `sockets` are names directly in the temporary directory. `batons` are
    globs of files whose existence is the lock, `soft_locks` of files that hold the pid of their owner. `artefacts` are
    globs of what engines dump for debugging, `sessions` those of directories of a cluster on this host. `caches` maps a
    word for --purge-cache to directories. `keep` are globs of what is never touched. Globs and directories are
    templates: `~`, `{tmp}`, `{user}`, `{uid}` and `${NAME:-default}`.
    """

    segments: tuple[re.Pattern[str], ...] = ()
    anonymous: tuple[re.Pattern[str], ...] = ()
    sockets: tuple[re.Pattern[str], ...] = ()
    batons: tuple[str, ...] = ()
    soft_locks: tuple[str, ...] = ()
    artefacts: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    caches: dict[str, tuple[str, ...]] = field(default_factory=dict)


def join(rules: Iterable[LeftoverRules]) -> LeftoverRules:
    """Several sets as one, without repetitions."""
    sets = list(rules)
    words = dict.fromkeys(word for each in sets for word in each.caches)
    return LeftoverRules(
        segments=tuple(dict.fromkeys(p for each in sets for p in each.segments)),
        anonymous=tuple(dict.fromkeys(p for each in sets for p in each.anonymous)),
        sockets=tuple(dict.fromkeys(p for each in sets for p in each.sockets)),
        batons=tuple(dict.fromkeys(g for each in sets for g in each.batons)),
        soft_locks=tuple(dict.fromkeys(g for each in sets for g in each.soft_locks)),
        artefacts=tuple(dict.fromkeys(g for each in sets for g in each.artefacts)),
        sessions=tuple(dict.fromkeys(g for each in sets for g in each.sessions)),
        keep=tuple(dict.fromkeys(g for each in sets for g in each.keep)),
        caches={word: tuple(dict.fromkeys(d for each in sets for d in each.caches.get(word, ()))) for word in words},
    )
