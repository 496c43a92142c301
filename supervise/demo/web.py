"""The few endpoints that a supervisor or a curious person asks a server for."""

from __future__ import annotations

import json
import re
import secrets
import socket
import ssl
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from supervise.demo.forward import Client

_DEFAULT_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Site:
    """What is served: the model's name, by which engine.

    `hangs`: completions are never answered while everything else is, as when an engine is stuck. `key` is what
    requests below `/v1` must bring along, `sleeps` whether it can be sent to sleep, `answer` the text of every
    completion, None for its prompt.
    """

    model: str
    engine: Client
    hangs: bool = False
    key: str | None = None
    sleeps: bool = False
    tls: ssl.SSLContext | None = None
    answer: str | None = None


def serve(bound: socket.socket, site: Site) -> None:
    """Start to listen and answer, in a thread of its own; returns at once.

    Args:
        bound: the server's socket, bound, not yet listening; TCP or Unix.
        site: what is served.
    """
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"site": site}), bind_and_activate=False)
    server.socket.close()
    server.socket = bound
    server.server_activate()
    threading.Thread(target=server.serve_forever, daemon=True).start()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away, or that speaks no TLS: of no interest to anybody."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    site: Site

    def setup(self) -> None:
        if self.site.tls is not None:
            self.request = self.site.tls.wrap_socket(self.request, server_side=True)
        super().setup()

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if not self._allowed(path):
            return
        counters, model = self.site.engine.counters, self.site.model
        match path:
            case "/health" | "/ping":
                self._answer(200, None)
            case "/version":
                self._answer(200, {"version": "0.32.0"})
            case "/v1/models":
                self._answer(200, {"object": "list", "data": [{"id": model, "object": "model", "owned_by": "vllm"}]})
            case "/metrics":
                self._send(200, counters.metrics(model).encode(), "text/plain; version=0.0.4; charset=utf-8")
            case "/is_sleeping" if self.site.sleeps:
                self._answer(200, {"is_sleeping": bool(counters.read().sleeping)})
            case _:
                self._answer(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        asked = _parse(self.rfile.read(length))
        path = urlsplit(self.path).path
        if not self._allowed(path):
            return
        if path in ("/sleep", "/wake_up") and self.site.sleeps:
            self.site.engine.sleep(path == "/sleep")
            self._answer(200, {"status": "sleeping" if path == "/sleep" else "awake"})
        elif path != "/v1/completions":
            self._answer(404, {"detail": "Not Found"})
        elif asked is None:
            self._answer(400, {"error": {"message": "the body is not a JSON object", "code": 400}})
        else:
            self._complete(asked)

    def _complete(self, asked: dict[str, Any]) -> None:
        if self.site.hangs:
            threading.Event().wait()
        tokens = asked.get("max_tokens", _DEFAULT_TOKENS)
        if not isinstance(tokens, int) or tokens < 1:
            self._answer(400, {"error": {"message": "max_tokens must be at least 1", "code": 400}})
            return
        self.site.engine.complete(str(asked.get("prompt", "")), tokens)
        text = f" {asked.get('prompt', '')}" if self.site.answer is None else self.site.answer
        if asked.get("stream") is True:
            self._stream(text)
        else:
            self._answer(200, _completion(self.site.model, text, tokens))

    def _stream(self, text: str) -> None:
        """Word for word, as server-sent events; the connection ends with them."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Connection", "close")
        self.end_headers()
        for word in re.findall(r"\s*\S+|\s+", text):
            self.wfile.write(b"data: %s\n\n" % json.dumps(_completion(self.site.model, word, 1)).encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def _allowed(self, path: str) -> bool:
        """Of what it serves vLLM guards `/v1` only: whether this may pass; answers what may not."""
        if self.site.key is None or not path.startswith("/v1"):
            return True
        scheme, _, key = self.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer" and secrets.compare_digest(key.encode(), self.site.key.encode()):
            return True
        self._answer(401, {"error": "Unauthorized"})
        return False

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ARG002 - the name is the base class's
        # Of a Unix socket it is an empty text, which the type of the base class does not know.
        address: Any = self.client_address
        client = f"{address[0]}:{address[1]} - " if address else ""
        print(f'INFO:     {client}"{self.requestline}" {args[1] if len(args) > 1 else ""}', flush=True)

    def _answer(self, status: int, body: Any) -> None:
        self._send(status, b"" if body is None else json.dumps(body).encode(), "application/json")

    def _send(self, status: int, data: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _parse(body: bytes) -> dict[str, Any] | None:
    try:
        parsed = json.loads(body)
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None


def _completion(model: str, text: str, tokens: int) -> dict[str, Any]:
    choice = {"index": 0, "text": text, "finish_reason": "length"}
    return {"object": "text_completion", "model": model, "choices": [choice], "usage": {"completion_tokens": tokens}}
