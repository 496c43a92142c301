"""The zoo: every kind of leftover, made for real, beside as many decoys that look like it.

An exhibit knows whether it is a leftover, how far a policy has to go before it may be removed, and whether it is still
there. Nothing here knows how the clean slate finds anything.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from supervise.host import procfs, signals
from supervise.model.evict import Evict
from supervise.model.process import ProcessId
from tests.support.waiting import wait_gone

SUPPORT = Path(__file__).resolve().parent
SHM = Path("/dev/shm")


@dataclass(frozen=True)
class Exhibit:
    """One thing in the zoo.

    Attributes:
        kind: which row of the table it belongs to.
        label: what it is, for people who read a failure.
        subject: by what a report names it: a path, `pid N`.
        present: whether it is still there, and still the same.
        leftover: whether it is one at all; otherwise a decoy.
        level: the least policy that removes it; None if none does: a decoy, or something that is only told.
    """

    kind: str
    label: str
    subject: str
    present: Callable[[], bool] = field(repr=False)
    leftover: bool
    level: Evict | None

    def due(self, policy: Evict) -> bool:
        """Whether a slate that goes this far has to remove it."""
        return self.level is not None and policy.covers(self.level)


class Zoo:
    """Directories of its own, and what lives in them; everything is ended and removed by `close`.

    Args:
        base: a directory of its own with a short path.
    """

    def __init__(self, base: Path) -> None:
        self.base = base
        self.exhibits: list[Exhibit] = []
        self.home, self.tmp, self.site = base / "home", base / "tmp", base / "site"
        self.cache = self.home / ".cache"
        for directory in (self.home, self.tmp, self.site, self.cache, base / "state", base / "run"):
            directory.mkdir(mode=0o700)
        self._stack = ExitStack()

    @property
    def env(self) -> dict[str, str]:
        """The environment of everything here: nothing of the host's is looked at."""
        kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "PYTHONPATH", "USER")}
        return kept | {
            "HOME": str(self.home),
            "TMPDIR": str(self.tmp),
            "XDG_CACHE_HOME": str(self.cache),
            "XDG_STATE_HOME": str(self.base / "state"),
            "XDG_RUNTIME_DIR": str(self.base / "run"),
            "PATH": f"{self.base / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def close(self) -> None:
        """End and remove what is left."""
        self._stack.close()

    def later(self, function: Callable[..., object], *arguments: object) -> None:
        """Have this done by `close`."""
        self._stack.callback(function, *arguments)

    def show(self, kind: str, label: str, subject: str, present: Callable[[], bool], level: Evict | None) -> None:
        """Add an exhibit."""
        self.exhibits.append(Exhibit(kind, label, subject, present, level is not None, level))

    def tell(self, kind: str, subject: str, path: Path, *, leftover: bool) -> None:
        """Add an exhibit that is only told, by a report with these words, and left as it is."""
        before = _content(path)
        self.exhibits.append(Exhibit(kind, subject, subject, lambda: _content(path) == before, leftover, None))

    def file(self, kind: str, path: Path, level: Evict | None, label: str = "") -> Path:
        """Show a name in the file system: it is there as long as the name leads to the same inode."""
        state = path.lstat()
        identity = state.st_dev, state.st_ino
        self.later(_remove, path)
        self.show(kind, label or path.name, str(path), lambda: _identity(path) == identity, level)
        return path

    def process(self, kind: str, level: Evict | None, *argv: str, **spec: Any) -> ProcessId:
        """Show an orphan with this command line; see zoo_animal for what else it may be."""
        animal, _ = self.animal(*argv, **spec)
        self.show(kind, " ".join(argv), f"pid {animal.pid}", lambda: signals.alive(animal), level)
        return animal

    def animal(self, *argv: str, **spec: Any) -> tuple[ProcessId, dict[str, Any]]:
        """Start one that is not shown itself, and return what it said."""
        command = [sys.executable, "-I", "-S", str(SUPPORT / "zoo_animal.py"), json.dumps({"argv": argv, **spec})]
        popen = subprocess.Popen(command, stdout=subprocess.PIPE, env=self.env, cwd=self.base, start_new_session=True)
        assert popen.stdout is not None
        with popen.stdout:
            said = json.loads(popen.stdout.readline())
        animal = _identify(said["pid"])
        doomed = [animal, *([_identify(popen.pid)] if "launcher" in spec else [])]
        self.later(_end, doomed, popen)
        if "launcher" not in spec:
            popen.wait(10)
        return animal, said

    def tree(self) -> dict[str, Any]:
        """Start a multiprocessing tree; returns what it said."""
        popen = subprocess.Popen(
            [sys.executable, str(SUPPORT / "zoo_tree.py")],
            stdout=subprocess.PIPE,
            env=self.env,
            cwd=self.base,
            start_new_session=True,
        )
        assert popen.stdout is not None
        with popen.stdout:
            said: dict[str, Any] = json.loads(popen.stdout.readline())
        said["members"] = [_identify(pid) for pid in said["pids"]]
        self.later(kill, said["members"], popen)
        said["popen"] = popen
        return said

    def dead_pid(self) -> int:
        """A pid that somebody had, and nobody has now."""
        with subprocess.Popen(["true"]) as popen:
            return popen.pid


def kill(members: Iterable[ProcessId], popen: subprocess.Popen[bytes]) -> None:
    """SIGKILL to all of them at once: nobody has a moment to tidy up."""
    doomed = list(members)
    for signum in (signal.SIGSTOP, signal.SIGKILL):
        for member in doomed:
            signals.send(member, signum)
    popen.wait(10)
    wait_gone(doomed)


def free_ports(count: int) -> list[int]:
    """Ports that nobody has right now."""
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def unique() -> str:
    """Part of a name that nobody else has."""
    return secrets.token_hex(4)


def age(path: Path, seconds: float = 7200.0) -> Path:
    """Make a file look as old as this."""
    then = path.lstat().st_mtime - seconds
    os.utime(path, (then, then), follow_symlinks=False)
    return path


def _identify(pid: int) -> ProcessId:
    found = procfs.identify(pid)
    assert found is not None, pid
    return found


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        state = path.lstat()
    except OSError:
        return None
    return state.st_dev, state.st_ino


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)


def _end(doomed: Iterable[ProcessId], popen: subprocess.Popen[bytes]) -> None:
    members = list(doomed)
    for member in members:
        signals.send(member, signal.SIGKILL)
    popen.wait(10)
    wait_gone(members)
