"""The command line: all verbs, as typer reads them."""

from __future__ import annotations

from typing import Annotated

import typer

from supervise import __version__
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
from supervise.cli.units import Verbatim, instead, printed

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

_PASS_ON = {"allow_interspersed_args": False}

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
MaybeRun = Annotated[
    str | None, typer.Argument(metavar="[RUN]", help="Name of the run; may be left out if there is only one.")
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]


@app.callback(invoke_without_command=True)
def _own(
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    if version:
        typer.echo(f"supervise {__version__}")
        raise typer.Exit


@app.command("run", cls=Paired, context_settings=_PASS_ON)
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
        telling=telling.telling(),
        stop_within_s=container.stop_within,
        vigil=liveness.vigil(),
        termination_log=container.termination_log,
        replace=control.replace,
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


app.command("unit", cls=Verbatim, context_settings=_PASS_ON, short_help="A unit file for systemd.")(printed(_run))


@app.command("clean", context_settings=_PASS_ON)
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
    json: AsJson = False,
) -> None:
    """The clean slate alone: exit 0 clean, 94 not."""
    from supervise.runner import Options
    from supervise.verbs.clean import clean

    options = Options(
        name=which.name,
        profile=which.profile,
        slate_timeout_s=slate.slate_timeout,
        clearing=clearing.clearing(),
    )
    raise typer.Exit(clean(command or [], options, dry_run=dry_run, as_json=json, packages=packages))


@app.command("status")
def _status(
    run: MaybeRun = None,
    json: AsJson = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Go on until the run ends, then exit with its status: a line per change.")
    ] = False,
) -> None:
    """What runs, since when, in which phase. With RUN: exit 0 if it runs, 3 if not."""
    if watch:
        from supervise.verbs.watch import watch as follow

        raise typer.Exit(follow(run, as_json=json))
    from supervise.verbs.status import status

    raise typer.Exit(status(run, as_json=json))


@app.command("logs")
def _logs(
    run: MaybeRun = None,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Go on as the server writes, until its attempt is over.")
    ] = False,
    attempt: Annotated[int | None, typer.Option("--attempt", metavar="N", min=1, help="Default: the newest.")] = None,
) -> None:
    """An attempt's log, byte for byte, on standard output."""
    from supervise.verbs.logs import logs

    raise typer.Exit(logs(run, attempt, follow=follow))


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


@app.command("stop", short_help="Stop a run and wait for its verified end.")
def _stop(
    run: MaybeRun = None,
    now: Annotated[bool, typer.Option("--now", help="Skip the grace: SIGKILL to what is left.")] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=0, help="How long to wait for the verified end.")
    ] = 120.0,
) -> None:
    """Stop a run and wait until its group is verified gone: exit 0 then, 95 if something survived."""
    from supervise.verbs.stop import stop

    raise typer.Exit(stop(run, now=now, timeout_s=timeout))


Timeout = Annotated[
    float | None, typer.Option("--timeout", metavar="SECONDS", min=0, help="How long to wait. Default: no limit.")
]


@app.command("restart", short_help="Have a run begin again.")
def _restart(
    run: MaybeRun = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the next attempt is ready.")] = False,
    timeout: Timeout = None,
) -> None:
    """The stop path, a clean slate and the next attempt, by the same supervise. With --wait: exit 0 once that is ready,
    90 if it is not in time, the run's own status if it ends.
    """
    from supervise.verbs.restart import restart

    if timeout is not None and not wait:
        raise typer.BadParameter("--timeout has no effect without --wait")
    raise typer.Exit(restart(run, wait=wait, timeout_s=timeout))


@app.command("wait", short_help="Wait until a run is ready, or ends.")
def _wait(
    run: MaybeRun = None,
    ready: Annotated[bool, typer.Option("--ready", help="Until it is ready. Default: until it ends.")] = False,
    timeout: Timeout = None,
) -> None:
    """Exit 0 once it is ready, the run's own status if it ends; in time neither: 90 with --ready, else 125.

    With --timeout, RUN may be one that has not been started yet.
    """
    from supervise.verbs.wait import wait

    raise typer.Exit(wait(run, ready=ready, timeout_s=timeout))


@app.command("attach", short_help="The console of a detached run.")
def _attach(run: MaybeRun = None) -> None:
    """What a run that was started with -d says, from its beginning, until it ends. Ctrl-C leaves it as it is."""
    from supervise.verbs.attach import attach

    raise typer.Exit(attach(run))


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


@app.command("healthcheck", short_help="For probes of Kubernetes and Docker.")
def _healthcheck(
    run: MaybeRun = None,
    startup: Annotated[bool, typer.Option("--startup", help="It was ready once in this attempt.")] = False,
    ready: Annotated[bool, typer.Option("--ready", help="It is ready, and its port answers. The default.")] = False,
    live: Annotated[
        bool, typer.Option("--live", help="supervise works, also while the server loads or is to be launched again.")
    ] = False,
) -> None:
    """How a run is, within 2 s: exit 0 if it is well, 1 if not or if nobody knows, 2 for a mistake here."""
    from supervise.verbs.healthcheck import Asked, healthcheck

    if startup + ready + live > 1:
        raise typer.BadParameter("--startup, --ready and --live contradict each other")
    raise typer.Exit(healthcheck(run, Asked.STARTUP if startup else Asked.LIVE if live else Asked.READY))


@app.command("demo", short_help="See it work, without GPU and engine.")
def _demo() -> None:
    """See it work within 30 seconds, on a machine with neither GPU nor engine."""
    from supervise.verbs.demo import demo

    raise typer.Exit(demo())
