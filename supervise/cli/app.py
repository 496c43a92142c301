"""The one typer application, and what several of its verbs take."""

from __future__ import annotations

from typing import Annotated

import typer

from supervise import __version__

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Put it in front of `vllm serve` or `sglang serve`. `supervise [OPTIONS] COMMAND…` is `supervise run …`.",
    epilog="Exit status: the server's own; 90 not ready in time; 91 ended by itself with 0; 92 hung; 93 deterministic "
    "failure; 94 slate not clean, nothing launched; 95 something survived; 96 gave up after repeated failures; 125 "
    "supervise itself failed; 126, 127 cannot execute, not found.",
)

PASS_ON = {"allow_interspersed_args": False}
"""What comes after the first word that is no option of ours is not ours."""

MaybeRun = Annotated[
    str | None, typer.Argument(metavar="[RUN]", help="Name of the run; may be left out if there is only one.")
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]


@app.callback(invoke_without_command=True)
def _own(
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
    host: Annotated[
        str | None,
        typer.Option(
            "-H", "--host", metavar="[USER@]HOST", help="First of all: have it done there, over your own ssh."
        ),
    ] = None,
) -> None:
    del host  # whoever names one never gets here: see cli.remote
    if version:
        typer.echo(f"supervise {__version__}")
        raise typer.Exit
