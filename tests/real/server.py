"""A real vLLM on the CPU behind `supervise`, as a test sees it."""

from __future__ import annotations

import json
import os
import re
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from supervise.host import procfs
from supervise.model.process import Process, ProcessId
from tests.support.launcher import Launched, Supervise
from tests.support.waiting import survivors, wait_gone, wait_until

START_S = 180.0
# Some virtual machines name AMX among their CPU's features and trap on it; attention uses it for 16-bit types only.
_NO_AMX = ("--dtype", "float32")
_UUID = r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"
# What vLLM and torch put into the temporary directory: sockets, rendezvous files, compiled kernels.
_ENGINE_FILES = re.compile(rf"{_UUID}|vllm_dist_[0-9a-f]+|torchinductor_.+")


@dataclass(frozen=True)
class RealVllm:
    """An installed vLLM and the models for it.

    Attributes:
        program: `vllm`.
        models: where the tiny models are.
        environment: what it needs to start offline, small, and with the caches of earlier starts.
    """

    program: Path
    models: Path
    environment: dict[str, str]

    def command(self, port: int, *more: str, model: str = "tiny") -> list[str]:
        """The command line of a server that skips compilation."""
        own = ["--host", "127.0.0.1", "--port", str(port), "--enforce-eager", *_NO_AMX, *more]
        return [str(self.program), "serve", str(self.models / model), *own]


class Server:
    """A real vLLM behind `supervise`: started at most once, and looked at from outside.

    Args:
        vllm: the engine.
        supervise: the command line.
        port: a free one.
    """

    def __init__(self, vllm: RealVllm, supervise: Supervise, port: int) -> None:
        self.vllm, self.supervise, self.port = vllm, supervise, port
        self._temporary = _engine_files()
        self._seen: set[ProcessId] = set()
        self._launched: Launched | None = None

    @property
    def launched(self) -> Launched:
        """The `supervise` in front of it."""
        assert self._launched is not None
        return self._launched

    def start(self, *more: str, model: str = "tiny", options: Sequence[object] = ()) -> Server:
        """Start it, with options of `supervise` before its command line; returns at once."""
        command = self.vllm.command(self.port, *more, model=model)
        self._launched = self.supervise.start(*options, *command, env=self.vllm.environment)
        return self

    def wait_ready(self) -> Server:
        """Wait until `supervise` says that it serves."""
        state = self.supervise.wait_state("ready", "done", deadline_s=START_S)["state"]
        assert state == "ready", self.supervise.said()
        self.group()
        return self

    def wait_logged(self, text: str) -> Server:
        """Wait until the engine's own log has this text."""

        def logged() -> bool:
            present = text in self.supervise.log()
            assert present or self.launched.popen.poll() is None, f"ended without {text!r}:\n{self.supervise.said()}"
            return present

        self.supervise.wait_state("starting", "done")
        wait_until(logged, START_S, failure=lambda: f"{text!r} in:\n{self.supervise.log()[-3000:]}")
        self.group()
        return self

    def group(self) -> list[Process]:
        """The processes that `supervise` holds right now; all of them must be gone in the end."""
        keeper = self.supervise.identity("keeper").pid
        members = procfs.descendants(procfs.scan(), keeper)
        self._seen.update(member.id for member in members)
        return members

    def survivors(self) -> list[str]:
        """Those that were ever seen in the group and still run."""
        return survivors(self._seen)

    def engine_core(self) -> ProcessId:
        """The process that holds the model."""
        (found,) = (member for member in self.group() if (member.argv or ("",))[0].startswith("VLLM::EngineCore"))
        return found.id

    def get(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """One HTTP request to it, a POST if there is a body; the JSON of the answer."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60.0) as answer:
            return json.load(answer)

    def assert_nothing_left(self) -> None:
        """No process that was ever seen in the group, no file of the engine; the leak check sees to /dev/shm."""
        wait_gone(self._seen, 40.0)
        wait_until(lambda: os.listdir(self.supervise.tmp) == [], failure=lambda: os.listdir(self.supervise.tmp))
        assert _engine_files() <= self._temporary


def _engine_files() -> set[str]:
    return {name for name in os.listdir("/tmp") if _ENGINE_FILES.fullmatch(name)}
