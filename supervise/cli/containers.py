"""The options of `run` for those who start and end us: container runtimes, Kubernetes, service managers."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Annotated

import typer


def _within(seconds: float | None) -> float | None:
    from supervise.group.bounding import LEAST_S

    if seconds is not None and not LEAST_S <= seconds < float("inf"):
        raise typer.BadParameter(f"{seconds:g}: use {LEAST_S:.0f} seconds or more")
    return seconds


def _file(path: str | None) -> str | None:
    if path is None:
        return None
    whole = os.path.abspath(os.path.expanduser(path)) if path else ""
    if not whole or os.path.isdir(whole) or not os.path.isdir(os.path.dirname(whole)):
        raise typer.BadParameter(f"{path!r}: name a file in a directory that exists")
    return whole


@dataclass(frozen=True, slots=True)
class ContainerOptions:
    """How long whoever stops us will wait, and where they read why we ended."""

    stop_within: Annotated[
        float | None,
        typer.Option(
            "--stop-within",
            metavar="SECONDS",
            callback=_within,
            help="Whoever stops us sends SIGKILL after this time (docker stop -t, terminationGracePeriodSeconds, "
            "TimeoutStopSec): grace, kill and verification fit into it. Default: $SUPERVISE_STOP_TIMEOUT, or none.",
        ),
    ] = None
    termination_log: Annotated[
        str | None,
        typer.Option(
            "--termination-log",
            metavar="FILE",
            callback=_file,
            help="Write why it ended there, at most 4096 bytes. Default in a container: /dev/termination-log.",
        ),
    ] = None
