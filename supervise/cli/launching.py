"""The verbs that take a server's command line: run, unit, clean."""

from __future__ import annotations

from typing import Annotated

import typer

from supervise.cli.app import PASS_ON, AsJson, app
from supervise.cli.containers import ContainerOptions
from supervise.cli.controls import ControlOptions
from supervise.cli.groups import spread
from supervise.cli.liveness import LivenessOptions
from supervise.cli.options import (
    ClearingOptions,
    KeepingOptions,
    NameOptions,
    PatienceOptions,
    PreflightOptions,
    SlateOptions,
    TierOptions,
)
from supervise.cli.restarts import RestartOptions
from supervise.cli.telling import Paired, TellingOptions
from supervise.cli.trying import Judging, tried
from supervise.cli.units import Verbatim, instead, printed

Command = Annotated[
    list[str],
    typer.Argument(
        metavar="COMMAND", help="The server's command line; everything after its first word is passed on untouched."
    ),
]
MaybeCommand = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[COMMAND]",
        help="The command line that would be run; the program need not exist. Without it: every run that is not live.",
    ),
]


@app.command("run", cls=Paired, context_settings=PASS_ON)
@spread
def _run(
    *,
    command: Command,
    which: NameOptions,
    patience: PatienceOptions,
    slate: SlateOptions,
    keeping: KeepingOptions,
    tiers: TierOptions,
    tty: Annotated[
        bool, typer.Option("--tty", help="Give the server a terminal, so that breakpoint() and colours work.")
    ] = False,
    plain: Annotated[
        bool, typer.Option("--plain", help="Lines alone, without the live view and its keys, also on a terminal.")
    ] = False,
    clearing: ClearingOptions,
    preflight: PreflightOptions,
    restarts: RestartOptions,
    telling: TellingOptions,
    container: ContainerOptions,
    liveness: LivenessOptions,
    control: ControlOptions,
) -> None:
    """Clean slate, launch, watch, name the first cause, end verified."""
    from supervise.cli import run
    from supervise.group.boot import boot
    from supervise.runner import Options
    from supervise.runner import scope as scopes

    options = Options(
        name=which.name,
        profile=which.profile,
        grace_s=patience.grace,
        ready_timeout_s=patience.ready_timeout,
        stall_timeout_s=patience.stall_timeout,
        slate_timeout_s=slate.slate_timeout,
        pruning=keeping.pruning(),
        bound=keeping.bound(),
        wanted=tiers.wanted(),
        tty=tty,
        clearing=clearing.clearing(),
        no_preflight=preflight.skipped(),
        restart=restarts.policy(),
        watch=restarts.watched(),
        on_change=restarts.on_change,
        telling=telling.telling(),
        stop_within_s=container.stop_within,
        vigil=liveness.vigil(),
        termination_log=container.termination_log,
        replace=control.replace,
        plain=plain,
    )
    detached = control.detached(tty=tty)
    if (act := instead()) is not None:
        raise typer.Exit(act(command, options))
    if tiers.scope:
        scopes.enter()
    if detached:
        from supervise.runner.detach import detach

        if (status := detach(command, options)) is not None:
            raise typer.Exit(status)
    run(command, options, boot())


app.command("unit", cls=Verbatim, context_settings=PASS_ON, short_help="A unit file for systemd.")(printed(_run))
app.command("try", cls=Judging, context_settings=PASS_ON, short_help="Launch, probe, stop, and judge.")(tried(_run))


@app.command("clean", context_settings=PASS_ON)
@spread
def _clean(
    *,
    command: MaybeCommand = None,
    which: NameOptions,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done; touch nothing.")] = False,
    slate: SlateOptions,
    clearing: ClearingOptions,
    packages: Annotated[
        bool, typer.Option("--packages", help="Also compare every file of the engine's packages with its wheel.")
    ] = False,
    restore: Annotated[
        bool, typer.Option("--restore", help="--packages, and make their files as the wheel had them, by hash.")
    ] = False,
    diff: Annotated[bool, typer.Option("--diff", help="--packages, and show long diffs whole.")] = False,
    json: AsJson = False,
) -> None:
    """The clean slate alone: exit 0 clean, 94 not."""
    from supervise.runner import Options
    from supervise.verbs.clean import Code, clean

    options = Options(
        name=which.name,
        profile=which.profile,
        slate_timeout_s=slate.slate_timeout,
        clearing=clearing.clearing(),
    )
    code = Code(packages or restore or diff, restore, diff)
    raise typer.Exit(clean(command or [], options, dry_run=dry_run, as_json=json, code=code))
