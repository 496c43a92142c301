"""The few endpoints that a supervisor or a curious person asks a server for."""

from __future__ import annotations

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def serve(bound: socket.socket, model: str, *, hangs: bool) -> None:
    """Start to listen and answer, in a thread of its own; returns at once.

    Args:
        bound: the server's socket, bound, not yet listening.
        model: the name served.
        hangs: completions are never answered while everything else is, as when an engine is stuck.
    """
    server = ThreadingHTTPServer(bound.getsockname()[:2], _handler(model, hangs), bind_and_activate=False)
    server.daemon_threads = True
    server.socket.close()
    server.socket = bound
    server.server_activate()
    threading.Thread(target=server.serve_forever, daemon=True).start()


def _handler(model: str, hangs: bool) -> type[BaseHTTPRequestHandler]:
    answers: dict[str, Any] = {
        "/health": None,
        "/ping": None,
        "/version": {"version": "0.32.0"},
        "/v1/models": {"object": "list", "data": [{"id": model, "object": "model", "owned_by": "vllm"}]},
    }

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path in answers:
                self._answer(200, answers[self.path])
            else:
                self._answer(404, {"detail": "Not Found"})

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            asked = _parse(self.rfile.read(length))
            if hangs:
                threading.Event().wait()
            if self.path != "/v1/completions":
                self._answer(404, {"detail": "Not Found"})
            elif asked is None:
                self._answer(400, {"error": {"message": "the body is not a JSON object", "code": 400}})
            else:
                self._answer(200, _completion(model, asked))

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ARG002 - the name is the base class's
            client = f"{self.client_address[0]}:{self.client_address[1]}"
            print(f'INFO:     {client} - "{self.requestline}" {args[1] if len(args) > 1 else ""}', flush=True)

        def _answer(self, status: int, body: Any) -> None:
            data = b"" if body is None else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    return Handler


def _parse(body: bytes) -> dict[str, Any] | None:
    try:
        parsed = json.loads(body)
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None


def _completion(model: str, asked: dict[str, Any]) -> dict[str, Any]:
    choice = {"index": 0, "text": f" {asked.get('prompt', '')}", "finish_reason": "length"}
    return {"object": "text_completion", "model": model, "choices": [choice], "usage": {"completion_tokens": 1}}
