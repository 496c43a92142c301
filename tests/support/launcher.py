"""The command line as a user starts it: `python -m supervise …` with directories of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from supervise.host import procfs, signals
from supervise.model.process import ProcessId
from tests.support.family import Family
from tests.support.readable import ROOT, readable_copy, readable_python, readable_site
from tests.support.waiting import DEADLINE_S, wait_until

NOBODY = 65534
# What would make a test see the machine it happens to run on.
_NOT_PASSED_ON = ("SUPERVISE_", "NOTIFY_SOCKET", "WATCHDOG_", "LISTEN_", "STATE_DIRECTORY", "VLLM_", "CUDA_")


def standin(
    *options: object, port: int, pids: Path | None = None, python: str = sys.executable, code: Path = ROOT
) -> list[str]:
    """The command line of a stand-in server."""
    told = [] if pids is None else ["--pids-file", str(pids)]
    return [python, str(code / "supervise/demo/server.py"), "--port", str(port), *told, *map(str, options)]


def hydra(*options: str, pids: Path, python: str = sys.executable, code: Path = ROOT) -> list[str]:
    """The command line of a hostile tree."""
    return [python, str(code / "tests/support/hydra.py"), "--tell", str(pids), *options]


def free_port() -> int:
    """A port that nobody has right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Launched:
    """One `supervise` that was started.

    Attributes:
        popen: its process.
        stderr_path: where its standard error goes.
        stdout_path: where its standard output goes.
    """

    def __init__(self, popen: subprocess.Popen[bytes], stdout_path: Path, stderr_path: Path) -> None:
        self.popen = popen
        self.id = procfs.identify(popen.pid) or ProcessId(popen.pid, 0)
        self.stdout_path = stdout_path
        self.stderr_path = stderr_path

    @property
    def stdout(self) -> str:
        """What it has printed so far."""
        return self.stdout_path.read_text(errors="replace")

    @property
    def stderr(self) -> str:
        """What it has told people so far."""
        return self.stderr_path.read_text(errors="replace")

    def wait(self, deadline_s: float = DEADLINE_S) -> int:
        """Its exit status, negative for a signal; fails with what it said when it is late."""
        try:
            return self.popen.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {deadline_s} s; it said:\n{self.stderr}") from None

    def wait_said(self, text: str, deadline_s: float = DEADLINE_S) -> None:
        """Wait until standard error has this text."""

        def said() -> bool:
            present = text in self.stderr
            if not present and self.popen.poll() is not None and text not in self.stderr:
                raise AssertionError(f"ended with {self.popen.returncode} without {text!r}; it said:\n{self.stderr}")
            return present

        wait_until(said, deadline_s, failure=lambda: f"{text!r} in:\n{self.stderr}")

    def send(self, signum: int) -> None:
        """Signal supervise, not its server."""
        self.popen.send_signal(signum)

    def discard(self) -> None:
        """Tear-down: SIGTERM, a little patience, SIGKILL; the keeper ends the group either way."""
        if self.popen.poll() is None:
            self.popen.terminate()
            try:
                self.popen.wait(10.0)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait(10.0)


class Supervise:
    """Starts `supervise` with a state directory of its own, and reads what it left there.

    Args:
        base: a directory of the test's own, with a short path (sockets live below it).
        uid: the user to run as; None for the present one.
    """

    def __init__(self, base: Path, uid: int | None = None) -> None:
        self.base = base
        self.uid = uid
        self.state = base / "state"
        self.tmp = base / "tmp"
        self.extra_env: dict[str, str] = {}
        self._launched: list[Launched] = []
        self._families: list[Family] = []
        for directory in (base / "home", self.state, base / "run", self.tmp):
            directory.mkdir(mode=0o700, exist_ok=True)
            if uid is not None:
                os.chown(directory, uid, uid)
        if uid is not None:
            os.chown(base, uid, uid)

    @property
    def env(self) -> dict[str, str]:
        """The environment it gets."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(_NOT_PASSED_ON)}
        return inherited | {
            "HOME": str(self.base / "home"),
            "XDG_STATE_HOME": str(self.state),
            "XDG_RUNTIME_DIR": str(self.base / "run"),
            "TMPDIR": str(self.tmp),
            "COLUMNS": "120",
            **({} if self.uid is None else {"PYTHONPATH": f"{readable_copy()}{os.pathsep}{readable_site()}"}),
            "PYTHONDONTWRITEBYTECODE": "1",
            **self.extra_env,
        }

    @property
    def python(self) -> str:
        """A Python that the user it runs as can execute."""
        return sys.executable if self.uid is None else readable_python()

    @property
    def code(self) -> Path:
        """Where the user it runs as finds our code."""
        return ROOT if self.uid is None else readable_copy()

    def standin(self, *options: object, port: int, pids: Path | None = None) -> list[str]:
        """The command line of a stand-in server that this user can start."""
        return standin(*options, port=port, pids=pids, python=self.python, code=self.code)

    def hydra(self, *options: str, pids: Path) -> list[str]:
        """The command line of a hostile tree that this user can start."""
        return hydra(*options, pids=pids, python=self.python, code=self.code)

    def start(self, *arguments: object, env: Mapping[str, str] | None = None, **popen: Any) -> Launched:
        """Start `supervise ARGUMENTS…`; returns at once."""
        number = len(self._launched)
        out, err = self.base / f"{number}.out", self.base / f"{number}.err"
        as_user: dict[str, Any] = {} if self.uid is None else {"user": self.uid, "group": self.uid, "extra_groups": []}
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(
                [self.python, "-m", "supervise", *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env=self.env | dict(env or {}),
                cwd=self.base,
                **(as_user | popen),
            )
        launched = Launched(process, out, err)
        self._launched.append(launched)
        return launched

    def run(self, *arguments: object, deadline_s: float = DEADLINE_S, **popen: Any) -> Launched:
        """The same, and wait until it has ended; the status is in `popen.returncode`."""
        launched = self.start(*arguments, **popen)
        launched.wait(deadline_s)
        return launched

    def family(self, name: str = "pids") -> Family:
        """The file through which a program under test tells its pids; its members are ended at tear-down."""
        family = Family(self.tmp / name)
        self._families.append(family)
        return family

    def runs(self) -> list[Path]:
        """The directories of all runs."""
        root = self.state / "supervise"
        return sorted(path for path in root.iterdir() if (path / "run.json").exists()) if root.exists() else []

    def run_directory(self) -> Path:
        """The directory of the only run."""
        (path,) = wait_until(self.runs, failure=self.said)
        return path

    def status(self) -> dict[str, Any]:
        """`run.json` of the only run."""
        return _json(self.run_directory() / "run.json")

    def wait_state(self, *states: str, deadline_s: float = DEADLINE_S) -> dict[str, Any]:
        """Wait until the only run is in one of these states."""
        wait_until(
            lambda: self.status().get("state") in states,
            deadline_s,
            failure=lambda: f"state {states}: {self.status()}\n{self.said()}",
        )
        return self.status()

    def attempt(self, number: int | None = None) -> Path:
        """The directory of an attempt, the newest by default."""
        found = sorted((self.run_directory() / "attempts").glob("[0-9]*"))
        return found[-1] if number is None else next(path for path in found if int(path.name) == number)

    def outcome(self) -> dict[str, Any]:
        """`outcome.json` of the newest attempt."""
        return _json(self.attempt() / "outcome.json")

    def record(self) -> dict[str, Any]:
        """`attempt.json` of the newest attempt."""
        return _json(self.attempt() / "attempt.json")

    def log(self) -> str:
        """The server's log of the newest attempt, empty while it is not there yet."""
        path = self.attempt() / "server.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def identity(self, who: str) -> ProcessId:
        """`supervisor`, `keeper` or `leader`, as `run.json` has them."""
        told = self.status()[who]
        return ProcessId(told["pid"], told["ticks"])

    def said(self) -> str:
        """Standard error of everything started, for failure messages."""
        return "\n".join(launched.stderr for launched in self._launched)

    def close(self) -> None:
        """End everything that is left."""
        for launched in self._launched:
            launched.discard()
        for path in self.runs():
            for who in ("keeper", "leader"):
                if told := _json(path / "run.json").get(who):
                    signals.send(ProcessId(told["pid"], told["ticks"]), signal.SIGKILL)
        for family in self._families:
            family.kill()


def _json(path: Path) -> dict[str, Any]:
    loaded = json.loads(path.read_text())
    assert isinstance(loaded, dict)
    return loaded
