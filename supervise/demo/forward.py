"""The way of a request through the engine, and what the engine's metrics say of it.

A server process asks over a socket and the engine's process answers, so an engine that is stopped or stuck answers
nobody: its counters stand still while `/health` goes on as ever, as in a real vLLM.
"""

from __future__ import annotations

import itertools
import json
import mmap
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

_PACKET = 4096
_LAYOUT = struct.Struct("=6Q")


class Count(NamedTuple):
    """What the engine last said of itself."""

    running: int = 0
    prompt: int = 0
    tokens: int = 0
    iterations: int = 0
    done: int = 0
    sleeping: int = 0


class Counters:
    """Memory that the engine and all server processes share; made before any of them is forked."""

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, _LAYOUT.size)
        self._lock = threading.Lock()

    def read(self) -> Count:
        """The present count."""
        return Count(*_LAYOUT.unpack_from(self._shared))

    def change(self, change: Callable[[Count], Count]) -> Count:
        """Replace the count by what `change` makes of it; returns that."""
        with self._lock:
            changed = change(self.read())
            _LAYOUT.pack_into(self._shared, 0, *changed)
            return changed

    def metrics(self, model: str) -> str:
        """What `/metrics` answers: the names, types and labels of a vLLM 0.32."""
        count, lines = self.read(), []
        awake = not count.sleeping
        for name, kind, suffix, labels, value in (
            ("num_requests_running", "gauge", "", "", count.running),
            ("num_requests_waiting", "gauge", "", "", 0),
            ("engine_sleep_state", "gauge", "", ',sleep_state="awake"', awake),
            ("engine_sleep_state", "gauge", "", ',sleep_state="weights_offloaded"', count.sleeping),
            ("engine_sleep_state", "gauge", "", ',sleep_state="discard_all"', 0),
            ("prompt_tokens_total", "counter", "", "", count.prompt),
            ("generation_tokens_total", "counter", "", "", count.tokens),
            ("request_success_total", "counter", "", ',finished_reason="length"', count.done),
            ("iteration_tokens_total", "histogram", "_bucket", ',le="+Inf"', count.iterations),
            ("iteration_tokens_total", "histogram", "_count", "", count.iterations),
            ("iteration_tokens_total", "histogram", "_sum", "", count.prompt + count.tokens),
        ):
            head = f"# TYPE vllm:{name} {kind}"
            if head not in lines:
                lines += [f"# HELP vllm:{name} Of the stand-in.", head]
            lines.append(f'vllm:{name}{suffix}{{engine="0",model_name="{model}"{labels}}} {float(value)}')
        return "\n".join(lines) + "\n"


class Engine:
    """The engine's side: answers requests for ever.

    Args:
        counters: where it counts.
        request_s: how long each request takes, in seconds.
        hangs: the first request gets no further than its first token, and no later one gets any.
        on_done: is told how many requests have been answered, after each.
    """

    def __init__(self, counters: Counters, request_s: float, *, hangs: bool, on_done: Callable[[int], None]) -> None:
        self._counters, self._request_s, self._hangs, self._on_done = counters, request_s, hangs, on_done
        self._unstuck = threading.Lock()

    def serve(self, channel: socket.socket) -> None:
        """Answer what comes from one server process, in threads; returns at once."""
        threading.Thread(target=self._listen, args=(channel,), daemon=True).start()

    def _listen(self, channel: socket.socket) -> None:
        while data := channel.recv(_PACKET):
            asked = json.loads(data)
            threading.Thread(target=self._forward, args=(channel, *asked), daemon=True).start()

    def _forward(self, channel: socket.socket, number: int, prompt: int, tokens: int) -> None:
        if self._hangs and not self._unstuck.acquire(blocking=False):
            _wait_for_ever()
        begun = False
        for left in reversed(range(tokens)):
            time.sleep(self._request_s / tokens)
            ends = left == 0 and not self._hangs
            self._step(prompt, begins=not begun, ends=ends)
            begun = True
            if self._hangs:
                _wait_for_ever()
        channel.send(json.dumps(number).encode())
        self._on_done(self._counters.read().done)

    def _step(self, prompt: int, *, begins: bool, ends: bool) -> None:
        """One token. The requests that run are known from the first of them on, as they are in vLLM."""
        self._counters.change(
            lambda count: count._replace(
                running=count.running + begins - ends,
                prompt=count.prompt + prompt * begins,
                tokens=count.tokens + 1,
                iterations=count.iterations + 1,
                done=count.done + ends,
            )
        )


def _wait_for_ever() -> None:
    threading.Event().wait()


class Client:
    """The server's side.

    Args:
        channel: the other end of one that the engine serves.
        counters: the engine's.
    """

    def __init__(self, channel: socket.socket, counters: Counters) -> None:
        self.counters = counters
        self._channel = channel
        self._numbers = itertools.count()
        self._waiting: dict[int, threading.Event] = {}
        threading.Thread(target=self._listen, daemon=True).start()

    def complete(self, prompt: str, tokens: int) -> None:
        """Have one request answered; blocks until it is."""
        number, done = next(self._numbers), threading.Event()
        self._waiting[number] = done
        self._channel.send(json.dumps((number, len(prompt.split()), tokens)).encode())
        done.wait()

    def sleep(self, sleeping: bool) -> None:
        """Fall asleep, or wake up."""
        self.counters.change(lambda count: count._replace(sleeping=int(sleeping)))

    def _listen(self) -> None:
        while data := self._channel.recv(_PACKET):
            self._waiting.pop(json.loads(data)).set()
