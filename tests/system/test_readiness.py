"""Readiness of a real process in every form that a server can be reached in, and of one that is not the right one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.launcher import Supervise
from tests.support.waiting import wait_until

KEY = "sk-never-written-anywhere"
VLLM = ("--profile", "vllm", "--name", "X", "--grace", "1")


def start(supervise: Supervise, port: int, *options: object, **more: object):
    return supervise.start(*VLLM, *supervise.standin("--load-s", "0.1", *options, port=port), **more)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    where = tmp_path_factory.mktemp("tls")
    cert, key = where / "cert.pem", where / "key.pem"
    made = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    subprocess.run(
        [*made, "-keyout", str(key), "-out", str(cert), "-subj", "/CN=somewhere.else"], check=True, capture_output=True
    )
    return cert, key


def written(supervise: Supervise) -> list[Path]:
    """Files of ours, the server's own log apart, that hold the key."""
    ours = [path for path in supervise.state.rglob("*") if path.is_file() and path.name != "server.log"]
    assert ours
    return [path for path in ours if KEY.encode() in path.read_bytes()]


def test_over_a_unix_socket(supervise: Supervise, port: int) -> None:
    start(supervise, port, "--uds", supervise.base / "s")
    supervise.wait_state("ready")


def test_over_tls_with_a_key_that_is_written_nowhere(
    supervise: Supervise, port: int, certificate: tuple[Path, Path]
) -> None:
    cert, private = certificate
    tls = ("--ssl-certfile", cert, "--ssl-keyfile", private)
    launched = start(supervise, port, *tls, "--api-key", KEY, "--served-model-name", "m")
    supervise.wait_state("ready")
    assert f"https://0.0.0.0:{port}" in launched.stderr
    assert written(supervise) == []
    assert KEY not in launched.stderr + launched.stdout


def test_several_api_servers(supervise: Supervise, port: int) -> None:
    start(supervise, port, "--api-server-count", 2)
    supervise.wait_state("ready")
    assert supervise.log().count("Application startup complete.") == 2


# Says at once that it is up, and tells in its log what it answers.
TELLING = """
import http.server, json, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        named = self.path == "/v1/models"
        allowed = not named or self.headers["Authorization"] == "Bearer KEY"
        body = json.dumps({"data": [{"id": "served"}]}).encode() if named and allowed else b""
        self.send_response(200 if allowed else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler)
print("Application startup complete.", flush=True)
server.serve_forever()
"""


def telling(supervise: Supervise, port: int, name: str) -> list[str]:
    script = supervise.base / "server.py"
    script.write_text(TELLING.replace("KEY", KEY))
    return [supervise.python, str(script), "--port", str(port), "--served-model-name", name]


def test_the_names_are_read_with_the_key_of_the_environment(supervise: Supervise, port: int) -> None:
    supervise.start(*VLLM, *telling(supervise, port, "served"), env={"VLLM_API_KEY": KEY})
    supervise.wait_state("ready")
    assert '"GET /v1/models HTTP/1.1" 200' in supervise.log()
    assert written(supervise) == []


def test_without_the_key_the_names_stay_unread_and_nobody_minds(supervise: Supervise, port: int) -> None:
    launched = supervise.start(*VLLM, *telling(supervise, port, "another"))
    supervise.wait_state("ready")
    assert '"GET /v1/models HTTP/1.1" 401' in supervise.log()
    assert "models" not in launched.stderr


def test_a_server_of_another_model_is_not_ready(supervise: Supervise, port: int) -> None:
    supervise.start(*VLLM, *telling(supervise, port, "another"), env={"VLLM_API_KEY": KEY})
    supervise.wait_state("starting")
    wait_until(lambda: supervise.log().count('"GET /v1/models HTTP/1.1" 200') >= 2, failure=supervise.said)
    assert supervise.status()["state"] == "starting"
