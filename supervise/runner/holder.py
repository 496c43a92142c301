"""One group per run: taking its lock, and saying who holds it."""

from __future__ import annotations

import signal
import time
from typing import Any

from supervise.attempts.elsewhere import elsewhere, listens
from supervise.attempts.roles import living
from supervise.attempts.store import Run
from supervise.group.ending import Deadlines
from supervise.host import procfs, signals
from supervise.model.process import ProcessId
from supervise.report.console import Console
from supervise.text import duration, printable, redact, shorten

__all__ = ["living", "take_lock"]

_SLACK_S = 10.0
_LOOK_EVERY_S = 0.1
_WIDTH = 400
_ENDING = "its keeper is still ending the group of a supervise that was killed"
_ELSEWHERE = "it is held in another PID namespace, by a supervise that begins or by the keeper of one that was killed"


def take_lock(run: Run, deadlines: Deadlines, console: Console) -> int | None:
    """Take the run's lock; wait for a keeper that is still ending the group of a dead supervise.

    Args:
        run: the run.
        deadlines: of its stop path, which bound the wait.
        console: where it is said who holds the lock.

    Returns:
        The lock's descriptor, None if the run is live.

    Raises:
        StoreError: the lock file cannot be opened.
    """
    lock = run.lock()
    if lock is not None:
        return lock
    until = time.monotonic() + deadlines.total_s + _SLACK_S
    told = False
    while time.monotonic() < until:
        state = run.read_state()
        if supervisor := living(state, "supervisor"):
            refuse(run, supervisor, console)
            return None
        away = elsewhere(run)
        if away and listens(run):
            _refuse_elsewhere(run, console)
            return None
        if not told:
            console.waiting(f"run {run.name}: {_ELSEWHERE if away else _ENDING}")
            told = True
        continue_stopped(state)
        time.sleep(_LOOK_EVERY_S)
        lock = run.lock()
        if lock is not None:
            return lock
    if elsewhere(run):
        _refuse_elsewhere(run, console)
        return None
    console.line("slate", f"{run.name}: the lock is held, and not by a supervise that can be seen from here")
    console.note(f"find the holder with: fuser -v {run.path}/lock")
    return None


def continue_stopped(state: dict[str, Any] | None) -> None:
    """A keeper or guard that somebody stopped (Ctrl-Z reaches them not, `kill -STOP` does) would never let go."""
    for role in ("keeper", "guard"):
        helper = living(state, role)
        process = procfs.read(helper.pid, cmdline=False, environ=False) if helper else None
        if helper is not None and process is not None and process.state == "T":
            signals.send(helper, signal.SIGCONT)


def refuse(run: Run, supervisor: ProcessId, console: Console) -> None:
    """Say who holds a run, and what can be done about it."""
    console.line("slate", f"{run.name}: 1 finding")
    console.note(f"BLOCKED run {run.name} is live: supervise {supervisor} holds it{condition(run, supervisor)}")
    if command := _command_line(supervisor):
        console.note(f"        it runs: {command}")
    console.note(f"        end it:         supervise stop {run.name}")
    console.note("        take its place: --replace, which ends it first")
    console.note("        run beside it:  --name OTHER, on ports and GPUs of its own")


def _refuse_elsewhere(run: Run, console: Console) -> None:
    """The same where its pids mean nothing to us."""
    console.line("slate", f"{run.name}: 1 finding")
    console.note(f"BLOCKED run {run.name} is live in another PID namespace: its lock is held there")
    console.note(f"        end it:         supervise stop {run.name}" + ("" if listens(run) else ", in that namespace"))
    console.note("        run beside it:  --name OTHER, on ports and GPUs of its own")


def condition(run: Run, supervisor: ProcessId) -> str:
    """How long it has been there and what it does, to be appended."""
    state = run.read_state() or {}
    phase = f" ({state['phase']})" if state.get("phase") and state.get("state") == "starting" else ""
    told = (
        f"for {duration(procfs.age_s(supervisor.ticks))}",
        f"{state['state']}{phase}" if state.get("state") else "",
        f"attempt {state['attempt']}" if state.get("attempt") else "",
    )
    return printable("".join(f", {each}" for each in told if each))


def _command_line(supervisor: ProcessId) -> str:
    """Without secrets."""
    process = procfs.read(supervisor.pid, environ=False)
    argv = redact(process.argv or ()) if process is not None and process.id == supervisor else []
    return shorten(" ".join(argv), _WIDTH)
