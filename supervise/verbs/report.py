"""`supervise report`: the post-mortem of an attempt."""

from __future__ import annotations

import json
import sys

from supervise.attempts.store import Attempt, Run
from supervise.model.exits import Exit
from supervise.report.postmortem import PostMortem, PostMortemPage
from supervise.verbs.output import answering
from supervise.verbs.postmortem import post_mortem
from supervise.verbs.select import choose, is_live, kept, newest


def report(name: str | None, number: int | None, *, as_json: bool, markdown: bool) -> int:
    """Print a post-mortem.

    Args:
        name: the run; None for the one that was launched last.
        number: the attempt; None for the newest that is over, or the newest if none is.
        as_json: one JSON object on standard output instead of text.
        markdown: Markdown for a ticket instead, without secrets.

    Returns:
        0, or 2 if there is no such run or attempt.

    Raises:
        ProfileError: a profile or a set of signatures is damaged.
    """
    run = choose(name, live_only=False) if name is not None else newest()
    if run is None:
        return Exit.USAGE
    running = run.latest() if is_live(run) else None
    attempt = kept(run, _over(run, running) if number is None else run.attempt(number), number)
    if attempt is None:
        return Exit.USAGE
    live = running is not None and running.number == attempt.number and attempt.read("outcome") is None
    what = post_mortem(run, attempt, live=live)
    with answering():
        _tell(what, as_json=as_json, markdown=markdown)
    return Exit.OK


def _tell(what: PostMortem, *, as_json: bool, markdown: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(what.as_data(), indent=1) + "\n")
    elif markdown:
        from supervise.report.ticket import ticket

        sys.stdout.write(ticket(what))
    else:
        PostMortemPage().told(what)


def _over(run: Run, running: Attempt | None) -> Attempt | None:
    """The newest attempt that is over: one without an outcome is, unless it runs."""
    for number in reversed(run.numbers()):
        attempt = run.attempt(number)
        if attempt.read("outcome") is not None or running is None or running.number != number:
            return attempt
    return run.latest()
