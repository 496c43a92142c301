"""A completion that is asked for: as a stream, all at once, broken off, refused, or never."""

from __future__ import annotations

import json
import select
import socket
import time
from dataclasses import replace

import pytest

from supervise.model.need import Need
from supervise.model.trial import Expected, Trial, Verdict
from supervise.probes.completion import _Reader, ask
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


# Of a server that writes much about each token, and of one whose completion itself is long.
PADDED = b'data: {"choices": [{"text": ""}], "logprobs": "%s"}\n\n' % (b"x" * 65536)
LONG = says(stream(*(PADDED,) * 80, *PARIS))
WORDS = " ".join(str(number) for number in range(10_000))
LONGER = says(stream(PARIS[0], PARIS[1], *(event(WORDS),) * 40, DONE))
AT_ONCE = says(plain("200 OK", {"choices": [{"text": " Paris."}], "more": "x" * (5 << 20)}))


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
        (says(stream(b'data: {"error": null, "choices": []}\n\n', *PARIS)), Expected("Paris."), Verdict.PASS, "Paris."),
        (LONG, Expected("Paris."), Verdict.PASS, "Paris."),
        (LONG, Expected("Rome"), Verdict.FAIL, "has no 'Rome'"),
        (LONGER, Expected(), Verdict.PASS, "Paris."),
        (LONGER, Expected("Paris."), Verdict.PASS, "Paris."),
        (LONGER, Expected("Rome"), Verdict.SKIP, "in its beginning"),
        (LONGER, Expected(json=True), Verdict.SKIP, "in its beginning"),
        (AT_ONCE, Expected(), Verdict.SKIP, "more than 4 MiB"),
        (says(stream(event("a  b\n"), DONE)), Expected("c  d"), Verdict.FAIL, r"has no 'c  d': 'a  b\n'"),
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


def test_a_text_that_is_cut_is_short_in_memory() -> None:
    reader = _Reader(time.monotonic)
    for _ in range(40):
        reader.hear(event(WORDS).splitlines()[0])
    assert (len(reader.text), reader.cut) == (1 << 20, True)


def dripping(again_s: float) -> Talk:
    def drip(connection: socket.socket, _: bytes) -> None:
        connection.sendall(stream(*PARIS[:1], whole=False))
        while not select.select([connection], [], [], again_s)[0]:
            connection.sendall(stream(*PARIS[:1], whole=False).partition(b"\r\n\r\n")[2])

    return drip


@pytest.mark.parametrize(
    ("again_s", "verdict", "why"),
    [
        (0.01, Verdict.SKIP, "is not over after 1 s, it is still coming"),
        (ENOUGH_S, Verdict.FAIL, "stopped after ' Paris': nothing came for "),
    ],
)
def test_one_that_has_no_end_is_told_from_one_that_hangs(again_s: float, verdict: Verdict, why: str) -> None:
    with served(dripping(again_s)) as (listening, _):
        said = ask(named(listening), Trial(timeout_s=1.0), "/v1/completions", None)
    assert (said.verdict, why in said.why) == (verdict, True), said


def test_one_that_never_answers_has_its_time() -> None:
    began = time.monotonic()
    with served(lambda connection, _: connection.recv(1)) as (listening, _):
        said = ask(named(listening), Trial(timeout_s=SHORT_S), "/v1/completions", None)
    assert said.verdict is Verdict.FAIL
    assert "within 0.5 s" in said.why
    assert time.monotonic() - began >= SHORT_S
