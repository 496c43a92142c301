"""A unit file for systemd, with the reason for each setting. Pure."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from supervise.model.exits import Exit
from supervise.report.unitwords import WIDTH, line, path, word

# 93 to 95 are what a restart cannot help; so are a wrong command line, and a policy of our own that has given up.
_NO_RESTART = (
    Exit.USAGE,
    Exit.DETERMINISTIC,
    Exit.SLATE,
    Exit.SURVIVORS,
    Exit.GAVE_UP,
    Exit.CANNOT_EXECUTE,
    Exit.NOT_FOUND,
)
_SLACK_S = 60


class UnitFile(NamedTuple):
    """What a unit is about.

    Attributes:
        run: name of the run.
        user: whether it is for the service manager of a user.
        account: who it runs as; of no use for that.
        supervise: our own command, its first word absolute.
        options: those of `run`, as they were given.
        command: the server's command line, its first word absolute; a word `${NAME}` in `secret` stays a reference.
        secret: indexes of words of the command that are secret.
        directory: where it is run.
        env: variables that matter, none of them secret.
        withheld: names of secret ones, which are not written.
        slate_s: how long the clean slate may take, in seconds.
        stop_s: how long the stop path may take.
        relaunches: whether supervise itself launches again.
    """

    run: str
    user: bool
    account: str
    supervise: tuple[str, ...]
    options: tuple[str, ...]
    command: tuple[str, ...]
    secret: frozenset[int]
    directory: str
    env: Mapping[str, str]
    withheld: tuple[str, ...]
    slate_s: float
    stop_s: float
    relaunches: bool

    @property
    def name(self) -> str:
        """The file's own name."""
        return f"supervise-{self.run}.service"

    @property
    def secrets_file(self) -> str:
        """Where systemd is told secrets."""
        return f"{'%h/.config' if self.user else '/etc'}/supervise/{self.run}.env"


# --- the file ---------------------------------------------------------------------------------------------------------


def render(unit: UnitFile) -> str:
    """The text of the unit file, with the reason for each setting.

    Raises:
        UnwritableError: something of it cannot be said in a unit file.
    """
    return "\n".join((*_head(unit), "", *_service(unit), "", *_install(unit), ""))


def _head(unit: UnitFile) -> Iterator[str]:
    user = "--user " if unit.user else ""
    place = "~/.config/systemd/user" if unit.user else "/etc/systemd/system"
    yield f"# {place}/{unit.name}"
    yield f"# systemctl {user}daemon-reload && systemctl {user}enable --now {unit.name}"
    yield f"# systemctl {user}status {unit.name} shows phase and percent while it loads, and the cause when it fails."
    yield f"# journalctl {user}-u {unit.name} has what supervise says; `supervise logs` has what the server says."
    yield ""
    yield "[Unit]"
    yield f"Description={path(_description(unit))}"
    if not unit.user:
        yield "Wants=network-online.target"
        yield "After=network-online.target nvidia-persistenced.service"
    yield from _because("A load takes minutes: the default limit, five starts within ten seconds, is never reached.")
    yield "StartLimitIntervalSec=1h"
    yield "StartLimitBurst=5"


def _description(unit: UnitFile) -> str:
    shown = " ".join(name for at, name in enumerate(unit.command) if at not in unit.secret)
    text = f"{unit.run}: {shown}"
    return "".join(c if c.isprintable() and c != "\\" else "?" for c in text[:120]).strip()


def _service(unit: UnitFile) -> Iterator[str]:
    yield "[Service]"
    yield from _because(
        "supervise tells systemd where it is. Nobody else may: an engine's own READY would come too early."
    )
    yield from ("Type=notify", "NotifyAccess=main")
    yield from _account(unit)
    yield f"WorkingDirectory={path(unit.directory)}"
    yield from _environment(unit)
    yield ""
    yield line((*_own(unit, "ExecStart=", "run", *unit.options, "--"), *_command(unit)))
    yield from _because("`systemctl reload` is `supervise restart`: the stop path, a clean slate, the next attempt.")
    yield line(_own(unit, "ExecReload=", "restart", unit.run))
    yield from _ending(unit)
    yield from _again(unit)
    yield from _limits()


def _own(unit: UnitFile, setting: str, *words: str) -> Iterator[str]:
    """A command line of ours; the program's path is no place for variables (systemd.service(5), COMMAND LINES)."""
    program, *more = unit.supervise
    yield f"{setting}{word(program, expanded=False)}"
    yield from map(word, (*more, *words))


def _command(unit: UnitFile) -> Iterator[str]:
    yield from (text if at in unit.secret else word(text) for at, text in enumerate(unit.command))


def _account(unit: UnitFile) -> Iterator[str]:
    if unit.user:
        yield from _because("It ends with your last session, unless: loginctl enable-linger")
        return
    yield from _because("GPUs take no root; an account of its own is best. It must be able to read the model.")
    yield f"User={unit.account}"
    place = f"supervise-{unit.account}"
    yield from _because(
        "State and logs of all runs of this account: systemd gives the whole directory to it at each start. To ask "
        f"from a shell: STATE_DIRECTORY=/var/lib/{place} supervise status"
    )
    yield from (
        f"StateDirectory={place}",
        "StateDirectoryMode=0700",
        f"LogsDirectory={place}",
        "LogsDirectoryMode=0750",
    )


def _environment(unit: UnitFile) -> Iterator[str]:
    if unit.env:
        yield from _because("What engines read of the environment that this file was printed in.")
    for name, value in unit.env.items():
        yield f"Environment={word(f'{name}={value}', expanded=False)}"
    told = f" Not copied from here: {', '.join(unit.withheld)}." if unit.withheld else ""
    yield from _because(
        f"Secrets never stand in a unit: everybody can read it. Write NAME=value lines into this file, mode 0600.{told}"
        " Or LoadCredential=, for whatever reads files in $CREDENTIALS_DIRECTORY."
    )
    yield f"EnvironmentFile={'' if unit.secret else '-'}{unit.secrets_file}"


def _ending(unit: UnitFile) -> Iterator[str]:
    yield from _because(
        "SIGTERM to supervise alone, which ends the group in order and verifies it; whatever is left once it is gone, "
        "or was killed, gets SIGKILL."
    )
    yield "KillMode=mixed"
    yield from _because(
        "Both are backstops. supervise asks for more time from the first moment on, as long as the load makes progress "
        "or its patience is not over, and then for its stop path: its own deadline comes first, and takes evidence."
    )
    yield f"TimeoutStartSec={math.ceil(unit.stop_s) + _SLACK_S}"
    yield f"TimeoutStopSec={math.ceil(max(unit.stop_s, unit.slate_s)) + _SLACK_S}"
    yield from _because(
        "After a supervise that was killed: shared memory, sockets and locks of this run, no other one's."
    )
    yield line(_own(unit, "ExecStopPost=-", "clean", "--evict", "own", "--name", unit.run))
    yield from _because(
        "Watches supervise, which watches the server. If it hangs it gets SIGABRT, and SIGKILL if that does not help."
    )
    yield from ("WatchdogSec=60", "TimeoutAbortSec=10")


def _again(unit: UnitFile) -> Iterator[str]:
    own = (
        " supervise relaunches the server itself, as --restart has it; this is for supervise."
        if unit.relaunches
        else ""
    )
    yield from _because(
        "Not after `systemctl stop`, nor after `supervise stop`: supervise dies of the SIGTERM then, which counts as "
        f"clean.{own}"
    )
    yield from ("Restart=on-failure", "RestartSec=10")
    yield from _because(
        f"It would fail the same way: {Exit.DETERMINISTIC:d} deterministic, {Exit.SLATE:d} the slate is not clean, "
        f"{Exit.SURVIVORS:d} something survived, {Exit.GAVE_UP:d} supervise gave up, {Exit.USAGE:d}, 126, 127 the "
        "command line is wrong."
    )
    yield f"RestartPreventExitStatus={' '.join(str(int(status)) for status in _NO_RESTART)}"


def _limits() -> Iterator[str]:
    yield from _because(
        "A cgroup of its own for each attempt, below the unit's: one write ends whatever is in it, and the kernel says "
        "when it is empty."
    )
    yield "Delegate=yes"
    yield from _because(
        "A worker that the kernel killed for memory is a failure with a name: supervise ends the others."
    )
    yield "OOMPolicy=continue"
    yield from _because("Pinned memory for GPUs and RDMA; sockets and files of many workers; their threads.")
    yield from ("LimitMEMLOCK=infinity", "LimitNOFILE=524288", "TasksMax=infinity")


def _install(unit: UnitFile) -> Sequence[str]:
    return ("[Install]", f"WantedBy={'default' if unit.user else 'multi-user'}.target")


def _because(reason: str) -> Iterator[str]:
    yield ""
    yield from textwrap.wrap(
        reason, WIDTH, initial_indent="# ", subsequent_indent="# ", break_long_words=False, break_on_hyphens=False
    )
