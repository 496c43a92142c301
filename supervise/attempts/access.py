"""Runs that somebody else keeps in our state directory: what we may not look into is neither empty nor over."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable

from supervise.attempts.store import RUN_NAME, Run, Store, StoreError


def denied(store: Store) -> list[Run]:
    """All runs whose state we may not read, by name; of a directory that may not be read itself see `Store.runs`."""
    try:
        names = sorted(os.listdir(store.root))
    except OSError:
        return []
    return [run for name in names if RUN_NAME.fullmatch(name) and _is_closed(run := store.run(name))]


def expect_ours(runs: Iterable[Run]) -> None:
    """Leave with a line about the first of these.

    Args:
        runs: some that may not be read.

    Raises:
        StoreError: there is one.
    """
    for run in runs:
        raise StoreError(refusal(run))


def refusal(run: Run) -> str:
    """Why nothing can be said of such a run."""
    return f"run {run.name}: {run.path}: {os.strerror(errno.EACCES)}"


def _is_closed(run: Run) -> bool:
    if not os.path.isdir(run.path):
        return False
    if not os.access(run.path, os.R_OK | os.X_OK):
        return True
    state = os.path.join(run.path, "run.json")
    return os.path.exists(state) and not os.access(state, os.R_OK)
