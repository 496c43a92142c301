"""The sweep: the same function before a launch and in `clean`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from supervise.model.need import DeviceKind, MemoryRule, Need
from supervise.model.process import ProcessId
from supervise.model.slate import (
    Await,
    EndProcesses,
    Finding,
    Gpus,
    GpuStatus,
    Outcome,
    SlateResult,
    Snapshot,
    Verdict,
)
from supervise.slate import act
from supervise.slate.gpus import needed
from supervise.slate.judge import judge
from supervise.slate.request import Host, SlateRequest
from supervise.slate.survey import survey
from supervise.text import duration

_LOOK_EVERY_S = 0.1
# Who uses a file may just be leaving; one that cannot be removed now will not be in a minute either.
_FILE_TRIES = 3


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
        findings = judge(snapshot, request)
        due = history.due(findings)
        repeated = history.note(findings, host.clock())
        late = host.clock() - history.began >= request.deadline_s or request.cancelled()
        if request.dry_run or not due or late:
            return _result(request, snapshot, findings, history, host.clock(), late=late)
        if repeated:
            host.sleep(_LOOK_EVERY_S)
        history.add(due, _act(due, host, history.began + request.deadline_s - host.clock()))


class _History:
    """What was found with something to be done about it, since when, and until when."""

    def __init__(self, began: float) -> None:
        self.began = began
        self.seen: dict[tuple[str, str], tuple[Finding, float]] = {}
        self.gone: dict[tuple[str, str], float] = {}
        self.ended: set[ProcessId] = set()
        self._tried: Counter[tuple[str, str]] = Counter()
        self._extra: list[Outcome] = []

    def add(self, done: Sequence[Finding], outcomes: Sequence[Outcome]) -> None:
        """What has been acted upon, and what came to light and was dealt with meanwhile."""
        self._tried.update(finding.key for finding in done)
        self._extra.extend(outcomes)
        for finding in done:
            if isinstance(finding.action, EndProcesses):
                self.ended.update(finding.action.targets)

    def due(self, findings: Sequence[Finding]) -> list[Finding]:
        """What can be acted upon; where an obstacle refuses the launch anyway, nothing is worth waiting for."""
        refused = any(finding.action is None and finding.blocking for finding in findings)
        return [finding for finding in findings if self._is_due(finding, refused=refused)]

    def _is_due(self, finding: Finding, *, refused: bool) -> bool:
        match finding.action:
            case None:
                return False
            case Await():
                return not refused
            case EndProcesses():
                return True
        return self._tried[finding.key] < _FILE_TRIES

    def note(self, findings: Sequence[Finding], now: float) -> bool:
        """Add a reading; True if it brings nothing new, so that acting again at once would be a busy loop."""
        present = {finding.key: finding for finding in findings if finding.action is not None}
        fresh = [key for key in present if key not in self.seen]
        for key in fresh:
            self.seen[key] = (present[key], now)
        for key in self.seen.keys() - present.keys():
            self.gone.setdefault(key, now)
        return not fresh

    def outcomes(self, now: float, *, dry_run: bool) -> tuple[Outcome, ...]:
        """Each finding with what became of it."""
        found = (
            Outcome(
                finding,
                Verdict.GONE if key in self.gone else Verdict.REMAINS,
                _did(finding, dry_run=dry_run, gone=key in self.gone),
                self.gone.get(key, now) - since,
            )
            for key, (finding, since) in self.seen.items()
        )
        return (*found, *self._extra)


def _act(findings: Sequence[Finding], host: Host, within_s: float) -> Sequence[Outcome]:
    """Processes first: what they hold, and the names they leave, can only be dealt with afterwards."""
    if ending := [finding for finding in findings if isinstance(finding.action, EndProcesses)]:
        return act.end_processes(ending, host, within_s)
    for finding in findings:
        act.remove(finding)
    return ()


def _result(
    request: SlateRequest,
    snapshot: Snapshot,
    findings: Sequence[Finding],
    history: _History,
    now: float,
    *,
    late: bool,
) -> SlateResult:
    idle = [_obstacle(finding, history, now, late=late) for finding in findings]
    idle = [finding for finding in idle if finding.action is None]
    result = SlateResult(
        run=request.run,
        outcomes=history.outcomes(now, dry_run=request.dry_run),
        obstacles=tuple(finding for finding in idle if finding.blocking),
        remarks=tuple(finding for finding in idle if not finding.blocking),
        checks=(),
        seconds=now - history.began,
        gpus=snapshot.gpus,
    )
    return replace(result, checks=_checks(request, snapshot)) if result.clean else result


def _obstacle(finding: Finding, history: _History, now: float, *, late: bool) -> Finding:
    """What was acted upon or awaited in vain stands in the way like any other obstacle."""
    if not late or finding.action is None:
        return finding
    waited = duration(now - history.seen[finding.key][1])
    return replace(finding, action=None, evidence=(*finding.evidence, f"still there after {waited}"))


def _did(finding: Finding, *, dry_run: bool, gone: bool) -> str:
    if isinstance(finding.action, Await):
        return "awaited"
    ends = isinstance(finding.action, EndProcesses)
    if dry_run:
        return "would end" if ends else "would remove"
    if ends:
        return "ended" if gone else "killed"
    return "removed"


def _checks(request: SlateRequest, snapshot: Snapshot) -> tuple[str, ...]:
    """What a clean slate means, in sentences."""
    told = [f"port {reading.number} bindable" for reading in snapshot.ports]
    need = request.need
    if need is not None and need.devices.kind is not DeviceKind.NONE:
        told.append(_gpu_check(need, snapshot.gpus))
    return (*told, "no process of this run")


def _gpu_check(need: Need, gpus: Gpus) -> str:
    if gpus.status is GpuStatus.ABSENT:
        return "no NVIDIA driver here"
    devices, _ = needed(need.devices, gpus.devices)
    names = ",".join(str(device.index) for device in devices) or "-"
    if any(not device.total for device in devices):
        return f"GPU {names} shares the host's memory, not checked"
    checked = need.memory_fraction and need.memory_rule is MemoryRule.OF_TOTAL
    return f"GPU {names} free ≥ {need.memory_fraction:.0%}" if checked else f"GPU {names} read"
