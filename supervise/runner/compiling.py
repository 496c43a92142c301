"""Whether changed files compile, asked once for each of their states."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from supervise.host import syntax

if TYPE_CHECKING:
    from supervise.host.syntax import Mistake
    from supervise.runner.plan import Plan

States = tuple[tuple[str, tuple[int, int] | None], ...]


class Compiler:
    """Says which changed files do not compile, and asks only about those that have changed since it was asked."""

    def __init__(self, planned: Plan) -> None:
        self._planned = planned
        self._python: str | None = None
        self._asked: States = ()
        self._known: tuple[Mistake, ...] = ()

    def mistakes(self, files: Sequence[str]) -> tuple[Mistake, ...]:
        """Blocking, five seconds at most."""
        paths = [path for path in files if path.endswith(".py")]
        present = states(paths)
        if present != self._asked:
            self._known, self._asked = syntax.mistakes(paths, self._interpreter()), present
        return self._known

    def _interpreter(self) -> str:
        """The server's, whose grammar may be another one than ours; ours where it is not known."""
        if self._python is None:
            from supervise.host import interpreter

            need = self._planned.need
            found, _ = interpreter.find(need.program, self._planned.env, before=need.wrappers)
            self._python = found.executable if found else sys.executable
        return self._python


def states(paths: Sequence[str]) -> States:
    """Size and time of change in ns of files, by which another save of the same one is known; None without one."""
    return tuple((path, _state(path)) for path in paths)


def _state(path: str) -> tuple[int, int] | None:
    try:
        state = os.stat(path)
    except OSError:
        return None
    return state.st_size, state.st_ctime_ns
