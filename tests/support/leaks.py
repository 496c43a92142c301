"""What a test may not leave behind: processes, /dev/shm names, temporary files, open descriptors."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from supervise.host import kernel, procfs, shm, signals, usage
from supervise.model.litter import FileId
from supervise.model.process import Process, ProcessId
from tests.support import readable
from tests.support.waiting import describe, wait_until

_SETTLE_S = 3.0


@contextmanager
def no_leaks() -> Iterator[None]:
    """Fail if more is there afterwards than before; processes are ended all the same, so that one leak stays one.

    Needs `become_reaper` first: every descendant then stays below this process, whatever it does to get away.
    """
    processes, segments, descriptors, files = set(_descendants()), _segments(), _descriptors(), _files()
    yield
    leaked = [
        *_processes_beyond(processes),
        *_beyond("segment", _abandoned(segments), set()),
        *_beyond("file", _files, files),
        *_beyond("descriptor", _descriptors, descriptors),
    ]
    assert not leaked, "left behind: " + "; ".join(leaked)


def become_reaper() -> None:
    """Have orphaned descendants re-parent to the process that runs the tests, not to pid 1."""
    kernel.become_subreaper()


def reap() -> None:
    """Collect the orphans that have ended and that no Popen is waiting for."""
    for process in _below():
        if process.gone and process.ppid == os.getpid():
            try:
                os.waitpid(process.pid, os.WNOHANG)
            except ChildProcessError:
                pass


def _processes_beyond(before: set[ProcessId]) -> list[str]:
    try:
        wait_until(lambda: not set(_descendants()) - before, _SETTLE_S)
    except AssertionError:
        leaked = sorted(set(_descendants()) - before, key=lambda target: target.pid)
        described = [f"process {describe(target)}" for target in leaked]
        for target in leaked:
            signals.send(target, signal.SIGKILL)
        wait_until(lambda: not any(map(signals.alive, leaked)), _SETTLE_S, failure=lambda: described)
        reap()
        return described
    reap()
    return []


def _beyond(what: str, read: Callable[[], set[str]], before: set[str]) -> list[str]:
    try:
        wait_until(lambda: not read() - before, _SETTLE_S)
    except AssertionError:
        return [f"{what} {name}" for name in sorted(read() - before)]
    return []


def _descendants() -> list[ProcessId]:
    return [process.id for process in _below() if not process.gone]


def _below() -> list[Process]:
    # Whoever has no child has no descendant; most tests start nobody.
    if procfs.children() == []:
        return []
    return procfs.descendants(procfs.scan(cmdline=False, environ=False), os.getpid())


def _segments() -> set[FileId]:
    uid = os.geteuid()
    return {segment.file for segment in shm.segments() if segment.uid == uid}


def _abandoned(before: set[FileId]) -> Callable[[], set[str]]:
    """New segments that nobody uses: those in use belong to other programs, ours have ended by then."""

    def abandoned() -> set[str]:
        fresh = _segments() - before
        new = {s.file: f"{shm.DIRECTORY}/{s.name}" for s in shm.segments() if s.file in fresh}
        used, _ = usage.users(new)
        return {os.path.basename(path) for file, path in new.items() if file not in used}

    return abandoned


def _files() -> set[str]:
    """What is in the temporary directory, but for what is kept there for all tests."""
    return set(os.listdir(tempfile.gettempdir())) - readable.kept()


def _descriptors() -> set[str]:
    """Ours but for the standard streams, which pytest itself exchanges when it is interrupted."""
    found = set()
    for fd in set(os.listdir("/proc/self/fd")) - {"0", "1", "2"}:
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:
            continue
        if target != "anon_inode:[eventpoll]" and not target.startswith("/proc/"):
            found.add(f"{fd} -> {target}")
    return found
