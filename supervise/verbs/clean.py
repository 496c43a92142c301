"""`supervise clean`: the clean slate alone."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

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
from supervise.verbs.engines import Engine, of_plan, of_run
from supervise.verbs.select import choose, say, store


class Code(NamedTuple):
    """What is done about the files of the engine's packages; `whole` shows long diffs, too."""

    look: bool = False
    restore: bool = False
    whole: bool = False


def clean(command: Sequence[str], options: Options, *, dry_run: bool, as_json: bool, code: Code = Code()) -> int:  # noqa: B008 - immutable
    """Clean the slate for a command line, or for every run that is not live.

    Args:
        command: as for `run`; empty for all runs.
        options: the user's.
        dry_run: only say what would be done.
        as_json: one JSON object on standard output instead of text.
        code: whether the engine's packages are compared with their wheels, and made as those were.

    Returns:
        0 if all is clean, and with `code.restore` each package as in its wheel; 94 if not.

    Raises:
        ProfileError: a profile is damaged.
        StoreError: the state directory cannot be used.
    """
    console = for_stream()
    known = store()
    engines: list[Engine | None] = []
    if command:
        planned = plan.make(command, os.environ, options)
        for note in planned.need.notes:
            console.line("note", note)
        request = clearing.for_launch(planned, known.records(), dry_run=dry_run)
        result = _clean_run(known.run(planned.need.run), request, console)
        # For people the packages are told about once, with what is in their files.
        results = [_with_packages(result, planned, known) if code.look and as_json and result else result]
        engines = [of_plan(planned)]
    else:
        if options.name is not None and choose(options.name, live_only=False) is None:
            return Exit.USAGE
        results = _clean_all(known, options, console, dry_run=dry_run)
        engines = _engines(known, options, console) if code.look else []
    told = [result for result in results if result is not None]
    if not as_json:
        for result in told:
            console.slate(result)
    said: dict[str, Any] = {"version": 1, "runs": [to_json(result) for result in told]}
    clean = len(told) == len(results) and all(result.clean for result in told)
    if code.look:
        said["packages"], sound = _code(engines, known, None if as_json else console, code, dry_run=dry_run)
        clean = clean and sound
    if as_json:
        sys.stdout.write(json.dumps(said, indent=1) + "\n")
    return Exit.OK if clean else Exit.SLATE


def _engines(known: Store, options: Options, console: Console) -> list[Engine | None]:
    """Those of every run; of one that is not known, None, it is said why."""
    found: list[Engine | None] = []
    for run in known.runs():
        if options.name not in (None, run.name):
            continue
        engine = of_run(run, options)
        if isinstance(engine, str):
            console.line("code", f"{run.name}: its packages are not known: {engine}")
        found.append(None if isinstance(engine, str) else engine)
    return found


def _code(
    engines: Sequence[Engine | None], known: Store, console: Console | None, code: Code, *, dry_run: bool
) -> tuple[list[dict[str, Any]], bool]:
    """What is left in packages, for JSON and for people, and whether it is as it shall be."""
    from supervise.verbs import debug_code, restoring

    found = debug_code.look([engine for engine in engines if engine], known)
    if not found:
        say("supervise clean: no package is known to be looked at: give the server's command line, or --package NAME")
        return [], not code.restore
    if console:
        debug_code.tell(console, found, whole=code.whole, hints=not code.restore)
    said = [debug_code.to_json(left) for left in found]
    if not code.restore:
        return said, True
    with restoring.nobody_uses([left.site for left in found if left.files], known) as using:
        if using:
            for name in using:
                say(f"supervise clean: run {name} is live and may import these files; first: supervise stop {name}")
            return said, False
        copies = restoring.saving(known)
        done = [restoring.restore(left, copies, known, dry_run=dry_run) for left in found]
    if console:
        restoring.tell(console, done, copies)
    restored = [{**one, "restored": restoring.to_json(each, copies)} for one, each in zip(said, done, strict=True)]
    return restored, None not in engines and all(each.sound for each in done)


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
