"""Whether a server serves, asked of servers of the test's own: every proof of readiness has its decoy."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from supervise.host import procfs
from supervise.model.need import Need, Port
from supervise.model.probe import Answer, Probed
from supervise.model.profile import ReadyRule
from supervise.probes import Asker, ready
from supervise.probes.names import another, names
from supervise.profiles.load import load

RULE = ReadyRule(http="/health", models="/v1/models", timeout_s=20)
HEALTH, MODELS = "/health", "/v1/models"
Answers = dict[str, tuple[int, bytes]]


def cards(*served: str) -> bytes:
    return json.dumps({"object": "list", "data": [{"id": name} for name in served]}).encode()


def well(*served: str) -> Answers:
    return {HEALTH: (200, b""), MODELS: (200, cards(*served))}


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, answers: Answers, bound: socket.socket) -> None:
        asked: list[tuple[str, str | None]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append((self.path, self.headers.get("Authorization")))
                status, body = answers.get(self.path, (404, b""))
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler, bind_and_activate=False)
        self.asked = asked
        self.socket.close()
        self.socket = bound


@contextmanager
def serving(answers: Answers, port: int = 0, path: str | None = None, *, shared: bool = False) -> Iterator[Server]:
    bound = socket.socket(socket.AF_INET if path is None else socket.AF_UNIX)
    if shared:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind(("127.0.0.1", port) if path is None else path)
    bound.listen()
    server = Server(answers, bound)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def number(server: Server) -> int:
    return int(server.socket.getsockname()[1])


def need(*ports: int, served: tuple[str, ...] = ("m",), **more: object) -> Need:
    roles = tuple(Port(port, "127.0.0.1", "http", "--port") for port in ports)
    return Need("vllm", "r", (), (), ports=roles, served_names=served, **more)  # type: ignore[arg-type]


def us() -> list[procfs.Process]:
    found = procfs.read(os.getpid())
    assert found is not None
    return [found]


def asked(what: Need, rule: ReadyRule = RULE) -> Probed:
    return ready(what, rule, us)


def test_it_serves() -> None:
    with serving(well("m", "an-adapter")) as server:
        assert asked(need(number(server))) == Probed(Answer.YES, named=True)
    assert [path for path, _ in server.asked] == [HEALTH, MODELS]


def test_nobody_listens() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert asked(need(bound.getsockname()[1])).answer is Answer.SILENT


def test_a_server_of_another_group_is_not_our_readiness() -> None:
    with serving(well("m")) as server:
        probed = ready(need(number(server)), RULE, list)
    assert probed.answer is Answer.NOT_OURS
    assert f"pid {os.getpid()} " in probed.detail
    assert server.asked == []


STRANGER = (
    "import socket, sys; s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1);"
    "s.bind(('127.0.0.1', int(sys.argv[1]))); s.listen(); print(flush=True); sys.stdin.read()"
)


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def stranger(opened: ExitStack, port: int) -> subprocess.Popen[bytes]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = opened.enter_context(subprocess.Popen([sys.executable, "-c", STRANGER, str(port)], **pipes))  # type: ignore[call-overload]
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_a_port_that_is_shared_with_somebody_else_is_not_ours(opened: ExitStack) -> None:
    """Linux gives some of the requests to each of them (socket(7), SO_REUSEPORT)."""
    server = opened.enter_context(serving(well("m"), shared=True))
    other = stranger(opened, number(server))
    probed = asked(need(number(server)))
    assert probed.answer is Answer.NOT_OURS
    assert probed.detail.startswith(f"pid {other.pid} ")
    assert probed.detail.endswith(", besides ours")


def test_a_port_that_is_shared_within_the_group_is_ours() -> None:
    with serving(well("m"), shared=True) as one, serving(well("m"), number(one), shared=True):
        assert asked(need(number(one))).answer is Answer.YES


@pytest.mark.parametrize("status", [500, 503])
def test_a_server_that_is_not_well_is_not_ready_yet(status: int) -> None:
    with serving({HEALTH: (status, b"")}) as server:
        assert asked(need(number(server))).answer is Answer.NOT_YET


@pytest.mark.parametrize("status", [401, 403, 404, 405])
def test_a_server_that_does_not_tell_how_it_is_gets_a_note(status: int) -> None:
    with serving({**well("m"), HEALTH: (status, b"")}) as server:
        probed = asked(need(number(server)))
    assert (probed.answer, str(status) in probed.note) == (Answer.YES, True)


@pytest.mark.parametrize("status", [401, 404, 500])
def test_a_server_that_does_not_tell_its_model_is_believed_in_silence(status: int) -> None:
    with serving({**well(), MODELS: (status, b"{}")}) as server:
        assert asked(need(number(server))) == Probed(Answer.YES, named=status != 500)


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b'{"data": [{"name": "m"}]}', b'{"data": null}', b"[" * 100_000]
)
def test_an_answer_without_a_name_gets_a_note(body: bytes) -> None:
    assert names(body) == ()
    with serving({**well(), MODELS: (200, body)}) as server:
        probed = asked(need(number(server)))
    assert (probed.answer, probed.note) == (Answer.YES, "GET /v1/models names no model")


def test_another_model_is_another_server() -> None:
    with serving(well("stale")) as server:
        probed = asked(need(number(server)))
    assert probed.answer is Answer.NOT_OURS
    assert probed.detail == "a server of 'stale', while this launch serves 'm'"


def test_the_names_are_asked_for_until_they_are_known() -> None:
    answers = well("stale")
    with serving(answers) as server:
        asker = Asker(need(number(server)), RULE)
        assert [asker.ready(us).answer for _ in range(2)] == [Answer.NOT_OURS] * 2
        answers[MODELS] = (500, b"")
        assert asker.ready(us).answer is Answer.YES
        answers[MODELS] = (200, cards("m"))
        assert [asker.ready(us).answer for _ in range(3)] == [Answer.YES] * 3
    assert [path for path, _ in server.asked].count(MODELS) == 4


def test_without_a_name_to_expect_none_is_asked_for() -> None:
    with serving(well("any")) as server:
        assert asked(need(number(server), served=())).answer is Answer.YES
    assert [path for path, _ in server.asked] == [HEALTH]


def test_the_key_is_sent_with_everything() -> None:
    with serving(well("m")) as server:
        asked(need(number(server), key="sk-1"))
    assert {key for _, key in server.asked} == {"Bearer sk-1"}


def test_every_port_must_be_well() -> None:
    """`--data-parallel-multi-port-external-lb`: a server for each rank, and one that watches over them."""
    with serving(well("m")) as first, serving({HEALTH: (503, b"")}) as second:
        assert asked(need(number(first), number(second))).answer is Answer.NOT_YET
    with serving(well("m")) as first, serving(well("m")) as second:
        both = need(number(first), number(second))
        assert asked(both).answer is Answer.YES
        assert [path for path, _ in second.asked] == [HEALTH]
    with serving(well("m")) as first:
        assert asked(need(number(first), both.ports[1].number)).answer is Answer.SILENT


def test_one_port_that_is_lost_is_told_while_the_other_is_silent(opened: ExitStack) -> None:
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as taken:
        port = int(taken.getsockname()[1])
        other = stranger(opened, port)
    with socket.create_server(("127.0.0.1", 0)) as free:
        silent = int(free.getsockname()[1])
    probed = asked(need(silent, port))
    assert (probed.answer, probed.detail.split()[1]) == (Answer.NOT_OURS, str(other.pid))


def test_a_unix_socket(short_dir: Path) -> None:
    path = str(short_dir / "s")
    assert asked(need(uds=path)).answer is Answer.SILENT
    with serving(well("m"), path=path):
        assert asked(need(uds=path)).answer is Answer.YES
        assert ready(need(uds=path), RULE, list).answer is Answer.NOT_OURS


def test_a_unix_socket_whose_path_was_taken_over_is_no_rival(short_dir: Path, opened: ExitStack) -> None:
    path = str(short_dir / "s")
    code = STRANGER.replace("socket.socket()", "socket.socket(1)").replace(
        "('127.0.0.1', int(sys.argv[1]))", "sys.argv[1]"
    )
    code = code.replace("s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1);", "")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    old = opened.enter_context(subprocess.Popen([sys.executable, "-c", code, path], **pipes))  # type: ignore[call-overload]
    assert old.stdout is not None
    old.stdout.readline()
    os.unlink(path)
    with serving(well("m"), path=path):
        assert asked(need(uds=path)).answer is Answer.YES


def test_clients_that_need_a_certificate_ask_nothing() -> None:
    with serving({HEALTH: (503, b"")}) as server:
        probed = asked(need(number(server), mutual_tls=True))
    assert (probed.answer, server.asked) == (Answer.YES, [])
    assert "certificate" in probed.note


def test_a_port_of_grpc_is_asked_nothing() -> None:
    with serving({}) as server:
        grpc = Need("vllm", "r", (), (), ports=(Port(number(server), "127.0.0.1", "grpc", "--port"),))
        assert (asked(grpc).answer, ready(grpc, RULE, list).answer) == (Answer.YES, Answer.NOT_OURS)
    assert server.asked == []


def test_an_answer_that_costs_a_token_is_asked_for_seldom() -> None:
    with serving({HEALTH: (503, b"")}) as server:
        assert asked(need(number(server)), ReadyRule(http=HEALTH, every_s=5, timeout_s=20)).again_s == 5
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    assert asked(need(port), ReadyRule(http=HEALTH, every_s=5)).again_s == 1


NAMED = [
    # served, names, model, is it ours where the name is served as it is, and where it may be that of what was found
    (("b", "lora"), ("b",), "b", True, True),
    (("M",), ("m",), "m", False, False),
    ((), ("m",), "m", True, True),
    (("x",), (), None, True, True),
    (("Qwen/Qwen2.5-7B",), ("Qwen/Qwen2.5-7B",), "Qwen/Qwen2.5-7B", True, True),
    (("Qwen/Qwen2.5-7B-Instruct",), ("Qwen/Qwen2.5-7B",), "Qwen/Qwen2.5-7B", False, False),
    (("big-m",), ("m",), "m", False, False),
    (("/root/.cache/modelscope/hub/models/Qwen/Qwen2___5-7B",), ("Qwen/Qwen2.5-7B",), "Qwen/Qwen2.5-7B", False, True),
    (("/root/.cache/modelscope/hub/models/Qwen/Qwen2___5-72B",), ("Qwen/Qwen2.5-7B",), "Qwen/Qwen2.5-7B", False, False),
    (("/c/models--o--M-GGUF/snapshots/ab/M-Q4.gguf",), ("o/M-GGUF:Q4",), "o/M-GGUF:Q4", False, True),
    (("/models/a/",), ("/models/a",), "/models/a", False, True),
    (("/models/b",), ("/models/a",), "/models/a", False, False),
    (("meta/Llama",), ("Qwen/Qwen2.5-7B",), "Qwen/Qwen2.5-7B", False, False),
]  # fmt: skip


@pytest.mark.parametrize(("served", "wanted", "model", "exactly", "loosely"), NAMED)
def test_names(
    served: tuple[str, ...], wanted: tuple[str, ...], model: str | None, exactly: bool, loosely: bool
) -> None:
    launch = Need("vllm", "r", (), (), model=model, served_names=wanted)
    assert (another(launch, served) is None) == exactly
    assert (another(launch, served, resolves=True) is None) == loosely


@pytest.mark.parametrize(
    ("served", "ours"), [(("m",), True), (("a", "lora"), True), (("Qwen/Q",), False), (("x/m",), False), ((), True)]
)
def test_names_that_were_given_are_served_as_they_are(served: tuple[str, ...], ours: bool) -> None:
    launch = Need("sglang", "r", (), (), model="Qwen/Q", served_names=("m", "a"), named=True)
    assert (another(launch, served, resolves=True) is None) == ours
    same = Need("sglang", "r", (), (), model="m", served_names=("m",), named=True)
    assert another(same, ("x/m",), resolves=True) is not None


def test_which_engine_serves_what_it_has_found() -> None:
    assert load("sglang").ready.resolves
    assert not load("vllm").ready.resolves


def test_a_name_cannot_write_on_the_terminal() -> None:
    found = another(need(1), ("\x1b[2J" + "x" * 500,))
    assert found is not None
    assert found.startswith(r"a server of '\x1b[2Jxxx"), "visible, and once"
    assert len(found) < 200
