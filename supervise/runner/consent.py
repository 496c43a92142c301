"""Asking a person, at a terminal, whether what stands in the way may be ended."""

from __future__ import annotations

from collections.abc import Callable

from supervise.host import tty
from supervise.model.process import ProcessId
from supervise.model.slate import Finding, SlateResult
from supervise.report.console import Console
from supervise.text import plural

_STDIN, _STDERR = 0, 2
_PATIENCE_S = 120.0


def ask(result: SlateResult, console: Console, cancelled: Callable[[], bool]) -> frozenset[ProcessId]:
    """Show what would have to be ended, and ask.

    Only where that would be enough: a slate that something else refuses as well is not worth anybody's server.

    Args:
        result: the slate as it is.
        console: where it is shown.
        cancelled: whether the launch has been called off meanwhile.

    Returns:
        The processes that may be ended; none without a terminal, without a plain yes, or after two minutes.
    """
    if not result.obstacles or result.refusals or not _somebody_reads():
        return frozenset()
    targets = [target for finding in result.obstacles for target in _targets(finding)]
    if not all(map(_targets, result.obstacles)):
        return frozenset()
    console.slate(result)
    pids = ", ".join(dict.fromkeys(str(target.pid) for target in targets))
    console.question(f"end {plural(len(set(targets)), 'process')} ({pids}) with all below? [y/N]")
    answer = tty.read_line(_STDIN, _PATIENCE_S, cancelled)
    return frozenset(targets) if answer is not None and answer.lower() in ("y", "yes") else frozenset()


def _targets(finding: Finding) -> tuple[ProcessId, ...]:
    return finding.eviction.action.targets if finding.eviction else ()


def _somebody_reads() -> bool:
    return tty.in_foreground(_STDIN) and tty.in_foreground(_STDERR)
