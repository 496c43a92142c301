"""One look at a server that serves: everything that may tell whether it still does, one question after the other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from supervise.host import standstill
from supervise.lifecycle.hang import Asked, Seen
from supervise.model.effort import NO_LOAD
from supervise.model.need import DeviceKind
from supervise.model.probe import Answer
from supervise.probes import metrics
from supervise.probes.canary import Canary, flagged
from supervise.text import shorten

if TYPE_CHECKING:
    from supervise.model.effort import Look
    from supervise.model.liveness import LivenessRule
    from supervise.model.need import Need
    from supervise.model.probe import Probed
    from supervise.model.process import Process, ProcessId
    from supervise.probes.http import Asks

# An idle engine polls, and whoever answers us works for that: less than this share of one core is nothing.
_IDLE_SHARE = 0.05
# Bytes per second, from disk or network: what loads an adapter or new weights reads more.
_IDLE_BYTES = 1 << 20
_TAIL = 64 * 1024
# Whoever has so long a name may have a longer one (proc(5), comm).
_COMM = 15
_LONGEST = 80
# Compilers, as they are called in /proc/PID/comm. Torch's pool of compile workers is no sign: it waits for ever.
_COMPILERS = (
    "nvcc", "cicc", "ptxas", "fatbinary", "nvlink", "cudafe++", "ninja", "cmake", "cc1", "cc1plus", "clang", "clang++",
    "hipcc", "ld", "lld", "llc", "opt",
)  # fmt: skip

Members = Callable[[], Iterable["Process"]]


class Looker:
    """Looks; blocking, for a thread. Never asks a second question before the first is answered or timed out.

    Args:
        rule: what the engine tells of itself.
        need: where it listens.
        client: asks it.
        canary: asks it for a token.
        root: pid below which all its processes run.
        probe: asks its health endpoint, and whether it is ours that listens.
        effort: looks at what is done below a process, and by GPUs if True; None if nobody can.
        log: path of its log.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        rule: LivenessRule,
        need: Need,
        client: Asks,
        canary: Canary,
        root: int,
        probe: Callable[[Members], Probed],
        effort: Callable[[int, bool], Look] | None,
        log: str,
        clock: Callable[[], float],
    ) -> None:
        self._rule, self._need, self._client, self._canary = rule, need, client, canary
        self._root, self._probe, self._effort, self._clock = root, probe, effort, clock
        self._words = _Words(log, rule)
        self._before: tuple[float, Look] | None = None
        self._counted, self._paused = rule.metrics is not None, dict(rule.paused)
        self._titles: dict[ProcessId, str] = {}

    def look(self, health_s: float | None, canary_s: float | None, doubtful: bool) -> Seen:
        """Look once.

        Args:
            health_s: how long its health endpoint is given, in seconds, for what is told of it; None not to ask it.
            canary_s: how long a token is given, None not to ask for one.
            doubtful: something speaks for a hang: it is asked whether it holds still on purpose, through the engine.

        Raises:
            OSError: /proc could not be looked at.
        """
        at, said = self._clock(), self._words.said()
        members = standstill.members(self._root)
        self._learn_titles(members)
        still, idle = self._done(at)
        stopped = {
            each.id: self._titles.get(each.id, each.comm)
            for each in members
            if each.state == standstill.STOPPED or (each.state == standstill.WAITING and each.id in idle)
        }
        told = metrics.read(self._client, self._rule) if self._counted else metrics.UNTOLD
        self._counted = self._counted and not told.never
        note = told.why and f"{told.why}: no counters of the engine can prove a hang, nor that there is none"
        excuse = _excuse(members) or ("it sleeps" if told.asleep else None)
        if excuse is None and doubtful and (path := flagged(self._client, self._paused)):
            excuse = f"{path} says so"
        if excuse is not None:
            return Seen(at, excuse=excuse, note=note)
        health = self._healthy(health_s, answers=told.counters is not None)
        canary = None if canary_s is None else self._canary.ask(canary_s)
        return Seen(at, told.counters, health, self._rule.generates, canary, stopped, still, said, note=note)

    def last_question(self, within_s: float) -> Seen:
        """Ask a server that seems to hang for one token, whether the user wants canaries or not."""
        at = self._clock()
        return Seen(at, canary=self._canary.ask(within_s, last=True))

    def _learn_titles(self, members: list[Process]) -> None:
        """While they are well: to read the name of one that hangs may take for ever."""
        for each in members:
            cut = len(each.comm.encode()) >= _COMM
            if cut and each.id not in self._titles and each.state not in (standstill.STOPPED, standstill.WAITING):
                self._titles[each.id] = shorten(standstill.title(each), _LONGEST)

    def _healthy(self, within_s: float | None, *, answers: bool) -> Asked | None:
        """Where health is not asked of the engine, a server that tells its counters need not be asked for it."""
        began = self._clock()
        if answers and not self._rule.generates:
            return Asked(began, 0.0, answered=True)
        if within_s is None:
            return None
        probed = self._probe(lambda: standstill.members(self._root))
        if probed.answer is Answer.NOT_OURS:
            # Somebody else's answer is none of ours.
            return None
        return Asked(began, within_s, answered=probed.answer is Answer.YES)

    def _done(self, now: float) -> tuple[bool | None, frozenset[ProcessId]]:
        """Whether nothing has been done since the last look, and which processes did not use the CPU at all."""
        if self._effort is None:
            return None, frozenset()
        look = self._effort(self._root, self._need.devices.kind is not DeviceKind.NONE)
        before, self._before = self._before, (now, look)
        if before is None:
            return None, frozenset()
        seconds = max(now - before[0], 1e-3)
        return _still(before[1], look, seconds), _unmoved(before[1], look)


def _unmoved(before: Look, now: Look) -> frozenset[ProcessId]:
    old = before.efforts
    return frozenset(pid for pid, effort in now.efforts.items() if pid in old and old[pid].cpu_s == effort.cpu_s)


def _still(before: Look, now: Look, seconds: float) -> bool | None:
    """None where an accelerator may be at work and nobody tells."""
    if now.gpu is None or (now.gpu == NO_LOAD and standstill.other_accelerators()):
        return None
    common = before.efforts.keys() & now.efforts.keys()
    if now.efforts.keys() != before.efforts.keys() or now.gpu.percent > 0:
        return False
    cpu = sum(now.efforts[pid].cpu_s - before.efforts[pid].cpu_s for pid in common)
    read = sum((now.efforts[pid].read or 0) - (before.efforts[pid].read or 0) for pid in common)
    received = (now.received or 0) - (before.received or 0)
    return cpu < _IDLE_SHARE * seconds and read + received < _IDLE_BYTES * seconds


def _excuse(members: list[Process]) -> str | None:
    compiler = next((each for each in members if each.comm in _COMPILERS), None)
    if compiler is not None:
        return f"{compiler.comm} compiles"
    if (held := standstill.debugged(members)) is not None:
        return f"pid {held} has a debugger"
    return None


class _Words:
    """Counts lines that say it gets no further, in what was written since the last look, in its last 64 KiB at most.

    A log that has been shortened meanwhile is taken up again where it ends: a line too few is a proof too few.
    """

    def __init__(self, path: str, rule: LivenessRule) -> None:
        self._path, self._patterns = path, rule.says
        self._size: int | None = None

    def said(self) -> int:
        if not self._patterns:
            return 0
        try:
            with open(self._path, "rb") as file:
                before, self._size = self._size, os.fstat(file.fileno()).st_size
                if before is None or self._size <= before:
                    return 0
                file.seek(max(before, self._size - _TAIL))
                text = file.read(_TAIL).decode("utf-8", "replace")
        except OSError:
            return 0
        return sum(any(pattern.search(line) for pattern in self._patterns) for line in text.splitlines())
