"""Acting: every destructive step goes through here and proves once more, at the moment of the act, what it destroys."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence

from supervise.group.ending import Deadlines, Ending, run
from supervise.group.leftovers import Leftovers
from supervise.host import files, procfs, shm, sockets
from supervise.model.process import Process, ProcessId
from supervise.model.slate import (
    EndProcesses,
    FileId,
    Finding,
    Outcome,
    Ownership,
    RemoveTree,
    Unlink,
    UnlinkSocket,
    Verdict,
)
from supervise.slate.request import Host


def end_processes(findings: Iterable[Finding], host: Host) -> list[Outcome]:
    """End all stale processes together, with their descendants, by the one stop path; then the segments they leave.

    Args:
        findings: those with an EndProcesses action count.
        host: clock and sleep.

    Returns:
        What became of the segments that they alone used; blocking, bounded by the deadlines for stale processes.
    """
    targets = [t for f in findings if isinstance(f.action, EndProcesses) for t in f.action.targets]
    leftovers = Leftovers(frozenset())
    ending = Ending(lambda: _living(targets), None, Deadlines.for_stale(), before_kill=leftovers.note)
    leftovers.note(_living(targets))
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
    """Remove a file or directory that a finding names, if it still is the one that was judged."""
    match finding.action:
        case Unlink(name, file):
            shm.unlink_if_unused(name, file)
        case UnlinkSocket(path, file):
            _unlink_socket(path, file)
        case RemoveTree(path, owner):
            files.remove_private_directory(path, owner)


def _living(targets: Sequence[ProcessId]) -> list[Process]:
    """The targets that still run, and everything below them."""
    processes = procfs.scan(cmdline=False, environ=False)
    found: dict[int, Process] = {}
    for target in targets:
        process = processes.get(target.pid)
        if process is None or process.id != target:
            continue
        found[target.pid] = process
        found.update({child.pid: child for child in procfs.descendants(processes, target.pid)})
    fresh = (procfs.read(pid, environ=False) for pid, process in found.items() if not process.gone)
    return [process for process in fresh if process is not None and not process.gone]


def _unlink_socket(path: str, file: FileId) -> None:
    parent, name = os.path.split(os.path.abspath(path))
    directory = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        state = os.stat(name, dir_fd=directory, follow_symlinks=False)
        same = FileId(state.st_dev, state.st_ino) == file and stat.S_ISSOCK(state.st_mode)
        if same and state.st_uid == os.geteuid() and path not in sockets.unix_listeners():
            os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        pass
    finally:
        os.close(directory)
