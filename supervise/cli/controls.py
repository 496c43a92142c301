"""The options of `run` that say where supervise goes on, and what becomes of one that has the run already."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Annotated

import typer


@dataclass(frozen=True, slots=True)
class ControlOptions:
    """Where supervise goes on, and whose place it takes."""

    detach: Annotated[
        bool,
        typer.Option(
            "-d",
            "--detach",
            help="Come back once the server is launched, and go on without this terminal: see attach, wait, stop.",
        ),
    ] = False
    replace: Annotated[
        bool, typer.Option("--replace", help="If a supervise has this run already, end it first, by its stop path.")
    ] = False

    def detached(self, *, tty: bool) -> bool:
        """Whether to go on in the background.

        Raises:
            BadParameter: there will be no terminal, or nothing that could go on.
        """
        if self.detach and os.getpid() == 1:
            raise typer.BadParameter("--detach as PID 1: the container would end at once, and all that is in it")
        if self.detach and tty:
            raise typer.BadParameter("--detach and --tty contradict each other: there is no terminal to go on with")
        return self.detach
