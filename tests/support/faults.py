"""A supervise to which something happens: in a mount namespace of its own, with a server that must go on answering."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from supervise.host import kernel
from tests.support.launcher import Launched, Supervise, free_port
from tests.support.waiting import wait_until

_ANSWER_S = 5.0
# Nothing but the server's answers may be left to chance: grace is short, because the stand-in obeys at once.
OPTIONS = ("--grace", "5")


class Afflicted:
    """One `supervise` with a stand-in, of which the test then takes something away.

    Args:
        supervise: starts it.
        options: of supervise, before the command.
        behaviour: of the stand-in.
        tmpfs: size of a file system for the state directory alone, as mount(8) takes it; None for none.
        wait: until it is ready.
        namespace: whether it gets one.
        popen: for its process; `preexec_fn` is called once it is in its namespace.
    """

    def __init__(
        self,
        supervise: Supervise,
        *options: object,
        behaviour: tuple[object, ...] = (),
        tmpfs: str | None = None,
        wait: bool = True,
        namespace: bool = True,
        **popen: Any,
    ) -> None:
        self.supervise = supervise
        self.port = free_port()
        self.state = supervise.state
        self._held: int | None = None
        before = popen.pop("preexec_fn", None)
        self.launched: Launched = supervise.start(
            *OPTIONS,
            "--name",
            "r",
            *options,
            "--",
            *supervise.standin("--load-s", "0.2", *behaviour, port=self.port),
            preexec_fn=(lambda: enter(self.state, tmpfs, before)) if namespace else before,
            **popen,
        )
        self.pid = self.launched.popen.pid
        if wait:
            self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until supervise has said so."""
        wait_until(self.answers, failure=lambda: self.launched.stderr)
        self.launched.wait_said("ready")
        if self._held is None and os.path.exists(f"/proc/{self.pid}/root{self.state}"):
            # What it has mounted there is seen through this, also when it is gone.
            self._held = os.open(f"/proc/{self.pid}/root{self.state}", os.O_RDONLY | os.O_DIRECTORY)

    @property
    def root(self) -> Path:
        """The state directory as supervise saw it when it was ready."""
        assert self._held is not None
        return Path(f"/proc/self/fd/{self._held}/supervise").absolute()

    @property
    def run(self) -> Path:
        """Its run's directory, likewise."""
        return self.root / "r"

    @property
    def attempt(self) -> Path:
        """Its attempt's."""
        return self.run / "attempts/0001"

    @property
    def said(self) -> str:
        """What it has told people."""
        return self.launched.stderr

    def inside(self, *command: object) -> str:
        """Run a program in its namespace."""
        done = subprocess.run(
            ["nsenter", "-t", str(self.pid), "-m", "--", *map(str, command)], check=True, capture_output=True, text=True
        )
        return done.stdout

    def verb(self, *words: object) -> subprocess.CompletedProcess[str]:
        """Run a verb of supervise in its namespace."""
        return subprocess.run(
            ["nsenter", "-t", str(self.pid), "-m", "--", self.supervise.python, "-m", "supervise", *map(str, words)],
            env=self.supervise.env,
            cwd=self.supervise.base,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    def answers(self) -> bool:
        """Whether the server answers with 200."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=_ANSWER_S) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def chatter(self) -> None:
        """Have the server write to its log."""
        for _ in range(20):
            assert self.answers(), self.said

    def wait_said(self, text: str) -> None:
        """Wait until it has told people that."""
        self.launched.wait_said(text)

    def serves(self) -> None:
        """Fail unless the server answers, and supervise is there."""
        assert self.launched.popen.poll() is None, self.said
        assert self.answers(), self.said

    def times_said(self, text: str) -> int:
        """How many lines have that text."""
        return sum(text in line for line in self.said.splitlines())

    def stop(self) -> None:
        """End it, and expect that this is a clean end, which has been verified."""
        self.launched.send(signal.SIGTERM)
        self.expect_end()

    def expect_end(self) -> None:
        """It has been told to stop."""
        assert self.launched.wait(40.0) in (-signal.SIGTERM, 143), self.said
        assert "verified" in self.said, self.said
        assert "0 processes left" in self.said, self.said
        assert "Traceback" not in self.said, self.said
        assert "supervise itself failed" not in self.said, self.said

    def close(self) -> None:
        """Let go of what it had mounted."""
        if self._held is not None:
            os.close(self._held)


def enter(state: Path, tmpfs: str | None, before: Callable[[], None] | None) -> None:
    """In a child before it becomes a supervise: a mount namespace of its own, with a file system for the state."""
    kernel.unshare(kernel.CLONE_NEWNS)
    kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_SLAVE)
    if tmpfs is not None:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={tmpfs},mode=700", "tmpfs", str(state)], check=True)
    if before is not None:
        before()


def limit(pid: int, which: int, value: int) -> tuple[int, int]:
    """Change a limit of a running process; what it was before."""
    soft, hard = resource.prlimit(pid, which)
    resource.prlimit(pid, which, (value, hard))
    return soft, hard
