"""The stand-in is what its tests stand on: it must do what a real vLLM was seen to do."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import ssl
import stat
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from supervise.demo.family import ESCAPES
from supervise.demo.standin import PHASES
from supervise.host import procfs, shm, signals
from tests.support.family import Family
from tests.support.launcher import standin
from tests.support.waiting import wait_until

READY = "INFO:     Application startup complete."


class Running:
    def __init__(self, command: list[str], directory: Path, family: Family) -> None:
        self.family = family
        self.tmp = directory / "t"
        self.tmp.mkdir()
        self.log_path = directory / "log"
        with self.log_path.open("wb") as log:
            self.popen = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, env=os.environ | {"TMPDIR": str(self.tmp)}
            )

    @property
    def log(self) -> str:
        return self.log_path.read_bytes().decode()

    def ready(self) -> Running:
        self.family.wait_ready(failure=self.log_path)
        return self

    def wait(self) -> int:
        return self.popen.wait(20)


Start = Callable[..., Running]


@pytest.fixture
def start(short_dir: Path, family: Family, port: int) -> Iterator[Start]:
    started: list[Running] = []

    def start(*options: object, load_s: float = 0.05) -> Running:
        command = standin("--load-s", load_s, *options, port=port, pids=family.path)
        started.append(Running(command, short_dir, family))
        return started[-1]

    yield start
    for running in started:
        running.popen.kill()
        running.popen.wait(20)


def get(port: int, path: str, body: dict[str, Any] | None = None) -> tuple[int, bytes]:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", data, timeout=10) as answer:
        return answer.status, answer.read()


def test_serves_what_a_client_asks_for(start: Start, port: int) -> None:
    running = start("--served-name", "tiny").ready()
    assert get(port, "/health") == (200, b"")
    assert json.loads(get(port, "/v1/models")[1])["data"][0]["id"] == "tiny"
    completion = json.loads(get(port, "/v1/completions", {"prompt": "hi", "max_tokens": 1})[1])
    assert completion["choices"][0]["text"]
    assert READY in running.log


def test_log_has_the_phases_in_the_order_of_vllm(start: Start) -> None:
    log = start("--say", "WARNING: said so").ready().log
    order = (
        "version 0.32.0",
        "WARNING: said so",
        "Resolved architecture",
        "Initializing a V1 LLM engine",
        "Starting to load model",
        "\rLoading safetensors checkpoint shards:  33% Completed | 1/3",
        "Loading weights took",
        "Warming up model",
        "init engine (profile, create kv cache, warmup model) took",
        "Starting vLLM server on",
        READY,
    )
    places = [log.find(text) for text in order]
    assert -1 not in places
    assert places == sorted(places)
    assert re.search(r"^\(EngineCore pid=\d+\) INFO \d\d-\d\d \d\d:\d\d:\d\d \[core\.py:\d+\] ", log, re.MULTILINE)


def test_port_is_taken_but_refuses_until_ready(start: Start, port: int) -> None:
    running = start("--hang-at", "load")
    running.family.wait_for("VLLM::Worker")
    with socket.socket() as probe, pytest.raises(OSError, match="in use"):
        probe.bind(("127.0.0.1", port))
    with socket.socket() as probe, pytest.raises(ConnectionRefusedError):
        probe.connect(("127.0.0.1", port))
    assert running.popen.poll() is None


def test_processes_are_named_and_related_as_in_vllm(start: Start) -> None:
    members = start("--workers", 2).ready().family.members
    engine = procfs.read(members["VLLM::EngineCore"].pid)
    worker = procfs.read(members["VLLM::Worker_TP1"].pid)
    assert engine is not None
    assert worker is not None
    assert (engine.argv, engine.comm, engine.ppid) == (("VLLM::EngineCore",), "VLLM::EngineCor", members["leader"].pid)
    assert (worker.argv, worker.ppid) == (("VLLM::Worker_TP1",), engine.pid)


def test_sigterm_ends_it_with_zero_and_leaves_no_process(start: Start) -> None:
    running = start().ready()
    running.popen.send_signal(signal.SIGTERM)
    assert running.wait() == 0
    running.family.wait_gone()


def test_sigterm_before_the_engine_kills_it(start: Start) -> None:
    running = start("--hang-at", "imports")
    running.family.wait_for("leader")
    running.popen.send_signal(signal.SIGTERM)
    assert running.wait() == -signal.SIGTERM


def test_leader_that_is_killed_leaves_its_engine(start: Start) -> None:
    running = start().ready()
    running.popen.kill()
    running.wait()
    assert running.family.living == {"VLLM::EngineCore", "VLLM::Worker"}


@pytest.mark.parametrize(("options", "status"), [((), 0), (("--hang-at", "load"), 1)], ids=["ready", "loading"])
def test_engine_that_is_killed_takes_all_with_it(start: Start, options: tuple[str, ...], status: int) -> None:
    running = start(*options)
    running.family.wait_for("VLLM::Worker")
    if not options:
        running.ready()
    signals.send(running.family.members["VLLM::EngineCore"], signal.SIGKILL)
    assert running.wait() == status
    running.family.wait_gone()


def test_first_sigterm_is_lost_while_loading(start: Start) -> None:
    running = start("--hang-at", "load", "--lose-first-term")
    leader = running.family.wait_for("leader")
    running.family.wait_for("VLLM::Worker")
    running.popen.send_signal(signal.SIGTERM)
    wait_until(lambda: not _pending(leader.pid, signal.SIGTERM))
    assert running.popen.poll() is None
    running.popen.send_signal(signal.SIGTERM)
    assert running.wait() == 0


def test_ignores_sigterm_when_told(start: Start) -> None:
    running = start("--ignore-term").ready()
    running.popen.send_signal(signal.SIGTERM)
    wait_until(lambda: not _pending(running.popen.pid, signal.SIGTERM))
    assert running.popen.poll() is None
    running.popen.send_signal(signal.SIGINT)
    assert running.wait() == 0


@pytest.mark.parametrize("phase", PHASES)
def test_crash_names_its_cause_and_exits(start: Start, phase: str) -> None:
    running = start("--crash-at", phase, "--crash-text", "ValueError: no such thing")
    assert running.wait() == (0 if phase == "ready" else 1)
    assert "ValueError: no such thing" in running.log
    assert (READY in running.log) == (phase == "ready")
    running.family.wait_gone()


def test_worker_crash_comes_first_and_its_echoes_after(start: Start) -> None:
    running = start("--crash-at", "load", "--crash-text", "ValueError: no such thing", "--exit-code", 7)
    assert running.wait() == 7
    lines = [line for line in running.log.splitlines() if "Error: " in line or "Exception: " in line]
    assert re.match(r"\(Worker pid=\d+\) ERROR .*\] ValueError: no such thing$", lines[0])
    assert re.match(r"\(APIServer pid=\d+\) RuntimeError: Engine core initialization failed", lines[-1])


def test_lingers_after_a_crash_when_told(start: Start) -> None:
    running = start("--crash-at", "load", "--linger")
    wait_until(lambda: "Engine core initialization failed" in running.log)
    assert running.popen.poll() is None
    running.popen.send_signal(signal.SIGTERM)
    assert running.wait() == 0


def test_ends_by_itself_when_told(start: Start) -> None:
    running = start("--exit-after", 0.05, "--exit-code", 3)
    assert running.wait() == 3
    running.family.wait_gone()


def test_says_ready_without_listening_when_told(start: Start, port: int) -> None:
    running = start("--ready-without-listen").ready()
    assert READY in running.log
    with socket.socket() as probe, pytest.raises(ConnectionRefusedError):
        probe.connect(("127.0.0.1", port))


def test_stuck_engine_answers_health_but_no_completion(start: Start, port: int) -> None:
    start("--hang-at", "ready").ready()
    assert get(port, "/health")[0] == 200
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}")
        client.settimeout(0.3)
        with pytest.raises(TimeoutError):
            client.recv(1)


def test_port_taken_fails_as_in_vllm(start: Start, port: int) -> None:
    with socket.create_server(("127.0.0.1", port)):
        running = start()
        assert running.wait() == 1
    assert "OSError: [Errno 98] Address already in use" in running.log


def test_unknown_option_fails_as_in_vllm(start: Start) -> None:
    running = start("--no-such-flag")
    assert running.wait() == 2
    assert running.log.endswith("vllm: error: unrecognized arguments: --no-such-flag\n")


def test_shared_memory_is_mapped_and_left_to_the_resource_tracker(start: Start) -> None:
    running = start("--shm", 100_000).ready()
    before = {segment.file for segment in shm.segments() if segment.name.startswith("psm_")}
    mapped = shm.mapped_by(running.family.members["VLLM::EngineCore"].pid)
    assert mapped is not None
    ours = mapped & before
    assert len(ours) == 1
    running.popen.send_signal(signal.SIGTERM)
    assert running.wait() == 0
    wait_until(lambda: not ours & {segment.file for segment in shm.segments()})


def test_ipc_sockets_are_left_behind(start: Start) -> None:
    running = start("--ipc", 2).ready()
    running.popen.send_signal(signal.SIGTERM)
    running.wait()
    assert [stat.S_ISSOCK(path.stat().st_mode) for path in running.tmp.iterdir()] == [True, True]


def test_escaping_children_survive_a_polite_stop(start: Start) -> None:
    """The negative control: without a supervisor every one of these is left behind."""
    running = start("--escape", ",".join(ESCAPES)).ready()
    running.popen.send_signal(signal.SIGTERM)
    assert running.wait() == 0
    wait_until(lambda: running.family.living == set(ESCAPES), failure=lambda: running.family.living)


def test_escaping_children_are_what_they_claim(start: Start) -> None:
    members = start("--escape", ",".join(ESCAPES)).ready().family.members
    leader = procfs.read(members["leader"].pid)
    found = {role: procfs.read(members[role].pid) for role in ESCAPES}
    assert leader is not None
    assert found["setsid"].sid == found["setsid"].pid  # type: ignore[union-attr]
    assert found["setpgid"].pgid == found["setpgid"].pid  # type: ignore[union-attr]
    assert found["double-fork"].ppid != leader.pid  # type: ignore[union-attr]
    assert not os.path.exists(f"/proc/{members['env-cleared'].pid}/fd/1")
    assert _environ(members["env-cleared"].pid) == b""
    wait_until(lambda: _state(members["stopped"].pid) == "T")
    assert _ignores(members["ignore-term"].pid, signal.SIGTERM)


def _state(pid: int) -> str:
    process = procfs.read(pid)
    return process.state if process else ""


def _environ(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


def _pending(pid: int, signum: int) -> bool:
    """Whether a signal waits to be taken by the process (proc(5), ShdPnd)."""
    return _in_mask(pid, "ShdPnd", signum)


def _ignores(pid: int, signum: int) -> bool:
    return _in_mask(pid, "SigIgn", signum)


def _in_mask(pid: int, field: str, signum: int) -> bool:
    found = re.search(rf"^{field}:\s*([0-9a-f]+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return bool(int(found[1], 16) >> (signum - 1) & 1)


# --- what it serves, and how ------------------------------------------------------------------------------------------


def metrics(port: int) -> dict[str, float]:
    lines = [line for line in get(port, "/metrics")[1].decode().splitlines() if not line.startswith("#")]
    return {line.partition("{")[0]: float(line.rpartition(" ")[2]) for line in lines}


def begin(port: int, body: dict[str, Any] | None = None) -> socket.socket:
    data = json.dumps(body or {}).encode()
    client = socket.create_connection(("127.0.0.1", port), 5)
    client.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
    return client


def unanswered(client: socket.socket) -> bool:
    with client:
        client.settimeout(0.3)
        try:
            client.recv(1)
        except TimeoutError:
            return True
    return False


def status(port: int, path: str, key: str | None) -> int:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}")
    if key is not None:
        request.add_header("Authorization", key)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_completions_are_counted_and_take_their_time(start: Start, port: int) -> None:
    start("--request-s", 60).ready()
    with begin(port, {"prompt": "a b c", "max_tokens": 600}):
        wait_until(lambda: metrics(port)["vllm:generation_tokens_total"] >= 2)
        running = metrics(port)
    assert running["vllm:num_requests_running"] == 1
    assert running["vllm:prompt_tokens_total"] == 3
    assert running["vllm:request_success_total"] == 0


def test_a_completion_that_is_over_does_not_run_any_more(start: Start, port: int) -> None:
    start().ready()
    get(port, "/v1/completions", {"prompt": "a b", "max_tokens": 5})
    told = metrics(port)
    assert (told["vllm:num_requests_running"], told["vllm:generation_tokens_total"]) == (0, 5)
    assert (told["vllm:iteration_tokens_total_count"], told["vllm:iteration_tokens_total_sum"]) == (5, 7)
    assert told["vllm:request_success_total"] == 1


def test_a_forward_that_hangs_leaves_health_and_stops_the_counters(start: Start, port: int) -> None:
    start("--hang-at", "forward").ready()
    with begin(port), begin(port):
        wait_until(lambda: metrics(port)["vllm:num_requests_running"] == 1)
        before = metrics(port)
        assert get(port, "/health")[0] == 200
        assert unanswered(begin(port, {"max_tokens": 1}))
        assert metrics(port) == before
        assert before["vllm:generation_tokens_total"] == 1


def test_an_engine_that_is_stopped_answers_nobody_and_tells_of_no_new_request(start: Start, port: int) -> None:
    """As measured on a vLLM 0.32: what it has not begun it does not count."""
    members = start().ready().family.members
    signals.send(members["VLLM::EngineCore"], signal.SIGSTOP)
    assert unanswered(begin(port))
    assert get(port, "/health")[0] == 200
    assert metrics(port)["vllm:num_requests_running"] == 0
    signals.send(members["VLLM::EngineCore"], signal.SIGCONT)
    wait_until(lambda: metrics(port)["vllm:request_success_total"] == 1)


def test_an_engine_fails_after_so_many_requests(start: Start, port: int) -> None:
    running = start("--crash-after-requests", 2, "--crash-text", "ValueError: no such thing").ready()
    get(port, "/v1/completions", {})
    assert running.popen.poll() is None
    get(port, "/v1/completions", {})
    assert running.wait() == 0
    assert "ValueError: no such thing" in running.log
    assert "died unexpectedly" in running.log
    running.family.wait_gone()


def test_a_key_guards_what_is_below_v1_only(start: Start, port: int) -> None:
    start("--api-key", "sesame").ready()
    assert [status(port, path, None) for path in ("/health", "/metrics")] == [200, 200]
    keys = (None, "Bearer wrong", "Basic sesame", "Bearer sesame")
    assert [status(port, "/v1/models", key) for key in keys] == [401, 401, 401, 200]


def test_serves_on_a_unix_socket(start: Start, short_dir: Path) -> None:
    path = short_dir / "s"
    running = start("--uds", path).ready()
    assert f"Starting vLLM server on unix:{path}" in running.log
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.sendall(b"GET /health HTTP/1.1\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 200")


def test_serves_with_tls(start: Start, short_dir: Path, port: int) -> None:
    cert, key = short_dir / "cert", short_dir / "key"
    new = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=x", "-keyout", key, "-out", cert)
    subprocess.run(new, check=True, capture_output=True, timeout=20)
    running = start("--ssl-certfile", cert, "--ssl-keyfile", key).ready()
    assert f"Starting vLLM server on https://127.0.0.1:{port}" in running.log
    with socket.create_connection(("127.0.0.1", port), 5) as plain:
        # One that never says a word keeps nobody else waiting.
        context = ssl._create_unverified_context()
        url = f"https://127.0.0.1:{port}/health"
        with urllib.request.urlopen(url, timeout=10, context=context) as answer:
            assert answer.status == 200
        plain.close()


def test_sleep_mode(start: Start, port: int) -> None:
    start("--sleep-mode").ready()
    assert json.loads(get(port, "/is_sleeping")[1]) == {"is_sleeping": False}
    get(port, "/sleep?level=1", {})
    assert json.loads(get(port, "/is_sleeping")[1]) == {"is_sleeping": True}
    get(port, "/wake_up", {})
    assert json.loads(get(port, "/is_sleeping")[1]) == {"is_sleeping": False}


def test_without_sleep_mode_there_is_none(start: Start, port: int) -> None:
    start().ready()
    for path, body in (("/is_sleeping", None), ("/sleep", {})):
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get(port, path, body)


def test_several_processes_serve_and_count_together(start: Start, port: int) -> None:
    running = start("--api-server-count", 3).ready()
    assert "Started 3 API server processes" in running.log
    assert running.log.count(READY) == 3
    members = running.family.members
    assert {procfs.read(members[f"VLLM::APIServer_{n}"].pid).argv for n in range(3)} == {  # type: ignore[union-attr]
        (f"VLLM::APIServer_{n}",) for n in range(3)
    }
    for _ in range(6):
        get(port, "/v1/completions", {"max_tokens": 1})
    assert metrics(port)["vllm:generation_tokens_total"] == 6
    signals.send(members["VLLM::APIServer_1"], signal.SIGKILL)
    assert running.wait() == 1
    running.family.wait_gone()
