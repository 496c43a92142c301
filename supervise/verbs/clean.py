"""`supervise clean`: the clean slate alone."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace

from supervise.attempts.store import Run, Store
from supervise.group.ending import Deadlines
from supervise.model.exits import Exit
from supervise.model.slate import SlateResult
from supervise.report.console import Console, for_stream
from supervise.runner import clearing, plan
from supervise.runner.holder import living, take_lock
from supervise.runner.packages import examine
from supervise.runner.plan import Options
from supervise.runner.slate import settle
from supervise.slate import SlateRequest, sweep, to_json
from supervise.verbs.select import choose, say, store


def clean(command: Sequence[str], options: Options, *, dry_run: bool, as_json: bool, packages: bool = False) -> int:
    """Clean the slate for a command line, or for every run that is not live.

    Args:
        command: as for `run`; empty for all runs.
        options: the user's.
        dry_run: only say what would be done.
        as_json: one JSON object on standard output instead of text.
        packages: also compare the engine's packages with their wheels.

    Returns:
        0 if all is clean, 94 if not.

    Raises:
        ProfileError: a profile is damaged.
        StoreError: the state directory cannot be used.
    """
    console = for_stream()
    known = store()
    if packages and not command:
        say("supervise clean: --packages needs the command line of the server, to know whose packages")
        return Exit.USAGE
    if command:
        planned = plan.make(command, os.environ, options)
        for note in planned.need.notes:
            console.line("note", note)
        request = clearing.for_launch(planned, known.records(), dry_run=dry_run)
        result = _clean_run(known.run(planned.need.run), request, console)
        results = [_with_packages(result, planned, known) if packages and result else result]
    else:
        if options.name is not None and choose(options.name, live_only=False) is None:
            return Exit.USAGE
        results = _clean_all(known, options, console, dry_run=dry_run)
    told = [result for result in results if result is not None]
    if as_json:
        sys.stdout.write(json.dumps({"version": 1, "runs": [to_json(result) for result in told]}, indent=1) + "\n")
    else:
        for result in told:
            console.slate(result)
    return Exit.OK if len(told) == len(results) and all(result.clean for result in told) else Exit.SLATE


def _with_packages(result: SlateResult, planned: plan.Plan, known: Store) -> SlateResult:
    """Every file of the engine's packages, too, however large."""
    findings, checks = examine(planned, known, thorough=True)
    return replace(result, remarks=(*result.remarks, *findings), checks=(*result.checks, *checks))


def _clean_all(known: Store, options: Options, console: Console, *, dry_run: bool) -> list[SlateResult | None]:
    """Every run that is not live, and then, unless one run was named, what any engine has left on this host."""
    by_name, options = plan.profiles(options, os.environ)
    profiles = by_name.values()
    results = []
    for run in _idle(known, options.name):
        request = clearing.for_run(run.name, profiles, options, known.records(), dry_run=dry_run)
        results.append(_clean_run(run, request, console))
    if options.name is None:
        results.append(sweep(clearing.for_host(profiles, options, known.records(), dry_run=dry_run)))
    return results


def _clean_run(run: Run, request: SlateRequest, console: Console) -> SlateResult | None:
    """None if the run is live: its lock is held, so that no launch can begin while its slate is being cleaned."""
    if request.dry_run or not os.path.isdir(run.path):
        return sweep(request)
    lock = take_lock(run, Deadlines(), console)
    if lock is None:
        return None
    try:
        result = sweep(request)
        settle(run, result)
        return result
    finally:
        os.close(lock)


def _idle(known: Store, name: str | None) -> list[Run]:
    """Runs without a supervise; where a keeper or guard is still ending the group of a dead one, that is waited for."""
    idle = []
    for run in known.runs():
        if name not in (None, run.name):
            continue
        if living(run.read_state(), "supervisor"):
            say(f"supervise: run {run.name} is live: left alone")
        else:
            idle.append(run)
    return idle
