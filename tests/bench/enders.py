"""The tools whose ending of a process tree is compared, the two bare ways among them: how each starts and stops one."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from supervise.host import procfs, signals
from supervise.model.process import ProcessId
from tests.bench.managers import SUPERVISE

LOOP = "bare SIGKILL loop"
CGROUP = "bare cgroup.kill"


class NotAvailableError(Exception):
    """The tool is missing here, or does not start the tree; says why."""


@dataclass(frozen=True)
class Tool:
    """One way to run a process tree and to end it.

    Attributes:
        name: as it stands in the tables.
        command: from the tree's command line and a directory of its own to what is executed; NotAvailableError.
        stop: how it is asked to end the tree, given the process that was started and the directory.
        bare: whether there is no tool, only a way to end the tree: nothing is there to be killed.
    """

    name: str
    command: Callable[[list[str], Path], list[str]]
    stop: Callable[[ProcessId, Path], None] = lambda started, _: _ask(started)
    bare: bool = False


def tools() -> list[Tool]:
    """All of them, the bare ways first."""
    return [
        Tool(LOOP, lambda tree, _: tree, lambda started, _: _kill_loop(started), bare=True),
        Tool(CGROUP, _in_leaf, lambda _, directory: _kill_leaf(directory), bare=True),
        Tool("supervise", _supervise),
        Tool("supervise --no-cgroup", lambda tree, directory: _supervise(tree, directory, "--no-cgroup")),
        Tool("tini -s -g", lambda tree, _: [_program("tini"), "-s", "-g", "--", *tree]),
        Tool("dumb-init", lambda tree, _: [_program("dumb-init"), "--", *tree]),
        Tool("supervisord", _supervisord),
        Tool("circus", _circus),
        Tool("honcho", _honcho),
    ]


def discard(directory: Path) -> None:
    """Remove a directory and what stands for it elsewhere; every process in it has ended."""
    try:
        _leaf(directory).rmdir()
    except (NotAvailableError, OSError):
        pass  # not made, which is so for all tools but one
    shutil.rmtree(directory, ignore_errors=True)


def _ask(started: ProcessId) -> None:
    signals.send(started, signal.SIGTERM)


def _program(name: str) -> str:
    """From $BENCH_PEERS/bin, then from the search path."""
    path = os.pathsep.join(filter(None, [_peers_bin(), os.environ.get("PATH", os.defpath)]))
    found = shutil.which(name, path=path)
    if found is None:
        raise NotAvailableError("missing: not in $BENCH_PEERS/bin, not on PATH")
    return found


def _peers_bin() -> str:
    home = os.environ.get("BENCH_PEERS")
    return str(Path(home) / "bin") if home else ""


def _supervise(tree: list[str], directory: Path, *options: str) -> list[str]:
    *script, _ = SUPERVISE.command([""], directory)
    return [*script, *options, "--grace", "0", *tree]


def _supervisord(tree: list[str], directory: Path) -> list[str]:
    """Its patience is whole seconds; with 0 it kills on its next look, about a second later."""
    (directory / "supervisord.conf").write_text(
        f"[supervisord]\nnodaemon=true\nlogfile=/dev/null\nlogfile_maxbytes=0\npidfile={directory}/pid\n"
        f"[program:tree]\ncommand={shlex.join(tree)}\nautorestart=false\nstartsecs=0\n"
        "stopasgroup=true\nkillasgroup=true\nstopwaitsecs=0\n"
        "stdout_logfile=/dev/null\nstdout_logfile_maxbytes=0\nstderr_logfile=/dev/null\nstderr_logfile_maxbytes=0\n"
    )
    return [_program("supervisord"), "-n", "-c", str(directory / "supervisord.conf")]


def _circus(tree: list[str], directory: Path) -> list[str]:
    """It tells the leader first and then looks for its children, which a leader that dies at once has no more."""
    (directory / "circus.ini").write_text(
        f"[circus]\nendpoint=ipc://{directory}/endpoint\npubsub_endpoint=ipc://{directory}/pubsub\n"
        f"[watcher:tree]\ncmd={shlex.join(tree)}\ncopy_env=True\ngraceful_timeout=0\nstop_children=True\n"
    )
    return [_program("circusd"), str(directory / "circus.ini")]


def _honcho(tree: list[str], directory: Path) -> list[str]:
    (directory / "Procfile").write_text(f"tree: exec {shlex.join(tree)}\n")
    return [_program("honcho"), "-f", str(directory / "Procfile"), "start"]


def _kill_loop(leader: ProcessId) -> None:
    """Kill whatever is below us until a look finds nobody new; orphans come to us, because we are their reaper."""
    killed: set[int] = set()
    while new := _since(leader) - killed:
        for pid in new:
            os.kill(pid, signal.SIGKILL)  # nobody is reaped meanwhile, so the pid is still the one that was read
        killed |= new


def _since(leader: ProcessId) -> set[int]:
    """Who is below us and is not older than this one."""
    below = procfs.descendants(procfs.scan(cmdline=False, environ=False), os.getpid())
    return {process.pid for process in below if process.id.ticks >= leader.ticks and not process.gone}


def _in_leaf(tree: list[str], directory: Path) -> list[str]:
    leaf = _leaf(directory)
    try:
        leaf.mkdir()
    except OSError as error:
        raise NotAvailableError(f"no cgroup can be made: {error}") from error
    if not (leaf / "cgroup.kill").exists():
        leaf.rmdir()
        raise NotAvailableError("this kernel has no cgroup.kill (5.14)")
    return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(leaf / "cgroup.procs"), *tree]


def _kill_leaf(directory: Path) -> None:
    (_leaf(directory) / "cgroup.kill").write_text("1")


def _leaf(directory: Path) -> Path:
    """The cgroup that goes with a directory, below our own one (cgroups(7); the fields are those of proc(5)).

    Raises:
        NotAvailableError: no cgroup2 is mounted.
    """
    mine = next(line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        if after.startswith("cgroup2 "):
            root, mounted_at = before.split()[3:5]
            return Path(mounted_at) / mine.removeprefix(root).lstrip("/") / directory.name
    raise NotAvailableError("no cgroup2 is mounted")
