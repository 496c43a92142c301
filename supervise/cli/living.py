"""The verbs that mean a run: what it does, what becomes of it."""

from __future__ import annotations

from typing import Annotated

import typer

from supervise.cli.app import AsJson, MaybeRun, app


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
    """The stop path, a clean slate and the next attempt, by the same supervise.

    Exit 3 if it is being stopped or not live, 94, with nothing ended, if the next launch is sure to be refused. With
    --wait: 0 once that is ready, 90 if it is not in time, the run's own status if it ends.
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

    With --timeout, RUN may be one that has not been started yet; if it never is, that is late, too.
    """
    from supervise.verbs.wait import wait

    raise typer.Exit(wait(run, ready=ready, timeout_s=timeout))


@app.command("attach", short_help="The console of a detached run.")
def _attach(run: MaybeRun = None) -> None:
    """What a run that was started with -d says, from its beginning, until it ends. Ctrl-C or Ctrl-\\ leaves it."""
    from supervise.verbs.attach import attach

    raise typer.Exit(attach(run))


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
