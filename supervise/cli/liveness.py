"""The options of `run` that say how long a server that serves may stand still."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from supervise.model.liveness import Vigil


@dataclass(frozen=True, slots=True)
class LivenessOptions:
    """How long it may stand still, and whether it is asked for tokens."""

    hang_timeout: Annotated[
        float | None,
        typer.Option(
            "--hang-timeout",
            metavar="SECONDS",
            min=0,
            help="A ready server counts as hung, exit 92, once two independent proofs of it have held for so long. 0: "
            "nobody looks. Default: the profile's.",
        ),
    ] = None
    canary: Annotated[
        bool, typer.Option("--canary", help="Ask the ready server for a token now and then: one proof more.")
    ] = False
    canary_every: Annotated[
        float | None,
        typer.Option("--canary-every", metavar="SECONDS", min=1, help="How often; with --canary. Default: 60."),
    ] = None

    def vigil(self) -> Vigil:
        """What was asked for.

        Raises:
            BadParameter: it cannot be meant.
        """
        if self.canary_every is not None and not self.canary:
            raise typer.BadParameter("--canary-every has no effect without --canary")
        if self.canary and self.hang_timeout == 0:
            raise typer.BadParameter("--canary has no effect with --hang-timeout 0")
        return Vigil(self.hang_timeout, (self.canary_every or 60.0) if self.canary else None)
