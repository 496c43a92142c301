"""`supervise status`: every run, what it does, and what its group takes."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from typing import Any

import psutil

from supervise.attempts.access import denied, expect_ours, refusal
from supervise.attempts.elsewhere import elsewhere
from supervise.attempts.roles import living
from supervise.attempts.store import Run
from supervise.group.members import living_below
from supervise.host import procfs
from supervise.model.process import ProcessId
from supervise.runner.asking import RefusedError, ask, suspended
from supervise.text import duration, home, plural, printable, shorten
from supervise.verbs.following import progress
from supervise.verbs.select import choose, left_alone, say, store

_NOT_RUNNING = 3
_ANSWER_S = 1.0
_STARTING = ("percent", "eta_s", "stalled")
_WIDTH = 200


def status(name: str | None, *, as_json: bool) -> int:
    """Show one run, or all.

    Args:
        name: the run; None for all.
        as_json: one JSON object on standard output instead of a table.

    Returns:
        0; with a name 3 if that run is not running (as `systemctl status` does), 2 if there is no such run.

    Raises:
        StoreError: it, or all there is, is not ours to see.
    """
    if name is None:
        known = store()
        hidden = denied(known)
        shown = [_describe(run) for run in known.runs() if run.name not in {each.name for each in hidden}]
        if not shown:
            expect_ours(hidden)
        for each in hidden:
            say(f"supervise: {refusal(each)}")
    else:
        run = choose(name, live_only=False)
        if run is None:
            return 2
        shown = [_describe(run)]
    if as_json:
        sys.stdout.write(json.dumps({"version": 1, "runs": shown}, indent=1) + "\n")
    else:
        sys.stdout.write("".join(f"{_line(run)}\n" for run in shown) or "no run yet\n")
    return _NOT_RUNNING if name is not None and not shown[0]["live"] else 0


def _describe(run: Run) -> dict[str, Any]:
    if elsewhere(run):
        return _describe_elsewhere(run)
    state = run.read_state() or {}
    supervisor = living(state, "supervisor")
    keeper = living(state, "keeper") or living(state, "guard")
    if not (supervisor or keeper):
        # What it wrote last, it wrote while it lived.
        state = run.read_state() or {}
    members = living_below(keeper.pid) if keeper else left_alone(run)
    attempt = run.latest()
    outcome = (attempt.read("outcome") if attempt else None) or {}
    failed = outcome if not (supervisor or keeper) else state if supervisor else {}
    return {
        "run": run.name,
        "live": supervisor is not None or keeper is not None,
        "elsewhere": False,
        "state": _state(state, supervisor) if supervisor else "orphaned" if members else "ended",
        "phase": state.get("phase"),
        **_progress(run, state, supervisor),
        "tiers": state.get("tiers", []) if supervisor or keeper else [],
        "attempt": attempt.number if attempt else None,
        "outcome": None if supervisor or keeper else outcome.get("outcome", "unknown"),
        "exit_status": None if supervisor or keeper else outcome.get("exit_status"),
        "cause": _cause(failed),
        "ended": None if supervisor or keeper else state.get("ended"),
        "relaunch_at": failed.get("relaunch_at"),
        "supervisor": supervisor.pid if supervisor else None,
        "keeper": keeper.pid if keeper else None,
        "members": [member.pid for member in members],
        "rss_bytes": sum(_rss(member.pid) for member in members),
        "uptime_s": round(procfs.age_s((living(state, "leader") or supervisor).ticks), 1) if supervisor else None,
        "log": attempt.log if attempt else None,
        "time": round(time.time(), 3),
    }


def _describe_elsewhere(run: Run) -> dict[str, Any]:
    """A run in another PID namespace: what it says itself, else what it wrote down; its pids mean nothing here."""
    state, said = run.read_state() or {}, None
    with contextlib.suppress(RefusedError):
        said = ask(run, "status", _ANSWER_S)
    told = said or state
    began = (state.get("leader") or state.get("supervisor") or {}).get("ticks")
    attempt = run.latest()
    cause = told.get("cause")
    return {
        "run": run.name,
        "live": True,
        "elsewhere": True,
        "state": told.get("state"),
        "phase": told.get("phase"),
        **{name: (said or {}).get(name) for name in _STARTING},
        "tiers": state.get("tiers", []),
        "attempt": attempt.number if attempt else None,
        "outcome": None,
        "exit_status": None,
        "cause": _cause(told) if isinstance(cause, dict) else cause,
        "ended": None,
        "relaunch_at": told.get("relaunch_at"),
        "supervisor": None,
        "keeper": None,
        "members": None,
        "rss_bytes": None,
        # It is there for sure only if it has answered.
        "uptime_s": round(procfs.age_s(began), 1) if began is not None and said else None,
        "log": attempt.log if attempt else None,
        "time": round(time.time(), 3),
    }


def _progress(run: Run, state: dict[str, Any], supervisor: ProcessId | None) -> dict[str, Any]:
    """What a supervise knows of a start that goes on, and nobody writes down."""
    said = None
    if supervisor is not None and state.get("state") == "starting" and not suspended(supervisor):
        with contextlib.suppress(RefusedError):
            said = ask(run, "status", _ANSWER_S)
    return {name: (said or {}).get(name) for name in _STARTING}


def _cause(said: dict[str, Any]) -> str | None:
    """What somebody printed, or else what is known of it."""
    cause = said.get("cause") or {}
    return cause.get("text") or cause.get("meaning") or None


def _state(state: dict[str, Any], supervisor: ProcessId) -> str | None:
    """What its supervise has written; one that is stopped (Ctrl-Z) could not."""
    return "suspended" if suspended(supervisor) else state.get("state")


def _rss(pid: int) -> int:
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


def _told(run: dict[str, Any]) -> str:
    """What is known of a run that is not live."""
    if run["members"]:
        left = plural(len(run["members"]), "process")
        return f" {left} without a supervise: supervise clean --name {run['run']}"
    ended = f" {run['ended']['why']}, exit {run['ended']['exit_status']}" if run["ended"] else ""
    if run["attempt"] is None:
        return ended or " never launched"
    told = " no record of how it ended: its supervise was killed, or could not write"
    if run["exit_status"] is not None:
        cause = f": {shorten(run['cause'], _WIDTH)}" if run["cause"] else ""
        told = f" {run['outcome']}, exit {run['exit_status']}{cause}"
    elif ended:
        told = " no record of how it ended"
    return f"{ended}; attempt {run['attempt']}:{told}" if ended else told


def _held(run: dict[str, Any]) -> str:
    """What the group of a live run takes, where that can be seen."""
    if run["elsewhere"]:
        unheard = ", its control socket does not answer" if run["uptime_s"] is None else ""
        return f"in another PID namespace{unheard}"
    return f"{len(run['members'])} processes, {run['rss_bytes'] / 2**30:.1f} GiB resident"


def _line(run: dict[str, Any]) -> str:
    cause = shorten(run["cause"] or "no cause printed", _WIDTH)
    head = f"{run['run']:<20} {run['state'] or 'unknown':<10} attempt {run['attempt'] or '-':<4}"
    if run["state"] == "waiting" and run["live"] and run["relaunch_at"] is None:
        told = f" waits for a change of a watched file, it failed: {cause}"
    elif run["relaunch_at"] is not None:
        told = f" relaunch in {duration(max(0.0, run['relaunch_at'] - run['time']))}, it failed: {cause}"
    elif run["live"]:
        phase = f" ({progress(run)})" if run["state"] == "starting" and progress(run) else ""
        since = f"for {duration(run['uptime_s'])}, " if run["uptime_s"] is not None else ""
        told = f"{phase} {since}{_held(run)}"
        told += f", held by {' + '.join(run['tiers'])}" if run["tiers"] else ""
        told += f", dying: {cause}" if run["cause"] else ""
    else:
        told = _told(run)
    return printable(f"{head}{told}  {home(run['log']) if run['log'] else ''}".rstrip())
