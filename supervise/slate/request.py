"""What a clean slate is asked for, and its seams to the host."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from supervise.host import nvml, procfs, shm, sockets
from supervise.host.sockets import Listener
from supervise.model.evict import Evict
from supervise.model.litter import Segment
from supervise.model.need import Need
from supervise.model.process import HostId, Process, ProcessId
from supervise.model.profile import Profile
from supervise.model.rules import LeftoverRules
from supervise.model.snapshot import Gpus, PortReading, Record
from supervise.slate import cgroups, writers
from supervise.slate.cgroups import Population


@dataclass(frozen=True, slots=True)
class SlateRequest:
    """A slate to be cleaned.

    `need` is None when only leftovers of the run are of interest. `deadline_s` bounds everything together, in seconds;
    `cancelled` is asked between steps. `helpers` are pids of ours that are there for the coming launch: never touched.
    `evict` says how far it may go, `evict_uids` whose processes root may treat as its own, `consent` which processes
    the user has agreed to see ended, whatever `evict` says. `rules` are the leftovers
    that are looked for beside this run's own, `env` is what their templates are filled in with: the environment that
    the server will see. `artefacts` are globs of the user's, `purge` words of caches to be moved aside, `packages` the
    directories of packages whose bytecode is looked at, `missing` those that were named and are nowhere, `python` the
    interpreter that compiles it.
    """

    run: str
    need: Need | None
    profiles: tuple[Profile, ...]
    records: tuple[Record, ...] = ()
    deadline_s: float = 100.0
    dry_run: bool = False
    helpers: frozenset[int] = frozenset()
    cancelled: Callable[[], bool] = lambda: False
    evict: Evict = Evict.STALE
    evict_uids: frozenset[int] = frozenset()
    consent: frozenset[ProcessId] = frozenset()
    rules: LeftoverRules = field(default_factory=LeftoverRules)
    env: Mapping[str, str] = field(default_factory=dict)
    artefacts: tuple[str, ...] = ()
    purge: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    python: str | None = None


@dataclass(frozen=True, slots=True)
class Host:
    """What the slate reads; tests put other readers here."""

    scan: Callable[[], dict[int, Process]] = procfs.scan
    lineage: Callable[[], frozenset[int]] = procfs.lineage
    host_id: Callable[[], HostId] = procfs.host_id
    namespace: Callable[[int], int | None] = procfs.pid_namespace
    probe_port: Callable[[str, int], PortReading] = sockets.probe_port
    listeners: Callable[[int, str], tuple[Listener, ...]] = sockets.listeners
    bound: Callable[[int], tuple[int, ...]] = sockets.bound
    gpus: Callable[[], Gpus] = nvml.read
    segments: Callable[[], tuple[Segment, ...]] = shm.segments
    writers: Callable[[Iterable[Process], Iterable[str]], dict[ProcessId, str]] = writers.find
    cgroups: Callable[[Iterable[Record], Mapping[int, Process]], Population] = cgroups.population
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = field(default=time.sleep)
