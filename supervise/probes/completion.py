"""A completion as a user would ask for it, read as it comes, and what is to be thought of it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, NamedTuple

from supervise.model.need import Need
from supervise.model.trial import Expected, Judgement, Trial, Verdict
from supervise.probes.garbage import garbage
from supervise.probes.http import CLOSED, MOST_BYTES, Client, Response
from supervise.probes.names import names
from supervise.text import duration, printable, shorten

PROMPT, MAX_TOKENS = "The capital of France is", 32
"""What is asked where the user has not said."""

_NAMES_S = 10.0
_QUOTED = 80
# Of a text that is longer the beginning is looked at.
_MOST_CHARS = 1 << 20
# One that had no token for longer than this part of its time hangs; any other is still coming.
_STALLED = 0.1
_EVENT = b"data:"
_DONE = b"[DONE]"
_FENCE = re.compile(r"```(?:json)?\s*\n(.*?)\n?```", re.DOTALL)
# It has too much to do, or is not asked as it wants to be: neither says that it is broken.
_OTHERS = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.TOO_MANY_REQUESTS)


class Completion(NamedTuple):
    """What came: the text, the seconds until its first token, None if it did not come bit by bit.

    `cut`: there was more of the text than is kept.
    """

    text: str
    ttft_s: float | None
    cut: bool = False


def ask(need: Need, trial: Trial, path: str, models: str | None) -> Judgement:
    """Ask for one completion and judge it; blocking, for the trial's time and 10 s more to learn the model's name.

    Args:
        need: where the server answers.
        trial: what is asked, and expected.
        path: where completions are to be had.
        models: the path that tells the names of the models.
    """
    client = Client(need, need.key)
    model = _model(need, client, models)
    if model is None:
        return Judgement(Verdict.SKIP, f"GET {models} names no model to ask for")
    wanted = {
        "model": model,
        "prompt": PROMPT if trial.prompt is None else trial.prompt,
        "max_tokens": trial.max_tokens or MAX_TOKENS,
        "temperature": 0,
        "stream": True,
    }
    reader = _Reader(time.monotonic)
    answer = client.stream(path, wanted, trial.timeout_s, reader.hear)
    # That a stream in chunks ends too early http.client does not tell.
    if answer is None or (reader.events and not reader.whole and reader.error is None):
        return _unfinished(path, reader, trial.timeout_s, in_time=answer is not None)
    if answer.status != HTTPStatus.OK:
        return _refused(f"POST {path} is answered {answer.status}", answer)
    if not reader.events and len(answer.body) >= MOST_BYTES:
        return Judgement(Verdict.SKIP, f"POST {path} is answered with more than {MOST_BYTES >> 20} MiB at once")
    if reader.error is not None or (found := _completion(answer, reader)) is None:
        return Judgement(
            Verdict.FAIL, f"POST {path} is answered without a completion{_said(reader.error)}", reader.ttft_s
        )
    return weigh(found, trial.expected)


def weigh(found: Completion, expected: Expected) -> Judgement:
    """Judge a completion.

    Args:
        found: what came.
        expected: what it has to be.
    """
    if not expected.garbage and (why := garbage(found.text)) is not None:
        return Judgement(Verdict.FAIL, f"the completion is garbage, {why}: {_quoted(found.text)}", found.ttft_s)
    if (why := _unexpected(found.text, expected)) is not None and found.cut:
        return Judgement(Verdict.SKIP, f"{why} in its beginning, and the rest was not kept", found.ttft_s)
    if why is not None:
        return Judgement(Verdict.FAIL, f"{why}: {_quoted(found.text)}", found.ttft_s)
    if expected.max_ttft_s is not None and found.ttft_s is None:
        return Judgement(Verdict.SKIP, "when its first token came cannot be told: the server does not stream")
    if expected.max_ttft_s is not None and found.ttft_s is not None and found.ttft_s > expected.max_ttft_s:
        late = f"the first token came after {found.ttft_s:.2f} s, more than {expected.max_ttft_s:g} s"
        return Judgement(Verdict.FAIL, late, found.ttft_s)
    first = "" if found.ttft_s is None else f", first token after {duration(found.ttft_s)}"
    return Judgement(Verdict.PASS, f"the completion is {_quoted(found.text)}{first}", found.ttft_s)


def _unexpected(text: str, expected: Expected) -> str | None:
    if expected.text is not None and expected.text not in text:
        return f"the completion has no {_quoted(expected.text)}"
    if expected.matches is not None and not expected.matches(text):
        return f"the completion does not match {expected.pattern}"
    return "the completion is not JSON" if expected.json and not _is_json(text) else None


def _is_json(text: str) -> bool:
    """Whether all of it is one JSON text, or it holds one between fences of Markdown."""
    fenced = _FENCE.search(text)
    try:
        json.loads(fenced[1] if fenced else text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return False
    return True


def _no_constant(name: str) -> None:
    """NaN and the infinities are none of JSON's (RFC 8259, section 6)."""
    raise ValueError(name)


class _Reader:
    """Hears a stream of server-sent events (OpenAI API, `stream`), and when the first and the last token came."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.ttft_s: float | None = None
        self.last_s = 0.0
        self.cut = False
        self._pieces: list[str] = []
        self._length = 0
        self.error: str | None = None
        self.events = 0
        self.whole = False
        self._clock, self._began = clock, clock()

    @property
    def text(self) -> str:
        """As much as is kept of it."""
        return "".join(self._pieces)

    @property
    def waited_s(self) -> float:
        """Seconds since it was asked."""
        return self._clock() - self._began

    def hear(self, line: bytes) -> None:
        """One line; what is no event of a completion is passed over."""
        if not line.startswith(_EVENT):
            return
        # Of one that does not fit into a line nobody knows what it says.
        self.cut = self.cut or len(line) >= MOST_BYTES
        data = line[len(_EVENT) :].strip()
        self.whole = self.whole or data == _DONE
        if (said := _parsed(data)) is None:
            return
        self.events += 1
        if said.get("error") is not None:
            self.error = str(said["error"])
        if piece := _text(said):
            self._keep(piece)
            self.last_s = self.waited_s
            self.ttft_s = self.last_s if self.ttft_s is None else self.ttft_s

    def _keep(self, piece: str) -> None:
        kept = piece[: _MOST_CHARS - self._length]
        self._length += len(kept)
        self.cut = self.cut or len(kept) < len(piece)
        if kept:
            self._pieces.append(kept)


def _completion(answer: Response, reader: _Reader) -> Completion | None:
    if reader.events:
        return Completion(reader.text, reader.ttft_s, reader.cut)
    # A server that knows no streams answers all at once.
    said = _parsed(answer.body)
    text = None if said is None else _text(said)
    return None if text is None else Completion(text, None)


def _text(said: dict[str, Any]) -> str | None:
    try:
        text = said["choices"][0]["text"]
    except (LookupError, TypeError):
        return None
    return text if isinstance(text, str) else None


def _parsed(data: bytes) -> dict[str, Any] | None:
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) else None


def _model(need: Need, client: Client, models: str | None) -> str | None:
    """The name to ask for: one that was given, else the one that it tells, which may be a path."""
    answer = None if models is None or need.named else client.get(models, _NAMES_S)
    told = () if answer is None or answer.status != HTTPStatus.OK else names(answer.body)
    return next(iter((*told, *need.served_names)), None)


def _unfinished(path: str, reader: _Reader, timeout_s: float, *, in_time: bool) -> Judgement:
    """What is to be thought of an answer without an end; one that still comes says that its server is at work."""
    waited, asked = reader.waited_s, f"POST {path}"
    over = not in_time and waited >= timeout_s * 0.99
    if not reader.events:
        return Judgement(Verdict.FAIL, f"{asked} is not answered" + (f" within {timeout_s:g} s" if over else ""))
    text, silent_s = _quoted(reader.text), waited - reader.last_s
    if not over:
        return Judgement(Verdict.FAIL, f"{asked}: the completion broke off after {text}", reader.ttft_s)
    if reader.ttft_s is not None and silent_s <= timeout_s * _STALLED:
        more = "it is still coming: a longer --probe-timeout, or fewer --max-tokens"
        return Judgement(
            Verdict.SKIP, f"{asked}: the completion is not over after {timeout_s:g} s, {more}", reader.ttft_s
        )
    told = f"nothing came for {duration(silent_s)} until the {timeout_s:g} s were over"
    return Judgement(Verdict.FAIL, f"{asked}: the completion stopped after {text}: {told}", reader.ttft_s)


def _refused(asked: str, answer: Response) -> Judgement:
    told = f"{asked}{_said(answer.body.decode('utf-8', 'replace'))}"
    if answer.status == HTTPStatus.UNAUTHORIZED:
        return Judgement(Verdict.SKIP, f"{told}; it wants a key: --api-key in the command, or VLLM_API_KEY")
    if answer.status in CLOSED or answer.status in _OTHERS or answer.status == HTTPStatus.SERVICE_UNAVAILABLE:
        return Judgement(Verdict.SKIP, told)
    return Judgement(Verdict.FAIL, told)


def _said(text: str | None) -> str:
    told = shorten(printable(" ".join((text or "").split())), 2 * _QUOTED)
    return f": {told}" if told else ""


def _quoted(text: str) -> str:
    """As it was compared, blanks and all; what cannot be printed is escaped."""
    return repr(shorten(text, _QUOTED))
