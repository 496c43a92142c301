"""`supervise status --watch`: a line that is kept up to date on a terminal, a line for each change elsewhere."""

from __future__ import annotations

import json
import shutil
import sys
import time
from typing import Any

from supervise.model.exits import Exit
from supervise.text import shorten
from supervise.verbs.following import Following, ended, line
from supervise.verbs.output import answering
from supervise.verbs.select import choose, is_live, say

_NOT_RUNNING = 3
_TURN_S = 1.0
_CLEAR = "\r\x1b[K"


def watch(name: str | None, *, as_json: bool) -> int:
    """Show a run until it ends.

    Args:
        name: the run; None for the only one that is live.
        as_json: one JSON object per change.

    Returns:
        Its exit status, 0 after Ctrl-C, 3 if it is not running, 2 if it is not clear which run is meant.
    """
    run = choose(name, live_only=True)
    if run is None:
        return Exit.USAGE if name is not None else _NOT_RUNNING
    if not is_live(run):
        say(f"supervise: run {run.name} is not running")
        return _NOT_RUNNING
    last: dict[str, Any] = {}
    following = Following(run)
    try:
        with answering():
            last = _show(following, as_json=as_json)
    except KeyboardInterrupt:
        say("")
        return Exit.OK
    finally:
        following.close()
    # Whoever reads may have seen enough.
    return ended(run, last, following.whose) if last.get("over") else Exit.OK


def _show(following: Following, *, as_json: bool) -> dict[str, Any]:
    put = _as_json if as_json else _on_terminal if sys.stdout.isatty() else _Lines()
    while True:
        said = following.next(_TURN_S)
        if said is not None:
            put(said)
        if said is not None and said.get("over"):
            return said


def _as_json(said: dict[str, Any]) -> None:
    told = {name: value for name, value in said.items() if name != "ok"}
    sys.stdout.write(json.dumps({"version": 1, "time": round(time.time(), 3), **told}) + "\n")
    sys.stdout.flush()


class _Lines:
    """What can be told from the line before."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, said: dict[str, Any]) -> None:
        text, self._last = self._last, line(said)
        if self._last != text:
            sys.stdout.write(self._last + "\n")
            sys.stdout.flush()


def _on_terminal(said: dict[str, Any]) -> None:
    # One column is left free: a line that fills the last one would wrap.
    text = shorten(line(said), shutil.get_terminal_size().columns - 1)
    sys.stdout.write(f"{_CLEAR}{text}" + ("\n" if said.get("over") else ""))
    sys.stdout.flush()
