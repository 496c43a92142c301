"""`supervise demo`: the main job on the stand-in server, as a user would type it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from supervise.attempts.store import Run, Store
from supervise.group.members import living_below
from supervise.host import signals
from supervise.model.exits import Exit
from supervise.runner.holder import living
from supervise.verbs.select import say

_RUN = "demo"
_PATIENCE_S = 30.0
_LOOK_EVERY_S = 0.05


def demo() -> int:
    """Show a crash with its cause, a clean slate over what a double SIGKILL left behind, and a good attempt.

    Returns:
        0 if all three went as they should, 125 if not.
    """
    state = tempfile.mkdtemp(prefix="supervise-demo-")
    stage = _Stage(state)
    try:
        return Exit.OK if stage.crash() and stage.kill_all() and stage.clean_start() else Exit.INTERNAL
    except TimeoutError as error:
        say(f"supervise demo: {error}")
        return Exit.INTERNAL
    finally:
        stage.strike()
        shutil.rmtree(state, ignore_errors=True)


class _Stage:
    """One state directory, one port, one process at a time.

    Args:
        state: a fresh directory for the demo's runs.
    """

    def __init__(self, state: str) -> None:
        self._env = {**os.environ, "XDG_STATE_HOME": state}
        self._env.pop("STATE_DIRECTORY", None)
        self._run: Run = Store(os.path.join(state, "supervise")).run(_RUN)
        self._port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def crash(self) -> bool:
        """A server that dies while it loads."""
        say("\n-- 1. A server that dies while it loads: the first cause, not the last line " + "-" * 20)
        text = "KeyError: 'model.layers.0.mlp.experts.w13_weight_scale'"
        self._start("--crash-at", "load", "--crash-text", text)
        status = self._await_end()
        outcome = self._outcome()
        return status == Exit.DETERMINISTIC and (outcome.get("cause") or {}).get("text") == text

    def kill_all(self) -> bool:
        """Supervise, its guard and its keeper are killed in the same instant: the one case that leaves orphans."""
        say("\n-- 2. kill -9 of supervise, its guard and its keeper at once: the worst that can happen to it --")
        process = self._start("--escape", "setsid,double-fork,ignore-term", "--shm", "4194304")
        self._await_ready(attempt=2)
        state = self._run.read_state()
        keeper = living(state, "keeper")
        members = living_below(keeper.pid) if keeper else []
        ours = [living(state, role) for role in ("supervisor", "guard", "keeper")]
        # Stopped first: whoever sees another one die would end the group.
        for signum in (signal.SIGSTOP, signal.SIGKILL):
            if any(who is None or signals.send(who, signum) is not signals.Sent.DELIVERED for who in ours):
                return False
        process.wait(_PATIENCE_S)
        left = [member for member in members if signals.alive(member.id)]
        for member in left:
            say(f"left     pid {member.pid} {member.title[:60]}")
        return bool(left)

    def clean_start(self) -> bool:
        """The next start finds what is left, ends it, proves it gone, and serves."""
        say("\n-- 3. The next start: clean slate first, then a good attempt, then a verified end " + "-" * 14)
        process = self._start()
        self._await_ready(attempt=3)
        say(f"$ kill -TERM {process.pid}")
        process.send_signal(signal.SIGTERM)
        return self._await_end() == -signal.SIGTERM and bool(self._outcome().get("clean"))

    def strike(self) -> None:
        """Leave nothing behind, also after a demo that went wrong."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(_PATIENCE_S)
        clean = [*_supervise(), "clean", "--name", _RUN]
        subprocess.run(clean, env=self._env, stderr=subprocess.DEVNULL, timeout=2 * _PATIENCE_S, check=False)

    def _start(self, *options: str) -> subprocess.Popen[bytes]:
        server = ["python", "-m", "supervise.demo.server", "--port", str(self._port), "--load-s", "1", *options]
        say(f"$ supervise --name {_RUN} --profile vllm {' '.join(_quoted(server))}")
        command = [*_supervise(), "--name", _RUN, "--profile", "vllm", sys.executable, *server[1:]]
        self._process = subprocess.Popen(command, env=self._env)
        return self._process

    def _await_end(self) -> int:
        if self._process is None:
            raise TimeoutError("nothing was started")
        try:
            return self._process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"supervise did not end within {_PATIENCE_S:.0f} s") from None

    def _await_ready(self, attempt: int) -> None:
        """A killed supervise cannot take its state back: that an attempt is ready counts with its number."""
        until = time.monotonic() + _PATIENCE_S
        while not ((state := self._run.read_state()) and state["state"] == "ready" and state["attempt"] == attempt):
            if self._process is None or self._process.poll() is not None or time.monotonic() > until:
                raise TimeoutError("waited in vain for the server to become ready")
            time.sleep(_LOOK_EVERY_S)

    def _outcome(self) -> dict[str, Any]:
        attempt = self._run.latest()
        return (attempt.read("outcome") if attempt else None) or {}


def _supervise() -> list[str]:
    return [sys.executable, "-m", "supervise"]


def _quoted(words: Sequence[str]) -> list[str]:
    import shlex

    return [shlex.quote(word) for word in words]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
