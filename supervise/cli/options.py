"""The options of `run` and `clean`, each declared once, in groups with a meaning of their own."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from supervise.model.evict import Evict
from supervise.model.tier import Tier, Wanted

if TYPE_CHECKING:
    from supervise.attempts.log import Bound
    from supervise.attempts.pruning import Pruning
    from supervise.runner.plan import Clearing

_CACHES = ("compile",)
_MIB = 2**20


def _run_name(name: str | None) -> str | None:
    from supervise.attempts.store import RUN_NAME

    if name is not None and not RUN_NAME.fullmatch(name):
        raise typer.BadParameter(f"{name!r}: use 1 to 80 of the characters A-Z a-z 0-9 . _ -, a letter or digit first")
    return name


@dataclass(frozen=True, slots=True)
class NameOptions:
    """Which run it is, and of which engine."""

    name: Annotated[
        str | None,
        typer.Option("--name", metavar="RUN", callback=_run_name, help="Name of the run. Default: <profile>-<port>."),
    ] = None
    profile: Annotated[
        str | None,
        typer.Option("--profile", metavar="NAME", help="Engine profile. Default: told from the command line."),
    ] = None


@dataclass(frozen=True, slots=True)
class SlateOptions:
    """How long the clean slate may take."""

    slate_timeout: Annotated[
        float,
        typer.Option(
            "--slate-timeout",
            metavar="SECONDS",
            min=0,
            help="How long leftovers may take to go away, exit 94 after it.",
        ),
    ] = 100.0


@dataclass(frozen=True, slots=True)
class ClearingOptions:
    """How far the clean slate goes."""

    evict: Annotated[
        Evict | None,
        typer.Option(
            "--evict",
            help="Who may be ended: own, what this run left; stale (the default), also dead or orphaned engines; "
            "engines, also live ones in the way; all, whoever holds a needed port or GPU. Always of the same user "
            "only.",
        ),
    ] = None
    evict_user: Annotated[
        list[str] | None,
        typer.Option("--evict-user", metavar="USER", help="As root: treat this user's processes like our own."),
    ] = None
    artefacts: Annotated[
        list[str] | None,
        typer.Option("--artefacts", metavar="GLOB", help="Remove these files unless somebody has them open."),
    ] = None
    purge_cache: Annotated[
        list[str] | None,
        typer.Option(
            "--purge-cache", metavar="NAME", help="compile: move the compile caches aside, nothing is deleted."
        ),
    ] = None
    package: Annotated[
        list[str] | None,
        typer.Option("--package", metavar="NAME", help="Look at the files of this package or directory, too."),
    ] = None

    def clearing(self) -> Clearing:
        """What was asked for.

        Raises:
            BadParameter: it cannot be meant.
        """
        from supervise.runner.plan import Clearing

        globs, purge, users = self.artefacts or (), self.purge_cache or (), self.evict_user or ()
        for word in purge:
            if word not in _CACHES:
                raise typer.BadParameter(f"--purge-cache {word!r}: use {', '.join(_CACHES)}")
        if not all(glob.strip() for glob in globs):
            raise typer.BadParameter("--artefacts '': names no file; is a variable of the shell not set?")
        if users and os.geteuid() != 0:
            raise typer.BadParameter("--evict-user has no effect unless root gives it")
        return Clearing(
            evict=self.evict,
            evict_uids=frozenset(map(_uid, users)),
            artefacts=tuple(os.path.abspath(os.path.expanduser(glob)) for glob in globs),
            purge=tuple(purge),
            packages=tuple(self.package or ()),
        )


@dataclass(frozen=True, slots=True)
class PatienceOptions:
    """How long a server may take to stop and to start."""

    grace: Annotated[
        float | None,
        typer.Option(
            "--grace",
            metavar="SECONDS",
            min=0,
            help="From SIGTERM until the whole group is told. Default: the profile's.",
        ),
    ] = None
    ready_timeout: Annotated[
        float,
        typer.Option(
            "--ready-timeout", metavar="SECONDS", min=1, help="Not ready by then: the group is ended, exit 90."
        ),
    ] = 3600.0
    stall_timeout: Annotated[
        float | None,
        typer.Option(
            "--stall-timeout",
            metavar="SECONDS",
            min=0,
            help="Nothing of it moves for so long while it starts: exit 90. 0: it is only said. Default: the "
            "profile's, by phase.",
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class KeepingOptions:
    """What is kept of attempts and of their logs."""

    keep: Annotated[int, typer.Option("--keep", metavar="N", min=1, help="Attempts of this run to keep.")] = 50
    keep_mib: Annotated[
        int,
        typer.Option(
            "--keep-mib", metavar="MIB", min=1, help="Disk space that the attempts of this run may take together."
        ),
    ] = 10240
    log_mib: Annotated[
        int,
        typer.Option(
            "--log-mib", metavar="MIB", min=1, help="Log kept as it is; what is older is compressed beside it."
        ),
    ] = 512

    def pruning(self) -> Pruning:
        """Which attempts are kept."""
        from supervise.attempts.pruning import Pruning

        return Pruning(self.keep, self.keep_mib * _MIB)

    def bound(self) -> Bound:
        """How much of a log is."""
        from supervise.attempts.log import Bound

        return Bound(self.log_mib * _MIB)


@dataclass(frozen=True, slots=True)
class TierOptions:
    """What holds the group together."""

    no_cgroup: Annotated[bool, typer.Option("--no-cgroup", help="Do not put the server into a cgroup of its own.")] = (
        False
    )
    pidns: Annotated[
        bool, typer.Option("--pidns", help="Put a PID namespace around the server: the kernel ends what is in it.")
    ] = False
    scope: Annotated[
        bool, typer.Option("--scope", help="Ask systemd for a scope to run in, so that there can be a cgroup.")
    ] = False
    require_tier: Annotated[
        list[Tier] | None,
        typer.Option("--require-tier", metavar="TIER", help="cgroup or pidns: launch nothing if it cannot be had."),
    ] = None

    def wanted(self) -> Wanted:
        """The tiers that were asked for.

        Raises:
            BadParameter: one that was refused is required.
        """
        required = frozenset(self.require_tier or ())
        if self.no_cgroup and Tier.CGROUP in required:
            raise typer.BadParameter("--no-cgroup and --require-tier cgroup contradict each other")
        return Wanted(not self.no_cgroup, self.pidns, required)


@dataclass(frozen=True, slots=True)
class PreflightOptions:
    """What is not looked at before the launch."""

    no_preflight: Annotated[
        list[str] | None,
        typer.Option(
            "--no-preflight",
            metavar="NAME",
            help="Skip a check: model, heads, length, gpus, memory, hostmemory, shm, limits, core, effect, port, disk, "
            "packages; or all.",
        ),
    ] = None

    def skipped(self) -> frozenset[str]:
        """Names of the checks that are left out.

        Raises:
            BadParameter: there is no such check.
        """
        from supervise.preflight import NAMES

        for name in self.no_preflight or ():
            if name not in (known := (*NAMES, "packages", "all")):
                raise typer.BadParameter(f"--no-preflight {name!r}: use {', '.join(known)}")
        return frozenset(self.no_preflight or ())


def _uid(user: str) -> int:
    import pwd

    try:
        return int(user) if user.isdigit() else pwd.getpwnam(user).pw_uid
    except KeyError:
        raise typer.BadParameter(f"--evict-user {user!r}: there is no such user") from None
