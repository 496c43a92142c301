#!/usr/bin/env python3
"""A server that behaves like `vllm serve` as far as a supervisor can tell, in a fraction of a second and without a model.

Run it as `python -m supervise.demo.server` or as a file: it imports nothing but the standard library. Its log lines,
process names, phases, exit codes and bad habits are those of a real vLLM 0.32 (VLLM_REAL.md sections 2 to 8).
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import secrets
import signal
import socket
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.shared_memory import SharedMemory
from typing import NoReturn

# Share of the loading time that each phase takes.
PHASES = {"imports": 0.1, "config": 0.1, "engine": 0.2, "load": 0.4, "compile": 0.1, "cache": 0.1, "ready": 0.0}
ESCAPES = ("plain", "ignore-term", "setsid", "setpgid", "double-fork", "env-cleared", "stopped")
_EXTERNAL = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
_MODEL_CODE = 'File "vllm/model_executor/models/llama.py", line 412, in load_weights'
_SHARDS = 3


class Log:
    """Prints lines in the format of vLLM, from whichever of its processes they are meant to come."""

    def __init__(self) -> None:
        self.role, self.pid = "APIServer", os.getpid()

    def info(self, source: str, text: str, level: str = "INFO") -> None:
        """One formatted line."""
        self.raw(f"{self._prefix()}{level} {time.strftime('%m-%d %H:%M:%S')} [{source}] {text}")

    def error(self, source: str, text: str) -> None:
        """One or more formatted lines at level ERROR, each with the whole prefix, as vLLM prints tracebacks."""
        for line in text.splitlines():
            self.info(source, line, "ERROR")

    def prefixed(self, text: str) -> None:
        """Lines that bear only the name of the process."""
        for line in text.splitlines():
            self.raw(f"{self._prefix()}{line}")

    def raw(self, text: str, end: str = "\n") -> None:
        """Text as it is."""
        print(text, end=end, flush=True)

    def speak_as(self, role: str, pid: int) -> Log:
        """A log whose lines come from another process."""
        other = Log()
        other.role, other.pid = role, pid
        return other

    def _prefix(self) -> str:
        return f"({self.role} pid={self.pid}) "


class Children:
    """The processes of the server: forks them, waits until they are set up, and passes their names and pids on.

    Args:
        tell: is given one line per child, `role pid`.
        release: closes what only the leader may hold.
    """

    def __init__(self, tell: Callable[[str], None], release: Callable[[], None]) -> None:
        self.known: dict[str, int] = {}
        self._tell = tell
        self._release = release

    def start(self, body: Callable[[Callable[[str], None]], None]) -> None:
        """Fork a child; returns once it, and all that it forks itself, have said who they are."""
        reader, writer = os.pipe()
        if os.fork() == 0:
            _in_child(lambda: body(lambda role: _announce(writer, role)), (self._release, lambda: os.close(reader)))
        os.close(writer)
        with open(reader, encoding="utf-8") as pipe:
            for line in pipe:
                role, pid = line.rsplit(maxsplit=1)
                self.known[role] = int(pid)
                self._tell(line.rstrip())

    def kill_engine(self) -> None:
        """What vLLM does when it stops: SIGKILL for the engine and its workers."""
        for role, pid in self.known.items():
            if role.startswith("VLLM::"):
                _kill(pid)


class Stopped(Exception):  # noqa: N818 - an outcome, not an error
    """The server ends with this exit status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Server:
    """One stand-in server, from its first line to its exit.

    Args:
        options: what `parse` returns.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.log = Log()
        self._socket: socket.socket | None = None
        self._segment: SharedMemory | None = None
        self._ipc: list[socket.socket] = []
        self._terms_to_lose = 1 if options.lose_first_term else 0
        self._ready = False
        self._children = Children(self._tell, self._release)

    def run(self) -> int:
        """Load, serve, and return the exit status."""
        if self.options.ignore_term:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._tell(f"leader {os.getpid()}")
        try:
            for name, phase in self._phases().items():
                phase()
                self._misbehave_at(name)
                self._wait(self.options.load_s * PHASES[name])
            self._tell("ready")
            self._wait(self.options.exit_after)
        except Stopped as stopped:
            self._children.kill_engine()
            return stopped.status
        return int(self.options.exit_code or 0)

    def _phases(self) -> dict[str, Callable[[], None]]:
        return {
            "imports": lambda: None,
            "config": self._configure,
            "engine": self._start_engine,
            "load": self._load,
            "compile": self._compile,
            "cache": self._cache,
            "ready": self._serve,
        }

    def _configure(self) -> None:
        self._bind()
        self.log.info("utils.py:299", "version 0.32.0")
        self.log.info("utils.py:299", f"  model   {self.options.served_name}")
        self.log.info("utils.py:233", f"non-default args: {{'port': {self.options.port}}}")
        for text in self.options.say:
            self.log.raw(text)

    def _bind(self) -> None:
        """Take the port as vLLM does: bound now, listening only once it is ready."""
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((self.options.host, self.options.port))

    def _start_engine(self) -> None:
        self.log.info("model.py:531", "Resolved architecture: LlamaForCausalLM")
        self.log.info("model.py:1510", "Using max model len 2048")
        self._take_shared_memory()
        self._take_ipc_sockets()
        # Only now: starting the resource tracker unblocks SIGTERM and SIGINT (multiprocessing.resource_tracker).
        signal.pthread_sigmask(signal.SIG_BLOCK, _EXTERNAL)
        self._children.start(self._engine)
        for role in self.options.escape:
            self._children.start(lambda announce, role=role: escape(role, announce))
        engine = self._speak_as("EngineCore")
        engine.info("core.py:93", f"Initializing a V1 LLM engine (v0.32.0) with config: model='{self._name()}'")

    def _engine(self, announce: Callable[[str], None]) -> None:
        """EngineCore: forks the workers; when one of them ends it ends as well, and they with it."""
        set_title("VLLM::EngineCore")
        announce("VLLM::EngineCore")
        watched, held = os.pipe()
        for rank in range(self.options.workers):
            role = "VLLM::Worker" if self.options.workers == 1 else f"VLLM::Worker_TP{rank}"
            if os.fork() == 0:
                _in_child(lambda role=role: worker(role, watched, announce), (lambda: os.close(held),))
        _close_announcements(announce)
        os.wait()
        os._exit(1)

    def _load(self) -> None:
        worker = self._speak_as("Worker")
        worker.info("parallel_state.py:1208", "world_size=1 rank=0 local_rank=0 backend=gloo")
        worker.info("cpu_model_runner.py:63", f"Starting to load model {self._name()}...")
        for shard in range(_SHARDS + 1):
            self._wait(self.options.load_s * PHASES["load"] / (2 * _SHARDS) if shard else 0.0)
            bar = f"{100 * shard // _SHARDS:3d}% Completed | {shard}/{_SHARDS} [00:00<00:00, 9.00it/s]"
            worker.raw(f"\rLoading safetensors checkpoint shards: {bar}", end="" if shard < _SHARDS else "\n\n")
        worker.info("default_loader.py:267", "Loading weights took 0.01 seconds")

    def _compile(self) -> None:
        self._speak_as("Worker").info("cpu_model_runner.py:81", "Warming up model for the compilation...")

    def _cache(self) -> None:
        engine = self._speak_as("EngineCore")
        self._speak_as("Worker").info("cpu_model_runner.py:91", "Warming up done.")
        engine.info("kv_cache_utils.py:864", "CPU KV cache size: 1,048,576 tokens")
        engine.info("core.py:214", "init engine (profile, create kv cache, warmup model) took 0.10 seconds")

    def _serve(self) -> None:
        self.log.info("api_server.py:1875", f"Starting vLLM server on http://{self.options.host}:{self.options.port}")
        self.log.info("launcher.py:38", "Route: /health, Methods: GET")
        if not self.options.ready_without_listen:
            self._listen()
        for text in (f"Started server process [{os.getpid()}]", "Waiting for application startup.", _READY):
            self.log.raw(f"INFO:     {text}")
        self._ready = True

    def _listen(self) -> None:
        server = ThreadingHTTPServer((self.options.host, 0), handler(self._name()), bind_and_activate=False)
        server.daemon_threads = True
        server.socket.close()
        assert self._socket is not None
        server.socket = self._socket
        server.server_activate()
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def _take_shared_memory(self) -> None:
        if self.options.shm:
            self._segment = SharedMemory(f"psm_{secrets.token_hex(4)}", create=True, size=self.options.shm)

    def _take_ipc_sockets(self) -> None:
        base = os.environ.get("VLLM_RPC_BASE_PATH") or tempfile.gettempdir()
        for _ in range(self.options.ipc):
            ipc = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            ipc.bind(os.path.join(base, str(uuid.uuid4())))
            ipc.listen()
            self._ipc.append(ipc)

    def _misbehave_at(self, phase: str) -> None:
        if self.options.crash_at == phase:
            self._crash(phase)
            if not self.options.linger:
                raise Stopped(self._crash_status())
            self._wait(None)
        if self.options.hang_at == phase:
            self._wait(None)

    def _crash_status(self) -> int:
        """A ready vLLM whose engine dies ends with 0 as if it had been asked to (VLLM_REAL.md section 5)."""
        status: int | None = self.options.exit_code
        return (0 if self._ready else 1) if status is None else status

    def _crash(self, phase: str) -> None:
        text = self.options.crash_text
        cause = text if text.startswith("Traceback") else f"Traceback (most recent call last):\n  {_MODEL_CODE}\n{text}"
        if phase in ("imports", "config"):
            self.log.prefixed(cause)
            return
        crash_of_engine(cause, self._speak_as("Worker"), self._speak_as("EngineCore"), self.log, self._ready)

    def _wait(self, seconds: float | None) -> None:
        """Wait, for ever with None; signals and the end of the engine are dealt with meanwhile."""
        if "VLLM::EngineCore" not in self._children.known:
            threading.Event().wait(seconds)
            return
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:
            left = 3600.0 if deadline is None else max(0.0, deadline - time.monotonic())
            received = signal.sigtimedwait(_EXTERNAL, left)
            if received is not None:
                self._on_signal(received.si_signo)
            elif deadline is not None:
                return

    def _on_signal(self, signum: int) -> None:
        if signum == signal.SIGCHLD:
            self._reap()
        elif signum == signal.SIGTERM and (self.options.ignore_term or self._lost()):
            return
        else:
            self.log.info("launcher.py:110", "Shutting down FastAPI HTTP server.")
            raise Stopped(0)

    def _lost(self) -> bool:
        """While it loads, vLLM swallows the first SIGTERM (VLLM_REAL.md section 6)."""
        self._terms_to_lose -= 1
        return self._terms_to_lose >= 0 and not self._ready

    def _reap(self) -> None:
        while _any_child():
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            if pid == self._children.known.get("VLLM::EngineCore") and not self.options.linger:
                self.log.error("core_client.py:561", "Engine core proc EngineCore died unexpectedly.")
                raise Stopped(0 if self._ready else 1)

    def _speak_as(self, role: str) -> Log:
        names = [name for name in self._children.known if name.startswith(f"VLLM::{role}")]
        name = names[0] if names else f"VLLM::{role}"
        return self.log.speak_as(name.removeprefix("VLLM::"), self._children.known.get(name, os.getpid()))

    def _release(self) -> None:
        for held in (self._socket, *self._ipc):
            if held is not None:
                held.close()

    def _name(self) -> str:
        return str(self.options.served_name)

    def _tell(self, line: str) -> None:
        if self.options.pids_fd is not None:
            os.write(self.options.pids_fd, f"{line}\n".encode())
        if self.options.pids_file:
            with open(self.options.pids_file, "a", encoding="utf-8") as file:
                file.write(f"{line}\n")
