"""Supervise as a pod has it: PID 1, a random uid without a name or a home, nothing to be written but one directory.

A pod is made of namespaces and mounts, and unshare(1) makes those.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervise.host import procfs
from tests.support.launcher import Launched, Supervise
from tests.support.waiting import wait_until

pytestmark = pytest.mark.root

# Nobody in any passwd; OpenShift gives its pods such ones.
RANDOM = 1_000_650_000
_UNSHARE = (
    "unshare",
    "--pid",
    "--mount",
    "--ipc",
    "--propagation",
    "private",
    "--mount-proc",
    "--fork",
    "--kill-child",
)
_FURNISH = """
mount -t tmpfs -o mode=1777 tmpfs /dev/shm || exit 97
for place in $WRITABLE; do mount --bind "$place" "$place" || exit 97; done
mount -o remount,ro,bind / || exit 97
if mountpoint -q /tmp; then mount -o remount,ro,bind /tmp || exit 97; fi
cd / && exec setpriv --reuid $ID --regid $ID --clear-groups "$@"
"""


class Pod:
    """A box with a read-only root; what is in `empty_dir` may be written, and can be read after its end."""

    def __init__(self, base: Path) -> None:
        self.supervise = Supervise(base, uid=RANDOM)
        self.empty_dir = base / "empty"
        self.empty_dir.mkdir(mode=0o700)
        os.chown(self.empty_dir, RANDOM, RANDOM)
        self.message = self.empty_dir / "termination-log"
        self.launched: Launched | None = None

    @property
    def env(self) -> dict[str, str]:
        nameless = ("HOME", "USER", "LOGNAME", "XDG_")
        env = {name: value for name, value in self.supervise.env.items() if not name.startswith(nameless)}
        return env | {"TMPDIR": str(self.empty_dir), "ID": str(RANDOM)}

    def start(self, *words: object, writable: bool = True) -> Launched:
        base = self.supervise.base
        box = [*_UNSHARE, "sh", "-c", _FURNISH, "sh", self.supervise.python, "-m", "supervise", *map(str, words)]
        env = self.env | {"WRITABLE": str(self.empty_dir) if writable else ""}
        with (base / "pod.out").open("wb") as stdout, (base / "pod.err").open("wb") as stderr:
            popen = subprocess.Popen(box, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, env=env, cwd=base)
        self.launched = Launched(popen, base / "pod.out", base / "pod.err")
        return self.launched

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """As `kubectl exec` does."""
        into = ["nsenter", "--target", str(self.init), "--pid", "--mount", "--wd=/"]
        as_it = ["setpriv", "--reuid", str(RANDOM), "--regid", str(RANDOM), "--clear-groups"]
        command = [*into, *as_it, self.supervise.python, "-m", "supervise", *words]
        return subprocess.run(command, env=self.env, capture_output=True, text=True, check=False, timeout=20)

    @property
    def init(self) -> int:
        """Its PID 1, as it is known outside."""
        (child,) = self._children()
        return child

    def docker_stop(self, within_s: float) -> int:
        """SIGTERM, and SIGKILL after that time; the status of the box."""
        assert self.launched is not None
        os.kill(self.init, signal.SIGTERM)
        try:
            return self.launched.popen.wait(within_s)
        except subprocess.TimeoutExpired:
            self.close()
            return self.launched.wait()

    def outcome(self) -> dict[str, Any] | None:
        (attempt,) = self.empty_dir.glob(f"supervise-{RANDOM}/X/attempts/[0-9]*")
        path = attempt / "outcome.json"
        return json.loads(path.read_text()) if path.exists() else None

    def close(self) -> None:
        """The end of its PID 1 is the end of all in it; that of unshare is not, once uids have changed (prctl(2))."""
        for child in self._children():
            os.kill(child, signal.SIGKILL)
        if self.launched is not None:
            self.launched.wait()

    def _children(self) -> list[int]:
        if self.launched is None:
            return []
        processes = procfs.scan(cmdline=False, environ=False).values()
        return [process.pid for process in processes if process.ppid == self.launched.popen.pid and not process.gone]


@pytest.fixture
def pod(short_dir: Path) -> Iterator[Pod]:
    made = Pod(short_dir)
    yield made
    made.close()


def test_lives_and_ends_in_it(pod: Pod, port: int) -> None:
    launched = pod.start(
        "--name", "X", "--termination-log", pod.message, *pod.supervise.standin("--load-s", 1, port=port)
    )
    launched.wait_said("state is kept in")
    wait_until(lambda: pod.run("healthcheck", "--live").returncode == 0, failure=lambda: launched.stderr)
    launched.wait_said("ready")
    for flag in ("--startup", "--ready", "--live"):
        checked = pod.run("healthcheck", flag)
        assert (checked.returncode, checked.stdout, checked.stderr) == (0, "ok: X is ready (attempt 1)\n", "")
    assert "ready" in pod.run("status", "X").stdout
    assert f"supervise-{RANDOM}" in launched.stderr
    assert pod.docker_stop(20.0) == 128 + signal.SIGTERM
    outcome = pod.outcome()
    assert outcome is not None
    assert outcome["verified"] is True
    assert "Traceback" not in launched.stderr


def test_why_it_ended_is_told(pod: Pod, port: int) -> None:
    crash = ("--crash-at", "load", "--crash-text", "ValueError: no such model, token=hf_abcdefgh12345678")
    launched = pod.start("--name", "X", "--termination-log", pod.message, *pod.supervise.standin(*crash, port=port))
    status = launched.wait()
    told = pod.message.read_text()
    assert told.startswith(f"exit status {status}")
    assert "cause: ValueError: no such model, token=***" in told
    assert "server.log" in told.splitlines()[-1]


def test_nothing_to_be_written_is_one_line(pod: Pod) -> None:
    launched = pod.start("--name", "X", "sleep", "60", writable=False)
    assert launched.wait() == 125
    (line,) = launched.stderr.splitlines()
    assert line.startswith("supervise: no state directory: ")
    assert "XDG_STATE_HOME" in line


STOP_S = 5.0


class TestThatWillBeKilled:
    """Whoever stops it has only so much patience, and its server none to be stopped."""

    def start(self, pod: Pod, port: int, *options: object) -> None:
        launched = pod.start(*options, "--name", "X", *pod.supervise.standin("--ignore-term", port=port))
        launched.wait_said("ready")

    def test_in_time_has_verified_its_end_by_then(self, pod: Pod, port: int) -> None:
        self.start(pod, port, "--stop-within", STOP_S)
        assert pod.docker_stop(STOP_S) == 128 + signal.SIGTERM
        outcome = pod.outcome()
        assert outcome is not None
        assert (outcome["verified"], outcome["clean"]) == (True, True)

    def test_too_early_has_not(self, pod: Pod, port: int) -> None:
        """The control: the engine's own grace is longer than that."""
        self.start(pod, port)
        assert pod.docker_stop(STOP_S) != 128 + signal.SIGTERM
        assert pod.outcome() is None

    def test_nobody_counts_the_time_of_hooks_when_nobody_asks_it_to_stop(self, pod: Pod, port: int) -> None:
        told = pod.empty_dir / "told"
        hook = ("--on", "crash", "sleep 0.8", "--on", "giveup", f"sleep 0.8; touch {told}")
        crash = pod.supervise.standin("--crash-at", "load", port=port)
        launched = pod.start("--stop-within", STOP_S, *hook, "--name", "X", *crash)
        launched.wait()
        assert told.exists(), launched.stderr

    def test_a_stop_leaves_to_hooks_what_is_left_of_its_time(self, pod: Pod, port: int) -> None:
        told = pod.empty_dir / "told"
        hook = ("--on", "stop", f"sleep 1.5; touch {told}", "--on", "launch", "true")
        launched = pod.start("--stop-within", STOP_S, *hook, "--name", "X", *pod.supervise.standin(port=port))
        launched.wait_said("ready")
        assert pod.docker_stop(STOP_S) == 128 + signal.SIGTERM
        assert told.exists(), launched.stderr

    def test_a_hook_that_ignores_sigterm_is_over_by_then_too(self, pod: Pod, port: int) -> None:
        """The server takes all it may, so that hooks have what is left: nearly nothing."""
        self.start(pod, port, "--stop-within", STOP_S, "--on", "stop", "trap : TERM; while :; do sleep 0.1; done")
        assert pod.docker_stop(STOP_S) == 128 + signal.SIGTERM
        outcome = pod.outcome()
        assert outcome is not None
        assert outcome["verified"] is True
