"""A user's terminal with a supervise in its foreground."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import termios
from typing import Any

from supervise.host import procfs
from supervise.model.process import ProcessId
from tests.support.launcher import Supervise
from tests.support.screen import Screen
from tests.support.waiting import DEADLINE_S, wait_until


class Session(Screen):
    """A user's terminal with a supervise in its foreground.

    Attributes:
        seen: what the user has seen so far.
    """

    def __init__(self, supervise: Supervise) -> None:
        self.supervise = supervise
        self.seen = b""
        self.master, self._slave = os.openpty()
        os.set_blocking(self.master, False)
        self.modes = termios.tcgetattr(self._slave)
        self.popen: subprocess.Popen[bytes] | None = None

    def start(self, *arguments: object, shell: str = 'exec "$@"') -> Session:
        """Start a shell that leads a session with this terminal; `"$@"` is `supervise ARGUMENTS…`."""
        command = [self.supervise.python, "-m", "supervise", *map(str, arguments)]
        with open(self.supervise.base / "stderr", "wb") as stderr:
            self.popen = subprocess.Popen(
                ["sh", "-c", shell, "sh", *command],
                stdin=self._slave,
                stdout=self._slave,
                stderr=stderr,
                env=self.supervise.env | {"TERM": "dumb"},
                cwd=self.supervise.base,
                preexec_fn=_lead_a_session,
            )
        return self

    @property
    def id(self) -> ProcessId:
        assert self.popen is not None
        return procfs.identify(self.popen.pid) or ProcessId(self.popen.pid, 0)

    @property
    def stderr(self) -> str:
        return (self.supervise.base / "stderr").read_text()

    def current_modes(self) -> list[Any]:
        return termios.tcgetattr(self._slave)

    def wait_seen(self, text: str) -> None:
        wait_until(lambda: text.encode() in self.look(), failure=lambda: f"{text!r} in {self.seen!r}; {self.stderr}")

    def wait(self) -> int:
        """The exit status; looks at the screen meanwhile, as a terminal does."""
        popen = self.popen
        assert popen is not None
        wait_until(
            lambda: (self.master < 0 or self.look() is not None) and popen.poll() is not None,
            failure=lambda: f"still running: {self.stderr}",
        )
        assert popen.returncode is not None
        return popen.returncode

    def hang_up(self) -> None:
        """The terminal goes away, as when its window or its connection is closed."""
        for fd in (self._slave, self.master):
            if fd >= 0:
                os.close(fd)
        self._slave = self.master = -1

    def close(self) -> None:
        self.hang_up()
        if self.popen is not None and self.popen.poll() is None:
            self.popen.kill()
            self.popen.wait(DEADLINE_S)


def _lead_a_session() -> None:
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for signum in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(signum, signal.SIG_DFL)
