"""Whose packages are meant: those of a command line, or of what a run was launched with last."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from supervise.attempts import sources
from supervise.attempts.store import Attempt, Run
from supervise.profiles.errors import ProfileError
from supervise.runner import plan
from supervise.runner.plan import PACKAGE, Options, Plan
from supervise.text import hides
from supervise.verbs.recorded_command import option
from supervise.verbs.records import text, words


class Engine(NamedTuple):
    """What `slate.packages` is asked with: the engine's own words, its environment, its packages, its wrappers."""

    program: tuple[str, ...]
    env: Mapping[str, str]
    packages: tuple[str, ...]
    before: tuple[str, ...] = ()


def of_plan(planned: Plan) -> Engine:
    """The engine of a command line."""
    return Engine(tuple(planned.need.program), planned.env, planned.packages, tuple(planned.need.wrappers))


def of_run(run: Run, options: Options) -> Engine | str:
    """The engine of a run's newest attempt.

    Args:
        run: the run.
        options: the user's; they may name more packages.

    Returns:
        A phrase that says why it is not known, if it is not.
    """
    attempt = run.latest()
    record = attempt.read("attempt") if attempt else None
    argv = words(record, "argv")
    if attempt is None or record is None or not argv:
        return "its last attempt has no sound record of its command line"
    if (command := os.path.join(text(record, "cwd") or "", argv[0])) and "/" in argv[0]:
        argv = (os.path.normpath(command), *argv[1:])
    try:
        named = (*options.clearing.packages, *_named(words(record, "options")))
        clearing = replace(options.clearing, packages=tuple(dict.fromkeys(named)))
        planned = plan.make(argv, as_then(os.environ, record), replace(options, name=run.name, clearing=clearing))
    except ProfileError as error:
        return str(error)
    python = _python(attempt)
    return of_plan(planned) if python is None else Engine((python,), planned.env, planned.packages)


def as_then(env: Mapping[str, str], record: Mapping[str, object]) -> dict[str, str]:
    """An environment with what an attempt's record says of it, without what was a secret then."""
    said = record.get("environment")
    recorded = said if isinstance(said, dict) else {}
    return {**env, **{k: v for k, v in recorded.items() if isinstance(k, str) and isinstance(v, str) and not hides(v)}}


def _named(own: Sequence[str]) -> Iterator[str]:
    """Packages that the run was told of: to be looked at, or to be watched."""
    yield from option(own, "--package")
    watched = option(own, "--watch")
    yield from (word.removeprefix(PACKAGE) for word in watched if word.startswith(PACKAGE))


def _python(attempt: Attempt) -> str | None:
    """The interpreter that was found then, if it is still there."""
    known = sources.read(attempt)
    path = known.python if known else None
    return path if path and os.path.isfile(path) else None
