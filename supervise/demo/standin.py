"""The stand-in's main process: loads in phases, serves, and misbehaves as told."""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import socket
import ssl
import threading
import time
import traceback
from collections.abc import Callable

from supervise.demo import forward, lines, web
from supervise.demo.family import API_SERVER, ENGINE, Family, api_server, engine, escape
from supervise.demo.holdings import Holdings

# Share of the loading time that each phase takes.
PHASES = {"imports": 0.1, "config": 0.1, "engine": 0.2, "load": 0.4, "compile": 0.1, "cache": 0.1, "ready": 0.0}
# Not a phase of loading: where a request is when the engine gets stuck.
FORWARD = "forward"

_AWAITED = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
_SHARDS = 3
_TENSORS = ("embed_tokens.weight", "layers.0.mlp.weight", "lm_head.weight")
# So many tokens fit into its KV cache.
_ROOM = 65_536
_FOREVER_S = 1e8
_POLL_S = 0.1
# From its first fatal line to its exit a real vLLM takes 0.6 to 16 s (VLLM_REAL.md sections 7 and 8).
_DYING_S = 0.3


class Ended(Exception):  # noqa: N818 - an outcome, not an error
    """The server ends with this exit status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Server:
    """One stand-in server, from its first line to its exit status.

    Args:
        options: what `supervise.demo.server.parse` returns.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._log = lines.Log()
        self._held = Holdings()
        # One per process that serves: its end, and the engine's.
        self._channels = [_channel() for _ in range(max(1, options.api_server_count))]
        self._counters = forward.Counters()
        self._terms_to_lose = 1 if options.lose_first_term else 0
        self._ready = False
        self._awaiting = False
        self._family = Family(self._tell, self._held.release)

    def run(self) -> int:
        """Load and serve; returns the exit status."""
        if self._options.ignore_term:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._tell(f"leader {os.getpid()}")
        try:
            self._load_in_phases()
            self._tell("ready")
            self._serve()
        except Ended as ended:
            self._family.kill_engine()
            return ended.status
        return 0

    def _load_in_phases(self) -> None:
        steps: dict[str, Callable[[], None]] = {
            "config": self._configure,
            "engine": self._start_engine,
            "load": self._load,
            "compile": self._compile,
            "cache": self._make_cache,
            "ready": self._open,
        }
        for name, share in PHASES.items():
            steps.get(name, lambda: None)()
            if name != "ready":
                self._misbehave(name)
                self._wait(self._options.load_s * share)

    def _serve(self) -> None:
        if self._options.crash_at == "ready":
            self._wait(self._options.exit_after or 0.0)
            self._misbehave("ready")
        self._wait(self._options.exit_after)
        raise Ended(self._options.exit_code or 0)

    def _configure(self) -> None:
        """vLLM takes its port this early, and listens only once it is ready."""
        self._held.bind(self._options.host, self._options.port, self._options.uds)
        self._log.info("utils.py:299", "version 0.32.0")
        self._log.info("utils.py:299", f"  model   {self._options.served_name}")
        self._log.info("utils.py:233", f"non-default args: {self._non_default()}")
        for text in self._options.say:
            self._log.raw(text)

    def _non_default(self) -> dict[str, object]:
        """As vLLM names them; of those that a stand-in has."""
        given = {"port": self._options.port, "max_num_seqs": self._options.max_num_seqs, "uds": self._options.uds}
        return {name: value for name, value in given.items() if value is not None}

    def _start_engine(self) -> None:
        self._log.info("model.py:531", "Resolved architecture: LlamaForCausalLM")
        self._log.info("model.py:1510", f"Using max model len {self._options.max_model_len}")
        self._held.take_shared_memory(self._options.shm)
        self._held.take_ipc_sockets(self._options.ipc)
        # Only now: starting the resource tracker unblocks SIGTERM and SIGINT (multiprocessing.resource_tracker).
        signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
        self._awaiting = True
        self._family.start(lambda birth: engine(birth, self._options.workers, self._forward))
        for role in self._options.escape:
            self._family.start(lambda birth, role=role: escape(role, birth))  # type: ignore[misc]
        config = f"model='{self._options.served_name}'"
        self._as("EngineCore").info("core.py:93", f"Initializing a V1 LLM engine (v0.32.0) with config: {config}")

    def _load(self) -> None:
        worker = self._as("Worker")
        worker.info("parallel_state.py:1208", "world_size=1 rank=0 local_rank=0 backend=gloo")
        worker.info("cpu_model_runner.py:63", f"Starting to load model {self._options.served_name}...")
        for shard in range(_SHARDS + 1):
            percent = f"{100 * shard // _SHARDS:3d}% Completed | {shard}/{_SHARDS} [00:00<00:00, 9.00it/s]"
            worker.raw(f"\rLoading safetensors checkpoint shards: {percent}", end="")
            self._wait(self._options.load_s * PHASES["load"] / (2 * _SHARDS))
        worker.raw("\n")
        if self._options.model_code:
            self._run(self._options.model_code)
        worker.info("default_loader.py:267", "Loading weights took 0.01 seconds")

    def _run(self, module: str) -> None:
        """Have a model's own code load the weights; what it raises is how the worker fails."""
        try:
            importlib.import_module(module).load_weights(_TENSORS)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is theirs
            below = error.__traceback__.tb_next if error.__traceback__ else None
            self._crash("".join(traceback.format_exception(type(error), error, below)).rstrip())

    def _compile(self) -> None:
        self._as("Worker").info("cpu_model_runner.py:81", "Warming up model for the compilation...")

    def _make_cache(self) -> None:
        self._as("Worker").info("cpu_model_runner.py:91", "Warming up done.")
        core = self._as("EngineCore")
        if self._options.max_model_len > _ROOM:
            lines.failed_engine(lines.no_room(self._options.max_model_len, _ROOM), core, self._log)
            self._die()
        core.info("kv_cache_utils.py:864", f"CPU KV cache size: {_ROOM:,} tokens")
        core.info("core.py:214", "init engine (profile, create kv cache, warmup model) took 0.10 seconds")

    def _forward(self) -> None:
        """In the engine's process."""
        hangs = self._options.hang_at == FORWARD
        core = forward.Engine(self._counters, self._options.request_s, hangs=hangs, on_done=self._on_done)
        for _, engine_end in self._channels:
            core.serve(engine_end)

    def _on_done(self, answered: int) -> None:
        if answered == self._options.crash_after_requests:
            names = ("Worker", "EngineCore", "APIServer")
            lines.failed_request(self._options.crash_text, *(lines.Log(name) for name in names))
            threading.Event().wait(_DYING_S)
            os._exit(1)

    def _open(self) -> None:
        count = self._options.api_server_count
        if count == 1:
            self._listen(0, self._log)
        else:
            lines.Log("MainProcess").info("utils.py:261", f"Started {count} API server processes")
            for number in range(count):
                self._family.start(
                    lambda birth, number=number: api_server(  # type: ignore[misc]
                        birth, number, lambda: self._listen(number, lines.Log(f"ApiServer_{number}"))
                    ),
                    serves=True,
                )
        self._ready = True

    def _listen(self, number: int, log: lines.Log) -> None:
        """In the process that serves, be it this one or one of several."""
        options = self._options
        secure = bool(options.ssl_certfile and options.ssl_keyfile)
        address = f"unix:{options.uds}" if options.uds else f"http{'s' * secure}://{options.host}:{options.port}"
        log.info("entry.py:140", f"Starting vLLM server on {address}")
        log.info("launcher.py:38", "Route: /health, Methods: GET")
        log.raw(f"INFO:     Started server process [{os.getpid()}]\nINFO:     Waiting for application startup.")
        if self._held.socket is not None and not options.ready_without_listen:
            client = forward.Client(self._channels[number][0], self._counters)
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if secure else None
            if tls is not None:
                tls.load_cert_chain(options.ssl_certfile, options.ssl_keyfile)
            hangs = options.hang_at == "ready"
            key, sleeps, answer = options.api_key, options.sleep_mode, options.answer
            site = web.Site(options.served_name, client, hangs, key, sleeps, tls, answer)
            web.serve(self._held.socket, site)
        log.raw("INFO:     Application startup complete.")

    def _misbehave(self, phase: str) -> None:
        if self._options.crash_at == phase:
            self._crash(self._options.crash_text)
        if self._options.hang_at == phase:
            self._wait(None)

    def _crash(self, text: str) -> None:
        """Fail as vLLM does; a ready one whose engine has died ends with 0 (VLLM_REAL.md section 5)."""
        if self._awaiting:
            fail = lines.failed_request if self._ready else lines.failed_start
            fail(text, self._as("Worker"), self._as("EngineCore"), self._log)
        else:
            self._log.prefixed(lines.traceback_of(text))
        self._die()

    def _die(self) -> None:
        self._wait(None if self._options.linger else _DYING_S)
        raise Ended(self._status())

    def _status(self) -> int:
        status: int | None = self._options.exit_code
        return (0 if self._ready else 1) if status is None else status

    def _wait(self, seconds: float | None) -> None:
        """Wait, for ever with None, and deal with signals and the end of the engine meanwhile."""
        if not self._awaiting:
            threading.Event().wait(seconds)
            return
        deadline = time.monotonic() + (_FOREVER_S if seconds is None else seconds)
        while received := signal.sigtimedwait(_AWAITED, max(0.0, deadline - time.monotonic())):
            self._on_signal(received.si_signo)

    def _on_signal(self, signum: int) -> None:
        if signum == signal.SIGCHLD:
            self._on_child_end()
        elif signum == signal.SIGINT or not (self._options.ignore_term or self._lose()):
            self._log.info("launcher.py:110", "Shutting down FastAPI HTTP server.")
            self._drain()
            raise Ended(0)

    def _drain(self) -> None:
        """Let running requests finish, as a vLLM with --shutdown-timeout does; without it they are cut off."""
        deadline = time.monotonic() + self._options.shutdown_timeout
        while self._ready and self._counters.read().running and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        if self._options.shutdown_timeout:
            # The last answer is on its way through a thread of its own.
            time.sleep(_POLL_S)

    def _on_child_end(self) -> None:
        ended = self._family.ended()
        if any(pid in ended for role, pid in self._family.pids.items() if role.startswith(API_SERVER)):
            # Of several it needs each (VLLM_REAL.md section 7).
            raise Ended(1)
        if self._family.pids.get(ENGINE) not in ended:
            return
        self._log.error("core_client.py:561", "Engine core proc EngineCore died unexpectedly, shutting down client.")
        if not self._options.linger:
            raise Ended(self._status())

    def _lose(self) -> bool:
        """While it loads, vLLM swallows the first SIGTERM (VLLM_REAL.md section 6)."""
        self._terms_to_lose -= 1
        return self._terms_to_lose >= 0 and not self._ready

    def _as(self, role: str) -> lines.Log:
        """A log whose lines come from the first process of that role."""
        found = [(name, pid) for name, pid in self._family.pids.items() if name.startswith(f"VLLM::{role}")]
        name, pid = found[0] if found else (role, os.getpid())
        return lines.Log(name.removeprefix("VLLM::"), pid)

    def _tell(self, line: str) -> None:
        data = f"{line}\n".encode()
        if self._options.pids_fd is not None:
            os.write(self._options.pids_fd, data)
        if self._options.pids_file:
            with open(self._options.pids_file, "ab") as file:
                file.write(data)


def _channel() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
