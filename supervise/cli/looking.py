"""The verbs that tell: of attempts that are over, of logs from anywhere, of engines, and of ourselves."""

from __future__ import annotations

from typing import Annotated

import typer

from supervise.cli.app import AsJson, app


@app.command("report", short_help="The post-mortem of an attempt.")
def _report(
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="Name of the run. Default: the one launched last.")
    ] = None,
    attempt: Annotated[
        int | None, typer.Option("--attempt", metavar="N", min=1, help="Default: the newest that is over.")
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Markdown for a ticket: without secrets and names of home directories.")
    ] = False,
    json: AsJson = False,
) -> None:
    """The post-mortem of an attempt: how and why it ended, what happened when, what changed since the last good one."""
    from supervise.verbs.report import report

    if markdown and json:
        raise typer.BadParameter("--markdown and --json contradict each other")
    raise typer.Exit(report(run, attempt, as_json=json, markdown=markdown))


@app.command("diff", short_help="What differs between two attempts.")
def _diff(
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="Name of the run. Default: the one launched last.")
    ] = None,
    one: Annotated[
        str | None, typer.Argument(metavar="[A]", help="Number of an attempt. Default: the last but one.")
    ] = None,
    other: Annotated[
        str | None, typer.Argument(metavar="[B]", help="Of another. Without it A is compared with the one before it.")
    ] = None,
    patch: Annotated[bool, typer.Option("--patch", help="What differs in files, too, as patch(1) takes it.")] = False,
    json: AsJson = False,
) -> None:
    """What differs between two attempts, and what became of the cause: exit 0 if nothing does, 1 if something does."""
    from supervise.verbs.diff import diff, meant

    try:
        name, numbers = meant([word for word in (run, one, other) if word is not None])
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    raise typer.Exit(diff(name, numbers, as_json=json, patch=patch))


@app.command("history", short_help="The attempts of a run.")
def _history(
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="Name of the run. Default: the one launched last.")
    ] = None,
    last: Annotated[int | None, typer.Option("--last", metavar="N", min=1, help="How many. Default: all kept.")] = None,
    json: AsJson = False,
) -> None:
    """The attempts of a run: when, what changed, how far each got, and why it ended."""
    from supervise.verbs.history import history

    raise typer.Exit(history(run, last=last, as_json=json))


def _engine_name(name: str | None) -> str | None:
    from supervise.diagnosis.engines import ENGINES
    from supervise.profiles.load import names

    if name is not None and name not in (known := sorted({*ENGINES, *names()})):
        raise typer.BadParameter(f"{name!r}: use {', '.join(known)}")
    return name


@app.command("explain", short_help="The first cause, from any log.")
def _explain(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE", help="A log from anywhere, packed or not; - is standard input.")
    ],
    exit_status: Annotated[
        int | None,
        typer.Option(
            "--exit-status", metavar="N", min=-64, max=255, help="How the server ended, if known; minus a signal."
        ),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option("--engine", metavar="NAME", callback=_engine_name, help="Whose log it is. Default: told from it."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per FILE and line on standard output.")] = False,
) -> None:
    """The first cause, from any log: exit 0 if it is named, 1 if the log is healthy, 3 if it cannot be named."""
    from supervise.verbs.explain import explain_files

    raise typer.Exit(explain_files(files, as_json=json, exit_status=exit_status, engine=engine))


@app.command("profiles", short_help="The engines that supervise knows.")
def _profiles(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]")] = None,
    files: Annotated[list[str] | None, typer.Argument(metavar="[FILE]...")] = None,
) -> None:
    """The engines that supervise knows; with NAME, where its profile is and what it says.

    `supervise profiles check` proves every known failure on its own samples; with FILE, those of your own file.
    """
    from supervise.verbs.profiles import profiles

    raise typer.Exit(profiles(name, files or ()))


@app.command("demo", short_help="See it work, without GPU and engine.")
def _demo() -> None:
    """See it work within 30 seconds, on a machine with neither GPU nor engine."""
    from supervise.verbs.demo import demo

    raise typer.Exit(demo())
