"""The managers that are compared, each as the command line that puts it in front of a server."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import urllib.request
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from supervise.host import procfs, signals
from supervise.model.process import Process, ProcessId
from tests.support.launcher import free_port

ROOT = Path(__file__).resolve().parents[2]
_PATIENCE_S = 30.0
# Ending is not measured: a manager with a backlog of log to read is not waited for.
_END_S = 5.0
# What is installed keeps what Python has compiled, and runs without the settings of whoever measures.
_NOT_PASSED_ON = {"PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"}


@dataclass(frozen=True)
class Manager:
    """One way to run a server.

    Attributes:
        name: as it stands in the tables.
        command: from the server's command line and a directory of its own to what is executed.
        writes_log: whether it puts the server's output into a log itself; otherwise its standard output is one.
        log_share: which part of the usual bytes it is given to log; one that is very slow would take minutes.
    """

    name: str
    command: Callable[[list[str], Path], list[str]]
    writes_log: bool = False
    log_share: float = 1.0


def _supervise(server: list[str], _: Path) -> list[str]:
    script = Path(sys.executable).with_name("supervise")
    return [*([str(script)] if script.exists() else [sys.executable, "-m", "supervise"]), *server]


def _shell_recipe(server: list[str], _: Path) -> list[str]:
    """What people put before a launch; pgrep is pkill without the signal."""
    return [
        "sh",
        "-c",
        f"pgrep -f '[n]o-such-server'; sleep 2; ps aux | grep '[n]o-such-server'; exec {shlex.join(server)}",
    ]


DIRECT = Manager("plain redirect", lambda server, _: server)
SUPERVISE = Manager("supervise", _supervise, writes_log=True)
RECIPE = Manager("pkill; sleep 2; ps | grep", _shell_recipe)


def environment() -> dict[str, str]:
    """Ours, as a user would have it."""
    return {name: value for name, value in os.environ.items() if name not in _NOT_PASSED_ON}


def peers(directory: Path) -> list[Manager]:
    """honcho and supervisord: from $BENCH_PEERS, an environment that has them, or from one made in `directory`."""
    home = Path(os.environ.get("BENCH_PEERS") or _install(directory / "peers"))
    return [manager for manager in (_honcho(home), _supervisord(home)) if manager is not None]


def _install(target: Path) -> Path:
    venv.EnvBuilder(with_pip=True).create(target)
    pip = [target / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if subprocess.run([*pip, "honcho", "supervisor", "setuptools<81"], check=False).returncode:
        print("honcho and supervisord could not be installed and are left out", file=sys.stderr)
    return target


def _honcho(home: Path) -> Manager | None:
    program = home / "bin/honcho"

    def command(server: list[str], directory: Path) -> list[str]:
        (directory / "Procfile").write_text(f"server: exec {shlex.join(server)}\n")
        return [str(program), "-f", str(directory / "Procfile"), "start"]

    return Manager("honcho", command, log_share=1 / 16) if program.exists() else None


def _supervisord(home: Path) -> Manager | None:
    program = home / "bin/supervisord"

    def command(server: list[str], directory: Path) -> list[str]:
        (directory / "supervisord.conf").write_text(
            f"[supervisord]\nnodaemon=true\nlogfile=/dev/null\nlogfile_maxbytes=0\npidfile={directory}/pid\n"
            f"[program:server]\ncommand={shlex.join(server)}\nredirect_stderr=true\nautorestart=false\n"
            f"stdout_logfile={directory}/server.log\nstdout_logfile_maxbytes=0\n"
        )
        return [str(program), "-n", "-c", str(directory / "supervisord.conf")]

    return Manager("supervisord", command, writes_log=True) if program.exists() else None


class Running:
    """A server behind a manager, in a directory of its own; ended and removed on leaving the `with` block.

    Args:
        manager: which one.
        does: what the server does, as $BENCH_DO has it.
    """

    def __init__(self, manager: Manager, does: str) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="sv-bench-"))
        self.port = free_port()
        self._told = self.directory / "told"
        server = [str(_program(self.directory)), "serve", "model", "--port", str(self.port), "--load-s", "0.2"]
        command = manager.command(server, self.directory)
        output = Path(os.devnull) if manager.writes_log else self.directory / "server.log"
        with output.open("ab") as stdout, (self.directory / "stderr").open("wb") as stderr:
            self.begun = time.monotonic()
            self.popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env=self._environment(does),
                cwd=self.directory,
            )
        self.id = procfs.identify(self.popen.pid) or ProcessId(self.popen.pid, 0)

    def _environment(self, does: str) -> dict[str, str]:
        return environment() | {
            "BENCH_DO": does,
            "BENCH_TOLD": str(self._told),
            "BENCH_ROOT": str(ROOT),
            "XDG_STATE_HOME": str(self.directory),
            "XDG_RUNTIME_DIR": str(self.directory),
            "TMPDIR": str(self.directory),
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        left = [member.id for member in self.tree()]
        signals.send(self.id, signal.SIGTERM)
        try:
            self.popen.wait(_END_S)
        except subprocess.TimeoutExpired:
            pass
        for member in (*left, self.id):
            signals.send(member, signal.SIGKILL)
        self.popen.wait(_PATIENCE_S)
        shutil.rmtree(self.directory, ignore_errors=True)

    def told(self, event: str) -> list[dict[str, Any]]:
        """What the server has told so far, of one kind."""
        text = self._told.read_text() if self._told.exists() else ""
        entries = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
        return [entry for entry in entries if entry["event"] == event]

    def wait_told(self, event: str, patience_s: float = _PATIENCE_S) -> dict[str, Any]:
        """Wait for it.

        Raises:
            TimeoutError: it never came.
        """
        until = time.monotonic() + patience_s
        while not (entries := self.told(event)):
            if time.monotonic() > until or self.popen.poll() is not None:
                raise TimeoutError(f"no {event!r}: {(self.directory / 'stderr').read_text()}")
            time.sleep(0.005)
        return entries[0]

    def wait_served(self) -> None:
        """Wait until the server answers, and its manager has had the time to see it.

        Raises:
            TimeoutError: it never did.
        """
        until = time.monotonic() + _PATIENCE_S
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5.0):
                    return
            except OSError as error:
                if time.monotonic() > until:
                    raise TimeoutError(f"nobody serves: {error}") from None
                time.sleep(0.05)

    def tree(self) -> list[Process]:
        """Everything below the manager."""
        return procfs.descendants(procfs.scan(environ=False), self.popen.pid)

    def managers(self) -> list[ProcessId]:
        """The manager's own processes: all but the server's."""
        server = self.wait_told("started")["pid"]
        below = {process.id.pid for process in procfs.descendants(procfs.scan(environ=False), server)} | {server}
        return [self.id, *(member.id for member in self.tree() if member.id.pid not in below)]


def _program(directory: Path) -> Path:
    """The measuring server as a program called `vllm`."""
    program = directory / "vllm"
    source = Path(__file__).with_name("server.py").read_text()
    program.write_text(f"#!{sys.executable} -IS\n{source}")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program
