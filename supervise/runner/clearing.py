"""The clean slate as a launch and `clean` ask for it: one request, from the plan and the user's options."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from supervise.model.evict import Evict
from supervise.model.need import Need
from supervise.model.profile import Profile
from supervise.model.rules import LeftoverRules
from supervise.model.snapshot import Record
from supervise.profiles.leftovers import load_rules
from supervise.profiles.load import GENERIC
from supervise.runner.plan import Options, Plan
from supervise.slate import SlateRequest

HOST = "(host)"
"""What stands in for a run where none is meant; no run can have that name."""


def for_launch(
    planned: Plan,
    records: tuple[Record, ...],
    *,
    helpers: frozenset[int] = frozenset(),
    cancelled: Callable[[], bool] = lambda: False,
    dry_run: bool = False,
) -> SlateRequest:
    """Ask for the slate that a launch needs.

    Args:
        planned: the launch.
        records: of all runs.
        helpers: pids of ours that are there for it.
        cancelled: asked between steps.
        dry_run: only look.
    """
    profile = planned.profile
    request = _request(
        planned.need.run,
        planned.need,
        planned.profiles.values(),
        # A program that is no engine is not spoilt by what an engine left.
        load_rules(profile.leftovers) if profile.name != GENERIC else LeftoverRules(),
        planned.env,
        planned.options,
        records,
        helpers=helpers,
        cancelled=cancelled,
        dry_run=dry_run,
    )
    watched = tuple(path for path in planned.options.watch if os.path.isdir(path))
    if not planned.packages and not watched:
        return request
    from supervise.slate.packages import directories

    need = planned.need
    places, python = directories(need.program, planned.env, planned.packages, before=need.wrappers)
    missing = tuple(name for name in planned.options.clearing.packages if name not in places)
    apart = tuple(path for path in watched if not path.startswith(tuple(places.values())))
    return replace(request, packages=(*places.values(), *apart), missing=missing, python=python)


def for_run(
    run: str, profiles: Iterable[Profile], options: Options, records: tuple[Record, ...], *, dry_run: bool
) -> SlateRequest:
    """Ask for the slate of a run that nobody is about to launch: only what is its own, and orphans."""
    return _request(run, None, profiles, LeftoverRules(), os.environ, options, records, dry_run=dry_run)


def for_host(
    profiles: Iterable[Profile], options: Options, records: tuple[Record, ...], *, dry_run: bool
) -> SlateRequest:
    """Ask for what any engine has left on this host, whoever launched it."""
    known = tuple(profiles)
    rules = load_rules(tuple(name for profile in known for name in profile.leftovers))
    return _request(HOST, None, known, rules, os.environ, options, records, dry_run=dry_run)


def _request(
    run: str,
    need: Need | None,
    profiles: Iterable[Profile],
    rules: LeftoverRules,
    env: Mapping[str, str],
    options: Options,
    records: tuple[Record, ...],
    *,
    helpers: frozenset[int] = frozenset(),
    cancelled: Callable[[], bool] = lambda: False,
    dry_run: bool = False,
) -> SlateRequest:
    clearing = options.clearing
    return SlateRequest(
        run=run,
        need=need,
        profiles=tuple(profiles),
        records=records,
        deadline_s=options.slate_timeout_s,
        dry_run=dry_run,
        helpers=helpers,
        cancelled=cancelled,
        evict=clearing.evict or Evict.STALE,
        evict_uids=clearing.evict_uids,
        rules=rules,
        env=env,
        artefacts=clearing.artefacts,
        purge=clearing.purge,
    )
