"""A completion that is asked for: as a stream, all at once, broken off, refused, or never."""

from __future__ import annotations

import json
import socket
import time
from dataclasses import replace

import pytest

from supervise.model.need import Need
from supervise.model.trial import Expected, Trial, Verdict
from supervise.probes.completion import ask
from tests.unit.test_probes_http import SHORT_S, Talk, at, says, served

ENOUGH_S = 20.0


def event(text: str) -> bytes:
    return b"data: %s\n\n" % json.dumps({"choices": [{"text": text}]}).encode()


def stream(*pieces: bytes, whole: bool = True) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    return head + chunks + (b"0\r\n\r\n" if whole else b"")


def plain(status: str, said: object) -> bytes:
    body = json.dumps(said).encode()
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(body), body)


def named(listening: socket.socket) -> Need:
    return replace(at(listening), served_names=("m",), named=True)


DONE = b"data: [DONE]\n\n"
PARIS = (event(" Paris"), event("."), DONE)


def late(connection: socket.socket, _: bytes) -> None:
    connection.sendall(stream(event(""), whole=False))
    time.sleep(SHORT_S)
    connection.sendall(stream(*PARIS).partition(b"\r\n\r\n")[2])


@pytest.mark.parametrize(
    ("talk", "expected", "verdict", "why"),
    [
        (says(stream(*PARIS)), Expected("Paris."), Verdict.PASS, "Paris."),
        (says(stream(b": ping\n\n", event(" Pa"), event("ris."), DONE)), Expected("Paris."), Verdict.PASS, "Paris."),
        (says(stream(event(" Rome."), DONE)), Expected("Paris"), Verdict.FAIL, "has no 'Paris'"),
        (says(stream(DONE)), Expected(), Verdict.FAIL, "without a completion"),
        (says(stream(event(""), DONE)), Expected(), Verdict.FAIL, "garbage, it is empty"),
        (says(stream(*PARIS[:1], whole=False)), Expected(), Verdict.FAIL, "broke off after"),
        (says(stream(*PARIS[:1], b'data: {"error": "CUDA error"}\n\n', DONE)), Expected(), Verdict.FAIL, "CUDA error"),
        (says(plain("200 OK", {"choices": [{"text": " Paris."}]})), Expected("Paris"), Verdict.PASS, "Paris."),
        (says(plain("200 OK", {"choices": []})), Expected(), Verdict.FAIL, "without a completion"),
        (says(plain("200 OK", {"choices": [{"text": " Paris."}]})), Expected(max_ttft_s=9.0), Verdict.SKIP, "stream"),
        (says(plain("500 Oh", {"error": "EngineDeadError"})), Expected(), Verdict.FAIL, "500: {\"error\""),
        (says(plain("401 No", {})), Expected(), Verdict.SKIP, "--api-key"),
        (says(plain("404 No", {})), Expected(), Verdict.SKIP, "404"),
        (says(plain("400 No", {})), Expected(), Verdict.SKIP, "400"),
        (says(plain("429 No", {})), Expected(), Verdict.SKIP, "429"),
        (says(plain("503 No", {})), Expected(), Verdict.SKIP, "503"),
        (says(b""), Expected(), Verdict.FAIL, "is not answered"),
        (late, Expected(max_ttft_s=SHORT_S / 2), Verdict.FAIL, "first token came after"),
        (late, Expected(max_ttft_s=ENOUGH_S), Verdict.PASS, "first token after"),
    ],
)  # fmt: skip
def test_answers(talk: Talk, expected: Expected, verdict: Verdict, why: str) -> None:
    with served(talk) as (listening, asked):
        said = ask(named(listening), Trial(expected=expected, timeout_s=ENOUGH_S), "/v1/completions", None)
    assert (said.verdict, why in said.why) == (verdict, True), said
    request = json.loads(asked[0].partition(b"\r\n\r\n")[2])
    assert (request["model"], request["stream"], request["temperature"]) == ("m", True, 0)


def test_one_that_never_answers_has_its_time() -> None:
    began = time.monotonic()
    with served(lambda connection, _: connection.recv(1)) as (listening, _):
        said = ask(named(listening), Trial(timeout_s=SHORT_S), "/v1/completions", None)
    assert said.verdict is Verdict.FAIL
    assert "within 0.5 s" in said.why
    assert time.monotonic() - began >= SHORT_S
