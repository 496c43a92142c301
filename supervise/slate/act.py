"""Acting: every destructive step goes through here and proves once more, at the moment of the act, what it destroys."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping
from dataclasses import replace

from supervise.group.ending import Deadlines, Ending, is_resource_tracker, run
from supervise.group.leftovers import Leftovers
from supervise.group.members import Members
from supervise.group.suspension import Suspension
from supervise.host import files, procfs, removal, sysv
from supervise.model.process import Process, ProcessId
from supervise.model.slate import (
    EndProcesses,
    Finding,
    MoveAside,
    Outcome,
    Ownership,
    Remove,
    RemoveCgroup,
    RemoveSysv,
    RemoveTree,
    Verdict,
)
from supervise.model.snapshot import Snapshot
from supervise.slate import cgroups, policy
from supervise.slate.request import Host, SlateRequest


def end_processes(
    findings: Iterable[Finding], seen: Snapshot, request: SlateRequest, host: Host, within_s: float
) -> list[Outcome]:
    """End all stale processes together, with their descendants, by the one stop path; then the segments they leave.

    Args:
        findings: those with an EndProcesses action count.
        seen: the reading that they are from.
        request: whose slate it is: what other runs are at work on is spared, wherever it is.
        host: clock and sleep.
        within_s: how long it may take, in seconds; there is a little time for each step in any case.

    Returns:
        What became of the segments that they alone used; blocking.
    """
    targets = [t for f in findings if isinstance(f.action, EndProcesses) for t in f.action.targets]
    if not targets:
        return []
    doomed = _Doomed(targets, seen.processes, policy.spared(targets, seen, request))
    leftovers = Leftovers(frozenset())
    living = doomed.known()
    deadlines = Deadlines.for_stale(within_s)
    if all(procfs.ignores(process.pid, signal.SIGTERM) for process in living):
        # They were deaf before they were told: nothing is worth waiting for.
        deadlines = replace(deadlines, term_s=0.0)
    ending = Ending(doomed, None, deadlines, before_kill=leftovers.note)
    leftovers.note(living)
    run(ending, host.clock, host.sleep)
    if ending.survivors:
        return []
    left = leftovers.remove()
    verdicts = [*((path, Verdict.GONE) for path in left.removed), *((path, Verdict.REMAINS) for path in left.remaining)]
    return [_segment(path, verdict) for path, verdict in verdicts]


def _segment(path: str, verdict: Verdict) -> Outcome:
    finding = Finding("shm", path, Ownership.STALE, ("mapped by what was ended, unmapped now",), blocking=False)
    return Outcome(finding, verdict, "removed", 0.0)


def remove(finding: Finding) -> None:
    """Remove a file, directory or cgroup that a finding names, if it still is the one that was judged."""
    match finding.action:
        case Remove(path, file, type_, uid):
            removal.remove(path, file, type_, uid)
        case RemoveSysv(id_, key, creator):
            sysv.remove(id_, key, creator)
        case MoveAside(path, file, uid, aside):
            removal.move_aside(path, file, uid, aside)
        case RemoveTree(path, owner):
            files.remove_private_directory(path, owner)
        case RemoveCgroup(path):
            cgroups.remove(path)


class _Doomed(Members):
    """The targets and everything that was ever seen below them: a child whose parent dies first is not lost."""

    def __init__(self, targets: Iterable[ProcessId], seen: dict[int, Process], spared: frozenset[int]) -> None:
        self._known = set(targets)
        self._spared = spared | procfs.lineage()
        self._note_below(seen)

    def hold_still(self) -> bool:
        """No subreaper of ours is above them: the child of one that is killed would be lost among those of init."""
        Suspension(lambda: [member for member in self.living() if not is_resource_tracker(member)])
        return True

    def living(self) -> list[Process]:
        """Those of them that still run, and those below them."""
        self._note_below(procfs.scan(cmdline=False, environ=False))
        return self.known()

    def empty(self) -> bool:
        """Below those that are gone, nobody could be found any more."""
        return not self.known()

    def known(self) -> list[Process]:
        """Those of them that still run, with their command lines: the resource tracker is told by it."""
        fresh = (procfs.read(target.pid, environ=False) for target in self._known)
        return [process for process in fresh if process and process.id in self._known and not process.gone]

    def _note_below(self, processes: dict[int, Process]) -> None:
        there = {pid: process for pid, process in processes.items() if pid not in self._spared}
        for target in [target for target in self._known if _is_there(target, there)]:
            self._known.update(child.id for child in procfs.descendants(there, target.pid))


def _is_there(target: ProcessId, processes: Mapping[int, Process]) -> bool:
    process = processes.get(target.pid)
    return process is not None and process.id == target
