"""The verb that launches what was launched before."""

from __future__ import annotations

from typing import Annotated

import typer

from supervise.cli.app import MaybeRun, app


@app.command("replay", short_help="Launch an attempt once more.")
def _replay(
    run: MaybeRun = None,
    attempt: Annotated[int | None, typer.Option("--attempt", metavar="N", min=1, help="Default: the newest.")] = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Also if the engine's files are not what they were, or nobody knows.")
    ] = False,
    put_back: Annotated[
        bool, typer.Option("--put-back", help="First put the files back as they were then; those of now are kept.")
    ] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Show what differs in the files, line by line.")] = False,
) -> None:
    """An attempt's command line, environment, directory and options once more, in the same run.

    Exit 2 if something has to be set before (a secret is not recorded), 94, with nothing launched, if the engine's
    files are not what they were.
    """
    from supervise.cli.parser import app as parser
    from supervise.verbs.replay import How, replay

    words = replay(run, attempt, How(anyway, put_back, diff))
    if isinstance(words, int):
        raise typer.Exit(words)
    # The next attempt records what it was launched with, too.
    import sys

    sys.argv = [sys.argv[0], *words]
    parser(words, prog_name="supervise")
