"""The clean slate of a launch: what is known to fail is refused before anything is touched, then all is swept."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from supervise.attempts.store import Run, Store
from supervise.host import cgroupfs, nvml
from supervise.model.need import DeviceKind
from supervise.model.preflight import Check
from supervise.model.slate import SlateResult
from supervise.model.snapshot import NO_GPUS
from supervise.report.console import Console
from supervise.runner.clearing import for_launch
from supervise.runner.consent import ask
from supervise.runner.plan import Plan
from supervise.slate import sweep


def prepare(
    planned: Plan,
    store: Store,
    run: Run,
    console: Console,
    *,
    helpers: frozenset[int],
    cancelled: Callable[[], bool],
) -> SlateResult:
    """Make the slate clean for a launch.

    Args:
        planned: the launch.
        store: all runs, whose records say what is whose.
        run: this one; its lock is held.
        console: where somebody may be asked.
        helpers: pids of ours that are there for the launch.
        cancelled: whether it has been called off meanwhile.

    Returns:
        The slate, with what the preflight said. A refusal leaves everything as it was.
    """
    began = time.monotonic()
    checks = preflight(planned, run.path)
    request = for_launch(planned, store.records(), helpers=helpers, cancelled=cancelled)
    refused = SlateResult(request.run, (), (), (), (), time.monotonic() - began, preflight=checks)
    if refused.refusals:
        return refused
    result = sweep(request)
    if consent := ask(result, console, cancelled):
        result = sweep(replace(request, consent=consent))
    settle(run, result)
    return replace(result, preflight=checks)


def preflight(planned: Plan, state_dir: str) -> tuple[Check, ...]:
    """What can be told of the launch before anything is touched; nothing is.

    Args:
        planned: the launch.
        state_dir: directory of its run.

    Returns:
        Every check that the user has not excluded.
    """
    skip, need = planned.options.no_preflight, planned.need
    if "all" in skip:
        return ()
    from supervise.preflight import check

    gpus = nvml.read() if need.devices.kind is not DeviceKind.NONE else NO_GPUS
    return check(need, planned.env, gpus, skip, state_dir=state_dir, watch=planned.options.watch)


def settle(run: Run, result: SlateResult) -> None:
    """Close the attempts of this run that never got an outcome, once the slate has proven that nothing of them is left.

    Call it with the run's lock held; an outcome that cannot be written is written by the next clean slate.
    """
    if not result.clean:
        return
    with suppress(OSError, cgroupfs.NoCgroupError):
        cgroupfs.remove_forgotten(run.name)
    for number in run.numbers():
        attempt = run.attempt(number)
        if attempt.read("outcome") is None:
            with suppress(OSError):
                run.close_attempt(attempt, {"outcome": "lost", "failed": True, "verified": True, "cause": None})
