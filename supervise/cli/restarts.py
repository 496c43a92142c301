"""The options of `run` that say whether, how often and for which change of a file a server is launched again."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Annotated

import typer

from supervise.model.restart import Policy, When
from supervise.model.watch import OnChange

_RESTARTS = "5/1h"
_LIMIT = re.compile(r"(0|[1-9][0-9]{0,5})(?:/([1-9][0-9]{0,5})([smhd]?))?")
# Its directory is found once the command line is known.
_PACKAGE = re.compile(r"package:[A-Za-z0-9][A-Za-z0-9._-]*")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True, slots=True)
class RestartOptions:
    """Whether and how often a server is launched again."""

    restart: Annotated[
        When | None,
        typer.Option(
            "--restart",
            help="Launch again after a failure. With on-failure: where it may help, and once where nobody knows; with "
            "always: there as well, time and again. Never what would fail the same way: exit 93. Default: no, but "
            "on-failure with --max-restarts.",
        ),
    ] = None
    max_restarts: Annotated[
        str | None,
        typer.Option(
            "--max-restarts",
            metavar="N[/WINDOW]",
            help="So many within 30s, 10m, 1h, 1d: exit 96 after them; 0: none. Default: 5/1h.",
        ),
    ] = None
    backoff: Annotated[
        float,
        typer.Option("--backoff", metavar="SECONDS", min=0, hidden=True, help="The first wait before a relaunch."),
    ] = 4.0
    watch: Annotated[
        list[str] | None,
        typer.Option(
            "--watch",
            metavar="PATH",
            help="A file or directory that you work on, or package:NAME of the server's Python. When code or settings "
            "in it change, the server is stopped and launched anew; what failed waits for that, rather than end. "
            "Frames in it are told as yours.",
        ),
    ] = None
    on_change: Annotated[
        OnChange,
        typer.Option(
            "--on-change",
            help="With --watch: relaunch at once, also while it loads; once it is ready or has failed; or only say so.",
        ),
    ] = OnChange.NOW

    def policy(self) -> Policy | None:
        """None without restarts: then nothing of it is imported.

        Raises:
            BadParameter: the limit is none.
        """
        limit = _LIMIT.fullmatch(self.max_restarts or _RESTARTS)
        if limit is None or self.max_restarts == "":
            raise typer.BadParameter(f"--max-restarts {self.max_restarts!r}: use N or N/WINDOW, like 5 or 5/1h")
        # Whoever says how often means that there be any.
        when = self.restart or (When.NO if self.max_restarts is None else When.ON_FAILURE)
        most, count, unit = limit.groups()
        if when is When.NO or not int(most):
            return None
        window_s = Policy().window_s if count is None else float(count) * _SECONDS[unit or "s"]
        return Policy(when, int(most), window_s, self.backoff)

    def watched(self) -> tuple[str, ...]:
        """Absolute paths of what the user works on; packages as they were given.

        Raises:
            BadParameter: there is no such file or directory, or nothing to say what becomes of its changes for.
        """
        if self.on_change is not OnChange.NOW and not self.watch:
            raise typer.BadParameter(f"--on-change {self.on_change}: name what is watched with --watch")
        return tuple(dict.fromkeys(map(_watched, self.watch or ())))


def _watched(given: str) -> str:
    if _PACKAGE.fullmatch(given):
        return given
    path = os.path.abspath(os.path.expanduser(given)) if given else ""
    if not os.path.exists(path):
        raise typer.BadParameter(f"--watch {given!r}: there is no such file or directory")
    return path
