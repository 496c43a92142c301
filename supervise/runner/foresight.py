"""What can be known of a launch while the server whose place it would take still serves: nothing is touched for it.

Only what is sure counts here. What the clean slate would find changes once that server has gone, so that of all the
slate only ports are looked at, and of these only what others hold.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from supervise.host import procfs, sockets
from supervise.model.exits import Exit
from supervise.model.need import DeviceKind, Devices
from supervise.model.rules import LeftoverRules
from supervise.model.slate import Finding, SlateResult
from supervise.model.snapshot import PortReading, Snapshot
from supervise.model.telling import Address, Telling, TellingError
from supervise.runner import launch
from supervise.runner.clearing import for_launch
from supervise.runner.slate import preflight
from supervise.slate import ports, runs
from supervise.slate.request import Host, SlateRequest
from supervise.slate.survey import survey

if TYPE_CHECKING:
    from supervise.attempts.store import Run, Store
    from supervise.model.process import Process, ProcessId
    from supervise.report.console import Console
    from supervise.runner.plan import Plan


def sure_refusal(planned: Plan, state_dir: str) -> str | None:
    """Why a launch of the same command line is sure to be refused, for people.

    Args:
        planned: the launch.
        state_dir: directory of its run.

    Returns:
        None if it is not sure. Blocking, for a few seconds at most.
    """
    try:
        launch.resolve(planned.need.argv[0], os.environ)
    except launch.NotExecutableError as error:
        return error.text
    refused = _refusals(planned, state_dir)
    return "; ".join(f"{check.text}{f' ({check.fix})' if check.fix else ''}" for check in refused.refusals) or None


def foresee(planned: Plan, store: Store, run: Run, supervisor: ProcessId, console: Console) -> bool:
    """Look whether a launch can take the place of a run that lives.

    Args:
        planned: the launch.
        store: all runs.
        run: the one whose place it takes.
        supervisor: who has it.
        console: where it is said what stands in the way.

    Returns:
        Whether it can, as far as that can be told.

    Raises:
        TellingError: metrics that were asked for cannot be had.
        TierError: a tier that was required cannot be had.
    """
    began = time.monotonic()
    _insist_on_tiers(planned, run)
    request = _request(planned, store)
    result = _refusals(planned, run.path)
    snapshot = survey(request, Host())
    theirs = _Theirs(snapshot, request, supervisor)
    if planned.options.telling is not None:
        _insist_on_metrics(planned.options.telling, planned, theirs)
    result = replace(result, obstacles=_obstacles(snapshot, request, theirs), seconds=time.monotonic() - began)
    if not (result.refusals or result.obstacles):
        return True
    console.slate(result)
    console.note(f"nothing was touched: run {run.name} goes on")
    return False


class _Theirs:
    """Whether what holds something is of the run that is to be replaced, and so lets go of it."""

    def __init__(self, snapshot: Snapshot, request: SlateRequest, supervisor: ProcessId) -> None:
        self._snapshot, self._request, self._supervisor = snapshot, request, supervisor

    def __call__(self, process: Process) -> bool:
        line = (process, *self._snapshot.above(process))
        if any(each.id == self._supervisor for each in line):
            return True
        return runs.run_of(process, self._snapshot, self._request) == self._request.run

    def all(self, pids: Iterable[int]) -> bool:
        """Whether there are some, and all of them are."""
        found = [self._snapshot.processes.get(pid) for pid in pids]
        return bool(found) and all(process is not None and self(process) for process in found)


def _refusals(planned: Plan, state_dir: str) -> SlateResult:
    return SlateResult(planned.need.run, (), (), (), (), 0.0, preflight=preflight(planned, state_dir))


def _request(planned: Plan, store: Store) -> SlateRequest:
    """Ports alone: neither GPUs nor leftovers are looked at."""
    request = for_launch(replace(planned, profile=replace(planned.profile, packages=())), store.records(), dry_run=True)
    need = replace(planned.need, devices=Devices(DeviceKind.NONE), uds=None)
    return replace(request, need=need, rules=LeftoverRules(), artefacts=(), purge=(), packages=())


def _obstacles(snapshot: Snapshot, request: SlateRequest, theirs: _Theirs) -> tuple[Finding, ...]:
    """What others than that run hold, and nothing may be done about."""
    kept = tuple(_without(reading, snapshot, theirs) for reading in snapshot.ports if not _held_by(reading, theirs))
    found = ports.judge(replace(snapshot, ports=kept), request, ())
    return tuple(finding for finding in found if finding.blocking and finding.action is None)


def _held_by(reading: PortReading, theirs: _Theirs) -> bool:
    return theirs.all(holder.pid for holder in reading.holders)


def _without(reading: PortReading, snapshot: Snapshot, theirs: _Theirs) -> PortReading:
    others = (h for h in reading.holders if (p := snapshot.processes.get(h.pid)) is None or not theirs(p))
    return replace(reading, holders=tuple(others))


def _insist_on_tiers(planned: Plan, run: Run) -> None:
    if not planned.options.wanted.required:
        return
    from supervise.host import cgroupfs
    from supervise.runner.tiers import choose

    if (leaf := choose(planned.options.wanted, run.name, os.urandom(6).hex()).leaf) is not None:
        cgroupfs.remove(leaf)


def _insist_on_metrics(telling: Telling, planned: Plan, theirs: _Theirs) -> None:
    """The endpoint's port is free, or that of the run that is to be replaced."""
    if telling.metrics is None:
        return
    from supervise.runner.endpoint import listen

    try:
        listen(telling.metrics, planned.need.ports).close()
    except TellingError as error:
        if error.status == Exit.USAGE or not theirs.all(_listeners(telling.metrics)):
            raise


def _listeners(address: Address) -> list[int]:
    """Pids of those who listen there."""
    inodes = [listener.inode for listener in sockets.listeners(address.port, address.host)]
    return [holder.pid for holder in sockets.holders(inodes, procfs.scan().values())]
