"""A unit that `supervise unit` has printed, in a systemd of its own, and what that knows of it."""

from __future__ import annotations

import itertools
import json
import os
import signal
from pathlib import Path
from typing import Any

from supervise.host import cgroupfs
from tests.support import launcher
from tests.support.readable import readable_copy, readable_python, readable_site
from tests.support.sdbox import RUNTIME, USER, Box
from tests.support.waiting import DEADLINE_S, wait_until

_HASTE = ("RestartSec=100ms", "TimeoutAbortSec=1")

_NUMBERS = itertools.count(1)


class Unit:
    """Not printed yet.

    Args:
        box: the systemd.
        base: a directory of the test's own, which is shared with the box.
        uid: who prints it, and runs it.
        user: whether it is for the service manager of `USER`.
    """

    def __init__(self, box: Box, base: Path, uid: int = 0, *, user: bool = False) -> None:
        self.box, self.base, self.uid, self.user = box, base, uid, user
        self.pids = base / "pids"
        self.run = f"trial-{next(_NUMBERS)}"
        self.name = f"supervise-{self.run}.service"
        base.chmod(0o777)  # other users work here, too

    def printed(self, *options: object, command: list[str], env: dict[str, str] | None = None) -> str:
        """What `supervise unit OPTIONS… COMMAND…` prints for whoever runs it."""
        flags = ["--user"] if self.user else []
        words = [readable_python(), "-m", "supervise", "unit", *flags, "--name", self.run, *options, *command]
        given = {"PYTHONPATH": f"{readable_copy()}{os.pathsep}{readable_site()}", "PYTHONDONTWRITEBYTECODE": "1"}
        return self.box.run("env", f"--chdir={self.base}", *words, user=self.uid or None, env={**given, **(env or {})})

    def server(self, *options: object, port: int) -> list[str]:
        """A stand-in for vLLM."""
        told = ("--load-s", 0.3, *options)
        return launcher.standin(*told, port=port, pids=self.pids, python=readable_python(), code=readable_copy())

    def install(
        self,
        *options: object,
        command: list[str],
        settings: tuple[str, ...] = (),
        env: dict[str, str] | None = None,
    ) -> str:
        """Print it and make it known, with these settings changed; returns what was printed."""
        text = self.printed("--profile", "vllm", "--grace", 2, *options, command=command, env=env)
        self.put("", text)
        self.put(".d/haste.conf", "\n".join(("[Service]", *_HASTE, *settings, "")))
        self.systemctl("daemon-reload")
        return text

    def put(self, ending: str, text: str) -> None:
        """Write its file, or one beside it."""
        path = Path(f"{self._path}{ending}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def ask(self, program: str, *words: object) -> str:
        """Ask its manager, by a program of systemd's."""
        if self.user:
            return self.box.run(program, "--user", *words, user=USER, env={"XDG_RUNTIME_DIR": RUNTIME})
        return self.box.run(program, *words)

    def systemctl(self, *words: object) -> str:
        """By this one."""
        return self.ask("systemctl", *words)

    def start(self) -> None:
        """Ask for it, and do not wait."""
        self.systemctl("start", "--no-block", self.name)

    def stop(self) -> None:
        """Stop it, and wait."""
        self.systemctl("stop", self.name)

    def shown(self) -> dict[str, str]:
        """What systemd knows."""
        return dict(each.split("=", 1) for each in self.systemctl("show", self.name).splitlines() if "=" in each)

    def wait(self, deadline_s: float = DEADLINE_S, **expected: str) -> dict[str, str]:
        """Wait until each of these properties has in it what is expected."""
        shown: dict[str, str] = {}

        def is_so() -> bool:
            shown.clear()
            shown.update(self.shown())
            return all(text in shown.get(name, "") for name, text in expected.items())

        wait_until(is_so, deadline_s, failure=lambda: f"{expected}: {self.told(shown)}")
        return shown

    def told(self, shown: dict[str, str]) -> str:
        """For failure messages."""
        names = ("ActiveState", "SubState", "Result", "ExecMainStatus", "StatusText", "NRestarts")
        journal = self.box.run("journalctl", "--no-pager", "-n", "60", "-o", "cat")
        return f"{ {name: shown.get(name) for name in names} }\n{journal}"

    def journal(self) -> list[dict[str, Any]]:
        """What supervise has told the journal."""
        told = self.box.run("journalctl", "--no-pager", "-o", "json", "-u", self.name)
        found = [json.loads(each) for each in told.splitlines()]
        return [each for each in found if each.get("_TRANSPORT") == "stdout"]

    def kill(self, signum: signal.Signals) -> None:
        """Signal supervise alone."""
        self.systemctl("kill", "--kill-who=main", f"--signal={signum.name}", self.name)

    def outcomes(self) -> list[dict[str, Any]]:
        """`outcome.json` of each attempt of a unit of the system."""
        roots = (self._inside / "var/lib").glob(f"supervise-*/{self.run}/attempts/[0-9]*/outcome.json")
        return [json.loads(path.read_text()) for path in sorted(roots)]

    def wait_up(self) -> None:
        """Wait until it serves, with everybody it has."""
        self.wait(ActiveState="active")
        assert self.segments() != []

    def assert_nothing_left(self) -> None:
        """No process, by the kernel's word and by the pids that were told; no shared memory."""
        self.assert_empty()
        told = {each.split()[1] for each in self.pids.read_text().splitlines() if " " in each}
        assert told
        alive = [pid for pid in told if (self._inside / "proc" / pid).exists()]
        assert alive == []
        wait_until(lambda: not self.segments(), failure=self.segments)

    def assert_empty(self) -> None:
        """By the kernel's word nobody is in its cgroup."""
        where = str(self.box.outside(f"/sys/fs/cgroup{self._slice}/{self.name}"))
        wait_until(lambda: not cgroupfs.populated(where), failure=lambda: cgroupfs.pids(where))

    def segments(self) -> list[str]:
        """Shared memory of servers in the box."""
        return [path.name for path in (self._inside / "dev/shm").glob("psm_*")]

    def close(self) -> None:
        """End it, whatever has become of it."""
        if not self._path.exists():
            return
        self.put(".d/over.conf", "[Service]\nRestart=no\nExecStopPost=\nTimeoutStopSec=5\n")
        self.systemctl("daemon-reload")
        self.stop()
        if self.shown()["ActiveState"] == "failed":
            self.systemctl("reset-failed", self.name)
        for path in Path(f"{self._path}.d").iterdir():
            path.unlink()
        self._path.unlink()

    @property
    def _inside(self) -> Path:
        return Path(f"/proc/{self.box.init}/root")

    @property
    def _slice(self) -> str:
        return f"/user.slice/user-{USER}.slice/user@{USER}.service/app.slice" if self.user else "/system.slice"

    @property
    def _path(self) -> Path:
        at = "home/supervise-trial/.config/systemd/user" if self.user else "run/systemd/system"
        return self._inside / at / self.name
