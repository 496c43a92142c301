"""The sweep: the same function before a launch and in `clean`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from supervise.model.need import DeviceKind
from supervise.model.slate import (
    Await,
    EndProcesses,
    Finding,
    GpuStatus,
    Outcome,
    RemoveTree,
    SlateResult,
    Snapshot,
    Unlink,
    UnlinkSocket,
    Verdict,
)
from supervise.slate import act
from supervise.slate.gpus import needed
from supervise.slate.judge import judge
from supervise.slate.request import Host, SlateRequest
from supervise.slate.survey import survey

_LOOK_EVERY_S = 0.1


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
        snapshot = survey(request, host)
        findings = judge(snapshot, request)
        due = _due(findings)
        repeated = history.note(findings, host.clock())
        late = host.clock() - history.began >= request.deadline_s or request.cancelled()
        if request.dry_run or not due or late:
            return _result(request, snapshot, findings, history, host.clock())
        if repeated:
            host.sleep(_LOOK_EVERY_S)
        history.add(_act(due, host))


class _History:
    """What was found with something to be done about it, since when, and until when."""

    def __init__(self, began: float) -> None:
        self.began = began
        self.seen: dict[tuple[str, str], tuple[Finding, float]] = {}
        self.gone: dict[tuple[str, str], float] = {}
        self._extra: list[Outcome] = []

    def add(self, outcomes: Sequence[Outcome]) -> None:
        """What came to light, and was dealt with, while something else was being dealt with."""
        self._extra.extend(outcomes)

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
                _did(finding, dry_run=dry_run),
                self.gone.get(key, now) - since,
            )
            for key, (finding, since) in self.seen.items()
        )
        return (*found, *self._extra)


def _due(findings: Sequence[Finding]) -> list[Finding]:
    """What can be acted upon; where an obstacle refuses the launch anyway, nothing is worth waiting for."""
    refused = any(finding.action is None and finding.blocking for finding in findings)
    waits = () if refused else (Await,)
    kinds = (EndProcesses, Unlink, UnlinkSocket, RemoveTree, *waits)
    return [finding for finding in findings if isinstance(finding.action, kinds)]


def _act(findings: Sequence[Finding], host: Host) -> Sequence[Outcome]:
    """Processes first: what they hold, and the names they leave, can only be dealt with afterwards."""
    if any(isinstance(finding.action, EndProcesses) for finding in findings):
        return act.end_processes(findings, host)
    for finding in findings:
        act.remove(finding)
    return ()


def _result(
    request: SlateRequest, snapshot: Snapshot, findings: Sequence[Finding], history: _History, now: float
) -> SlateResult:
    idle = [finding for finding in findings if finding.action is None]
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


def _did(finding: Finding, *, dry_run: bool) -> str:
    if isinstance(finding.action, Await):
        return "awaited"
    ends = isinstance(finding.action, EndProcesses)
    if dry_run:
        return "would end" if ends else "would remove"
    return "ended" if ends else "removed"


def _checks(request: SlateRequest, snapshot: Snapshot) -> tuple[str, ...]:
    """What a clean slate means, in sentences."""
    told = [f"port {reading.number} bindable" for reading in snapshot.ports]
    need = request.need
    if need is not None and need.devices.kind is not DeviceKind.NONE:
        if snapshot.gpus.status is GpuStatus.ABSENT:
            told.append("no NVIDIA driver here")
        else:
            devices, _ = needed(need.devices, snapshot.gpus.devices)
            free = f" free ≥ {need.memory_fraction:.0%}" if need.memory_fraction else " read"
            told.append(f"GPU {','.join(str(device.index) for device in devices) or '-'}{free}")
    return (*told, "no process of this run")
