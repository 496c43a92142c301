"""`supervise clean`: the clean slate alone."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence

from supervise.attempts.store import Run, Store
from supervise.group.ending import Deadlines
from supervise.model.exits import Exit
from supervise.model.need import Need
from supervise.model.profile import Profile
from supervise.model.slate import SlateResult
from supervise.profiles.load import load_all
from supervise.report.console import Console, for_stream
from supervise.runner import plan
from supervise.runner.holder import living, take_lock
from supervise.runner.plan import Options
from supervise.runner.slate import settle
from supervise.slate import SlateRequest, sweep, to_json
from supervise.verbs.select import choose, say, store


def clean(command: Sequence[str], options: Options, *, dry_run: bool, as_json: bool) -> int:
    """Clean the slate for a command line, or for every run that is not live.

    Args:
        command: as for `run`; empty for all runs.
        options: the user's.
        dry_run: only say what would be done.
        as_json: one JSON object on standard output instead of text.

    Returns:
        0 if all is clean, 94 if not.

    Raises:
        ProfileError: a profile is damaged.
        StoreError: the state directory cannot be used.
    """
    console = for_stream()
    known = store()
    if command:
        planned = plan.make(command, os.environ, options)
        for note in planned.need.notes:
            console.line("note", note)
        targets: list[tuple[Run, Need | None]] = [(known.run(planned.need.run), planned.need)]
    else:
        if options.name is not None and choose(options.name, live_only=False) is None:
            return Exit.USAGE
        targets = [(run, None) for run in _idle(known, options.name)]
    profiles = tuple(load_all().values())
    results = [
        result
        for run, need in targets
        if (result := _clean_one(known, run, need, profiles, options, dry_run=dry_run, console=console)) is not None
    ]
    if as_json:
        sys.stdout.write(json.dumps({"version": 1, "runs": [to_json(result) for result in results]}, indent=1) + "\n")
    else:
        for result in results:
            console.slate(result)
    all_clean = len(results) == len(targets) and all(result.clean for result in results)
    return Exit.OK if all_clean else Exit.SLATE


def _clean_one(
    known: Store,
    run: Run,
    need: Need | None,
    profiles: tuple[Profile, ...],
    options: Options,
    *,
    dry_run: bool,
    console: Console,
) -> SlateResult | None:
    """None if the run is live: its lock is held, so that no launch can begin while its slate is being cleaned."""
    request = SlateRequest(
        run=run.name,
        need=need,
        profiles=profiles,
        records=known.records(),
        deadline_s=options.slate_timeout_s,
        dry_run=dry_run,
    )
    if dry_run or not os.path.isdir(run.path):
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
