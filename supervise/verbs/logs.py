"""`supervise logs`: an attempt's log on standard output."""

from __future__ import annotations

import sys
import time

from supervise.attempts.log import Follower
from supervise.attempts.store import Attempt, Run
from supervise.model.exits import Exit
from supervise.verbs.select import choose, is_live, kept

_LOOK_EVERY_S = 0.2


def logs(name: str | None, number: int | None, *, follow: bool) -> int:
    """Print a log.

    Args:
        name: the run; None for the only live one, or the only one.
        number: the attempt; None for the newest.
        follow: go on until the attempt is over.

    Returns:
        0, or 2 if there is no such run or attempt.
    """
    run = choose(name, live_only=False)
    if run is None:
        return Exit.USAGE
    attempt = kept(run, run.attempt(number) if number is not None else run.latest(), number)
    if attempt is None:
        return Exit.USAGE
    follower = Follower(attempt.log)
    try:
        for piece in follower.archived():
            _put(piece)
        _read_on(follower, run, attempt, follow=follow)
    except KeyboardInterrupt:
        pass
    finally:
        follower.close()
    return Exit.OK


def _read_on(follower: Follower, run: Run, attempt: Attempt, *, follow: bool) -> None:
    """Print what there is; with `follow`, go on until the attempt is over and its last bytes are out."""
    while True:
        over = not follow or attempt.read("outcome") is not None or not is_live(run)
        while piece := follower.read():
            _put(piece)
        if over:
            return
        time.sleep(_LOOK_EVERY_S)


def _put(piece: bytes) -> None:
    sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()
