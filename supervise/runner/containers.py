"""Who listens for the sake of whoever started us: a kubelet that reads one file, a service manager's log directory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from supervise.attempts.store import Run
    from supervise.report.console import Console
    from supervise.runner.audience import Listener
    from supervise.runner.plan import Options


def listeners(options: Options, env: Mapping[str, str], target: Run, console: Console) -> Iterator[Listener]:
    """Those that are wanted; nothing is imported for the others.

    Args:
        options: the user's.
        env: our environment.
        target: the run.
        console: where people read.
    """
    if options.termination_log or os.getpid() == 1 or env.get("KUBERNETES_SERVICE_HOST"):
        from supervise.report.termination import TerminationMessage, default_path

        if path := options.termination_log or default_path(env, os.getpid()):
            yield TerminationMessage(target.name, path, console)
    if env.get("LOGS_DIRECTORY"):
        from supervise.report.logs_link import LogsLink, directory

        if logs := directory(env):
            yield LogsLink(logs, target.name, target.path, console)
