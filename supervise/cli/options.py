"""Verbs and their options, declared once. The only file that knows typer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from supervise import __version__
from supervise.model.evict import Evict
from supervise.model.restart import Policy, When
from supervise.model.tier import Tier

if TYPE_CHECKING:
    from supervise.runner.plan import Clearing

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


def _run_name(name: str | None) -> str | None:
    from supervise.attempts.store import RUN_NAME

    if name is not None and not RUN_NAME.fullmatch(name):
        raise typer.BadParameter(f"{name!r}: use 1 to 80 of the characters A-Z a-z 0-9 . _ -, a letter or digit first")
    return name


_CACHES = ("compile",)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
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
Name = Annotated[
    str | None,
    typer.Option("--name", metavar="RUN", callback=_run_name, help="Name of the run. Default: <profile>-<port>."),
]
ProfileName = Annotated[
    str | None, typer.Option("--profile", metavar="NAME", help="Engine profile. Default: told from the command line.")
]
Grace = Annotated[
    float | None,
    typer.Option(
        "--grace", metavar="SECONDS", min=0, help="From SIGTERM until the whole group is told. Default: the profile's."
    ),
]
ReadyTimeout = Annotated[
    float,
    typer.Option("--ready-timeout", metavar="SECONDS", min=1, help="Not ready by then: the group is ended, exit 90."),
]
SlateTimeout = Annotated[
    float,
    typer.Option(
        "--slate-timeout", metavar="SECONDS", min=0, help="How long leftovers may take to go away, exit 94 after it."
    ),
]
KeepAttempts = Annotated[int, typer.Option("--keep", metavar="N", min=1, help="Attempts of this run to keep.")]
KeepBytes = Annotated[
    int,
    typer.Option(
        "--keep-mib", metavar="MIB", min=1, help="Disk space that the attempts of this run may take together."
    ),
]
LogLimit = Annotated[
    int,
    typer.Option("--log-mib", metavar="MIB", min=1, help="Log kept as it is; what is older is compressed beside it."),
]
NoCgroup = Annotated[bool, typer.Option("--no-cgroup", help="Do not put the server into a cgroup of its own.")]
PidNamespace = Annotated[
    bool, typer.Option("--pidns", help="Put a PID namespace around the server: the kernel ends what is in it.")
]
Scope = Annotated[
    bool, typer.Option("--scope", help="Ask systemd for a scope to run in, so that there can be a cgroup.")
]
RequireTier = Annotated[
    list[Tier] | None,
    typer.Option("--require-tier", metavar="TIER", help="cgroup or pidns: launch nothing if it cannot be had."),
]
Tty = Annotated[bool, typer.Option("--tty", help="Give the server a terminal, so that breakpoint() and colours work.")]
EvictLevel = Annotated[
    Evict | None,
    typer.Option(
        "--evict",
        help="Who may be ended: own, what this run left; stale (the default), also dead or orphaned engines; engines, "
        "also live ones in the way; all, whoever holds a needed port or GPU. Always of the same user only.",
    ),
]
EvictUser = Annotated[
    list[str] | None,
    typer.Option("--evict-user", metavar="USER", help="As root: treat this user's processes like our own."),
]
Artefacts = Annotated[
    list[str] | None,
    typer.Option("--artefacts", metavar="GLOB", help="Remove these files unless somebody has them open."),
]
PurgeCache = Annotated[
    list[str] | None,
    typer.Option("--purge-cache", metavar="NAME", help="compile: move the compile caches aside, nothing is deleted."),
]
Packages = Annotated[
    list[str] | None,
    typer.Option("--package", metavar="NAME", help="Look at the files of this package or directory, too."),
]
NoPreflight = Annotated[
    list[str] | None,
    typer.Option(
        "--no-preflight",
        metavar="NAME",
        help="Skip a check: model, heads, length, gpus, memory, hostmemory, shm, limits, core, port, disk, packages; "
        "or all.",
    ),
]
Restart = Annotated[
    When,
    typer.Option(
        "--restart",
        help="Launch again after a failure. With on-failure: where it may help, and once where nobody knows; with "
        "always: there as well, time and again. Never what would fail the same way: exit 93.",
    ),
]
MaxRestarts = Annotated[
    str,
    typer.Option("--max-restarts", metavar="N[/WINDOW]", help="So many within 30s, 10m, 1h, 1d: exit 96 after them."),
]
Backoff = Annotated[
    float,
    typer.Option("--backoff", metavar="SECONDS", min=0, hidden=True, help="The first wait before a relaunch."),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]


@app.callback(invoke_without_command=True)
def _own(
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    if version:
        typer.echo(f"supervise {__version__}")
        raise typer.Exit


@app.command("run", context_settings=_PASS_ON)
def _run(
    command: Command,
    name: Name = None,
    profile: ProfileName = None,
    grace: Grace = None,
    ready_timeout: ReadyTimeout = 3600.0,
    slate_timeout: SlateTimeout = 100.0,
    keep: KeepAttempts = 50,
    keep_mib: KeepBytes = 10240,
    log_mib: LogLimit = 512,
    no_cgroup: NoCgroup = False,
    pidns: PidNamespace = False,
    scope: Scope = False,
    require_tier: RequireTier = None,
    tty: Tty = False,
    evict: EvictLevel = None,
    evict_user: EvictUser = None,
    artefacts: Artefacts = None,
    purge_cache: PurgeCache = None,
    package: Packages = None,
    no_preflight: NoPreflight = None,
    restart: Restart = When.NO,
    max_restarts: MaxRestarts = "5/1h",
    backoff: Backoff = 4.0,
) -> None:
    """Clean slate, launch, watch, name the first cause, end verified."""
    from supervise.attempts.log import Bound
    from supervise.attempts.pruning import Pruning
    from supervise.cli import run
    from supervise.group.boot import boot
    from supervise.model.tier import Wanted
    from supervise.runner import Options
    from supervise.runner import scope as scopes

    if no_cgroup and Tier.CGROUP in (require_tier or ()):
        raise typer.BadParameter("--no-cgroup and --require-tier cgroup contradict each other")
    if scope:
        scopes.enter()
    options = Options(
        name=name,
        profile=profile,
        grace_s=grace,
        ready_timeout_s=ready_timeout,
        slate_timeout_s=slate_timeout,
        pruning=Pruning(keep, keep_mib * 2**20),
        bound=Bound(log_mib * 2**20),
        wanted=Wanted(not no_cgroup, pidns, frozenset(require_tier or ())),
        tty=tty,
        clearing=_clearing(evict, evict_user, artefacts, purge_cache, package),
        no_preflight=_checks(no_preflight),
        restart=_policy(restart, max_restarts, backoff),
    )
    run(command, options, boot())


@app.command("clean", context_settings=_PASS_ON)
def _clean(
    command: MaybeCommand = None,
    name: Name = None,
    profile: ProfileName = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done; touch nothing.")] = False,
    slate_timeout: SlateTimeout = 100.0,
    evict: EvictLevel = None,
    evict_user: EvictUser = None,
    artefacts: Artefacts = None,
    purge_cache: PurgeCache = None,
    package: Packages = None,
    packages: Annotated[
        bool, typer.Option("--packages", help="Also compare every file of the engine's packages with its wheel.")
    ] = False,
    json: AsJson = False,
) -> None:
    """The clean slate alone: exit 0 clean, 94 not."""
    from supervise.runner import Options
    from supervise.verbs.clean import clean

    clearing = _clearing(evict, evict_user, artefacts, purge_cache, package)
    options = Options(name=name, profile=profile, slate_timeout_s=slate_timeout, clearing=clearing)
    raise typer.Exit(clean(command or [], options, dry_run=dry_run, as_json=json, packages=packages))


def _clearing(
    evict: Evict | None,
    users: list[str] | None,
    artefacts: list[str] | None,
    purge: list[str] | None,
    packages: list[str] | None,
) -> Clearing:
    import os

    from supervise.runner.plan import Clearing

    for word in purge or ():
        if word not in _CACHES:
            raise typer.BadParameter(f"--purge-cache {word!r}: use {', '.join(_CACHES)}")
    if not all(glob.strip() for glob in artefacts or ()):
        raise typer.BadParameter("--artefacts '': names no file; is a variable of the shell not set?")
    if users and os.geteuid() != 0:
        raise typer.BadParameter("--evict-user has no effect unless root gives it")
    return Clearing(
        evict=evict,
        evict_uids=frozenset(map(_uid, users or ())),
        artefacts=tuple(os.path.abspath(os.path.expanduser(glob)) for glob in artefacts or ()),
        purge=tuple(purge or ()),
        packages=tuple(packages or ()),
    )


def _policy(when: When, limit: str, backoff_s: float) -> Policy | None:
    """None without restarts: then nothing of it is imported."""
    import re

    told = re.fullmatch(r"([1-9][0-9]{0,5})(?:/([1-9][0-9]{0,5})([smhd]?))?", limit)
    if told is None:
        raise typer.BadParameter(f"--max-restarts {limit!r}: use N or N/WINDOW, like 5 or 5/1h")
    if when is When.NO:
        return None
    most, count, unit = told.groups()
    window_s = Policy().window_s if count is None else float(count) * _SECONDS[unit or "s"]
    return Policy(when, int(most), window_s, backoff_s)


def _uid(user: str) -> int:
    import pwd

    try:
        return int(user) if user.isdigit() else pwd.getpwnam(user).pw_uid
    except KeyError:
        raise typer.BadParameter(f"--evict-user {user!r}: there is no such user") from None


def _checks(names: list[str] | None) -> frozenset[str]:
    from supervise.preflight import NAMES

    for name in names or ():
        if name not in (known := (*NAMES, "packages", "all")):
            raise typer.BadParameter(f"--no-preflight {name!r}: use {', '.join(known)}")
    return frozenset(names or ())


@app.command("status")
def _status(run: MaybeRun = None, json: AsJson = False) -> None:
    """What runs, since when, in which phase. With RUN: exit 0 if it runs, 3 if not."""
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
