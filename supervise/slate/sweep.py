"""The sweep: the same function before a launch and in `clean`."""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from supervise.model.need import DeviceKind, MemoryRule, Need
from supervise.model.process import ProcessId
from supervise.model.slate import (
    Action,
    Await,
    EndProcesses,
    Finding,
    MoveAside,
    Outcome,
    Remove,
    RemoveCgroup,
    RemoveSysv,
    RemoveTree,
    SlateResult,
    Verdict,
)
from supervise.model.snapshot import GpuReading, Gpus, GpuStatus, Snapshot
from supervise.slate import act, artefacts
from supervise.slate.devices import needed
from supervise.slate.gpus import retold
from supervise.slate.judge import judge
from supervise.slate.request import Host, SlateRequest
from supervise.slate.survey import survey
from supervise.text import duration

_LOOK_EVERY_S = 0.1
# A driver is asked less often: each question costs it, and memory comes back in seconds.
_ASK_EVERY_S = 0.25
# Who uses a file may just be leaving; one that cannot be removed now will not be in a minute either.
_FILE_TRIES = 3
_INFINITIVE = {"ended": "end", "moved": "move", "removed": "remove"}


def sweep(request: SlateRequest, host: Host | None = None) -> SlateResult:
    """Clean the slate as far as it is ours, and verify it.

    Args:
        request: what for.
        host: the readers; the real host by default.

    Returns:
        What was found, done and verified; `clean` only if a last reading has nothing left that stands in the way.
        Blocking, bounded by the request's deadline plus one stop path.
    """
    host = host or Host()
    history = _History(host.clock())
    while True:
        snapshot = survey(request, host, frozenset(history.ended))
        if not snapshot.litter.bytecode:
            # The only kind of which a look takes longer than all else together; what is as it should be stays so.
            request = replace(request, packages=())
        findings = judge(snapshot, request)
        due = history.due(findings)
        repeated = history.note(findings, snapshot.gpus, host.clock())
        over = host.clock() - history.began >= request.deadline_s
        if request.dry_run or not due or over or request.cancelled():
            return _result(request, snapshot, findings, history, host.clock(), over=over)
        if repeated:
            host.sleep(_pause_s(due))
        history.add(due, _act(due, snapshot, request, host, history.began + request.deadline_s - host.clock()))


def _pause_s(due: Sequence[Finding]) -> float:
    return _ASK_EVERY_S if any(finding.kind == "gpu" for finding in due) else _LOOK_EVERY_S


class _History:
    """What was found with something to be done about it, since when, and until when."""

    def __init__(self, began: float) -> None:
        self.began = began
        self.seen: dict[tuple[str, str], tuple[Finding, float]] = {}
        self.gone: dict[tuple[str, str], float] = {}
        self.ended: set[ProcessId] = set()
        self.memory: dict[tuple[str, str], list[GpuReading]] = defaultdict(list)
        self._tried: Counter[tuple[str, str]] = Counter()
        self._extra: list[Outcome] = []

    def add(self, done: Sequence[Finding], outcomes: Sequence[Outcome]) -> None:
        """What has been acted upon, and what came to light and was dealt with meanwhile."""
        self._tried.update(finding.key for finding in done)
        self._extra.extend(outcomes)
        for finding in done:
            # Whoever ends them, what they held may return late.
            if isinstance(finding.action, EndProcesses | Await):
                self.ended.update(finding.action.targets)

    def due(self, findings: Sequence[Finding]) -> list[Finding]:
        """What can be acted upon; where an obstacle refuses the launch anyway, nothing is worth waiting for."""
        refused = any(f.blocking and (f.action is None or self.failed(f)) for f in findings)
        return [finding for finding in findings if self._is_due(finding, refused=refused)]

    def _is_due(self, finding: Finding, *, refused: bool) -> bool:
        match finding.action:
            case None:
                return False
            case Await():
                return not refused
            case EndProcesses():
                return True
        return not self.failed(finding)

    def failed(self, finding: Finding) -> bool:
        """Whether it has been tried often enough to remove or move it: it will not go by itself."""
        waits = finding.action is None or isinstance(finding.action, EndProcesses | Await)
        return not waits and self._tried[finding.key] >= _FILE_TRIES

    def note(self, findings: Sequence[Finding], gpus: Gpus, now: float) -> bool:
        """Add a reading; True if it brings nothing new, so that acting again at once would be a busy loop."""
        present = {finding.key: finding for finding in findings if finding.action is not None}
        fresh = [key for key in present if key not in self.seen]
        for key in fresh:
            self.seen[key] = (present[key], now)
        for device in gpus.devices:
            key = ("gpu", device.label)
            if key in self.seen and key not in self.gone and not device.error:
                self.memory[key].append(device)
        # What can no longer be waited for but still blocks has not gone.
        blocking = {finding.key for finding in findings if finding.blocking}
        for key in self.seen.keys() - present.keys() - blocking:
            self.gone.setdefault(key, now)
        return not fresh

    def outcomes(self, findings: Sequence[Finding], now: float, *, dry_run: bool) -> tuple[Outcome, ...]:
        """Each finding with what became of it; nothing was done to what has turned into a remark meanwhile."""
        remarks = {f.key for f in findings if f.action is None and not f.blocking}
        found = (
            Outcome(
                retold(finding, self.memory[key]),
                Verdict.GONE if key in self.gone else Verdict.REMAINS,
                _did(finding, dry_run=dry_run, gone=key in self.gone),
                self.gone.get(key, now) - since,
            )
            for key, (finding, since) in self.seen.items()
            if key not in remarks or isinstance(finding.action, EndProcesses | Await)
        )
        return (*found, *self._extra)


def _act(
    findings: Sequence[Finding], seen: Snapshot, request: SlateRequest, host: Host, within_s: float
) -> Sequence[Outcome]:
    """Processes first: what they hold can only be dealt with afterwards, at once or after the next look."""
    until = host.clock() + within_s
    outcomes = act.end_processes(findings, seen, request, host, within_s)
    for finding in findings:
        if host.clock() >= until:
            break
        act.remove(finding)
    return outcomes


def _result(
    request: SlateRequest,
    snapshot: Snapshot,
    findings: Sequence[Finding],
    history: _History,
    now: float,
    *,
    over: bool,
) -> SlateResult:
    late = over or request.cancelled()
    # What refuses nothing and could not be removed is told by its outcome.
    left = [finding for finding in findings if finding.blocking or not history.failed(finding)]
    idle = [
        _obstacle(finding, history, now, over=over) if late or history.failed(finding) else finding for finding in left
    ]
    idle = [finding for finding in idle if finding.action is None]
    result = SlateResult(
        run=request.run,
        outcomes=history.outcomes(findings, now, dry_run=request.dry_run),
        obstacles=tuple(finding for finding in idle if finding.blocking),
        remarks=tuple(finding for finding in idle if not finding.blocking),
        checks=(),
        seconds=now - history.began,
        gpus=snapshot.gpus,
    )
    return replace(result, checks=_checks(request, snapshot)) if result.clean else result


def _obstacle(finding: Finding, history: _History, now: float, *, over: bool) -> Finding:
    """What was acted upon or awaited in vain stands in the way like any other obstacle."""
    if finding.action is None:
        return finding
    if history.failed(finding):
        evidence = (*finding.evidence, f"could not be {_done(finding)} in {_FILE_TRIES} tries")
        return replace(finding, action=None, evidence=evidence, remedy=finding.remedy or _by_hand(finding.action))
    waited = duration(now - history.seen[finding.key][1])
    told = retold(finding, history.memory[finding.key], over=over)
    # What is advised for after the wait may be wrong in the middle of it.
    remedy = told.remedy if over or not isinstance(finding.action, Await) else "start again, to wait for it"
    return replace(told, action=None, evidence=(*told.evidence, f"still there after {waited}"), remedy=remedy)


def _by_hand(action: Action | None) -> str:
    """What shows why something stays, and what to do then."""
    match action:
        case Remove(path):
            return f"ls -l {shlex.quote(path)}; then remove or rename it by hand"
        case RemoveTree(path) | MoveAside(path):
            return f"ls -ld {shlex.quote(path)}; then remove or rename it by hand"
        case RemoveCgroup(path):
            return f"cat {shlex.quote(f'{path}/cgroup.procs')}; then rmdir it by hand"
        case RemoveSysv(id_):
            return f"ipcs -m -i {id_}; then ipcrm -m {id_}"
    return ""


def _did(finding: Finding, *, dry_run: bool, gone: bool) -> str:
    """What was done about it; nothing is said to be done that has not had its effect."""
    if isinstance(finding.action, Await):
        return "awaited"
    done = _done(finding)
    if dry_run:
        return f"would {_INFINITIVE[done]}"
    return done if gone else f"not {done}"


def _done(finding: Finding) -> str:
    kind = type(finding.action)
    return "ended" if kind is EndProcesses else "moved" if kind is MoveAside else "removed"


def _checks(request: SlateRequest, snapshot: Snapshot) -> tuple[str, ...]:
    """What a clean slate means, in sentences."""
    told = [f"port {reading.number} bindable" for reading in snapshot.ports]
    need = request.need
    if need is not None and need.devices.kind is not DeviceKind.NONE:
        told.append(_gpu_check(need, snapshot.gpus))
    return (*told, "no process of this run", *artefacts.check(snapshot, request))


def _gpu_check(need: Need, gpus: Gpus) -> str:
    if gpus.status is GpuStatus.ABSENT:
        return "no NVIDIA driver here"
    devices, _ = needed(need.devices, gpus.devices)
    names = ",".join(device.label.removeprefix("GPU ") for device in devices) or "-"
    if any(not device.total for device in devices):
        return f"GPU {names} shares the host's memory, not checked"
    checked = need.memory_fraction and need.memory_rule is MemoryRule.OF_TOTAL
    return f"GPU {names} free ≥ {need.memory_fraction:.0%}" if checked else f"GPU {names} read"
