"""Asks the supervise of a run through its control socket, where there is one that answers."""

from __future__ import annotations

import json
import signal
import socket
import time
from typing import TYPE_CHECKING, Any, Self

from supervise.attempts.elsewhere import SOCKET
from supervise.attempts.told import sound
from supervise.host import peers, procfs, signals
from supervise.model.process import ProcessId

if TYPE_CHECKING:
    from supervise.attempts.store import Run

_ANSWER_S = 5.0
_APART_S = 0.1
_PIECE = 64 * 1024
_LARGEST_ANSWER = 1024 * 1024


class RefusedError(Exception):
    """It has answered, and does not do it; the text says why, `status` is the exit status that it means, if any."""

    def __init__(self, text: str, status: int | None = None) -> None:
        super().__init__(text)
        self.status = status


def ask(
    run: Run, request: str, within_s: float = _ANSWER_S, whose: ProcessId | None = None, **more: object
) -> dict[str, Any] | None:
    """One request, one answer.

    Args:
        run: which one.
        request: see Control.
        within_s: how long the answer may take, in seconds.
        whose: the supervise that is meant; None for whichever has the run.
        more: what belongs to the request.

    Returns:
        The answer; None if nobody listens, or does not answer in time.

    Raises:
        RefusedError: it does not do that.
    """
    conversation = Conversation.begin(run, request, within_s, whose, **more)
    if conversation is None:
        return None
    with conversation:
        return conversation.next(within_s)


def ask_to_stop(run: Run, target: ProcessId, *, now: bool) -> signals.Sent:
    """Have a run end, through its socket, or with the signals that mean the same where that does not answer.

    Args:
        run: which one.
        target: its supervise, or the keeper that was left alone by it.
        now: without the grace.
    """
    if not suspended(target):
        try:
            if ask(run, "stop", whose=target, now=now) is not None:
                return signals.Sent.DELIVERED
        except RefusedError:
            pass
    sent = signals.send(target, signal.SIGTERM)
    if now and sent is signals.Sent.DELIVERED:
        # Two that come at once are one (signal(7)).
        time.sleep(_APART_S)
        sent = signals.send(target, signal.SIGTERM)
    return sent


def suspended(target: ProcessId) -> bool:
    """Whether a process is stopped: it will not answer before somebody continues it."""
    process = procfs.read(target.pid, cmdline=False, environ=False)
    return process is not None and process.id == target and process.state == "T"


class Conversation:
    """A request and its answers.

    Args:
        connected: a socket on which the request has been sent.

    Attributes:
        over: whether there will be no further answer.
    """

    def __init__(self, connected: socket.socket) -> None:
        self._socket, self._read = connected, bytearray()
        self.over = False

    @classmethod
    def begin(
        cls, run: Run, request: str, within_s: float = _ANSWER_S, whose: ProcessId | None = None, **more: object
    ) -> Conversation | None:
        """Ask; None if nobody listens, or somebody else than who is meant.

        Args:
            run: which one.
            request: see Control.
            within_s: how long connecting and sending may take, in seconds.
            whose: the supervise that is meant; None for whichever has the run.
            more: what belongs to the request.
        """
        try:
            connected = peers.connect(run.path, SOCKET, within_s)
        except OSError:
            return None
        if not _is_of(connected, whose):
            connected.close()
            return None
        try:
            connected.sendall(json.dumps({"version": 1, "request": request, **more}).encode() + b"\n")
        except OSError:
            # Whoever was turned away before that can still read why.
            pass
        return cls(connected)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def next(self, within_s: float) -> dict[str, Any] | None:
        """The next answer; None if there is none in time, or there will be none.

        Raises:
            RefusedError: it does not do that.
        """
        line = self._line(time.monotonic() + within_s)
        try:
            said = json.loads(line) if line else None
        except (ValueError, RecursionError):
            return None
        if not isinstance(said, dict) or not sound({**said, "cause": None}):
            return None
        if said.get("ok") is not True:
            raise RefusedError(str(said.get("error", "it does not say why")), said.get("exit_status"))
        return said

    def _line(self, until: float) -> bytes | None:
        while b"\n" not in self._read:
            left = until - time.monotonic()
            if self.over or left <= 0:
                return None
            self._socket.settimeout(left)
            try:
                piece = self._socket.recv(_PIECE)
            except TimeoutError:
                return None
            except OSError:
                piece = b""
            self._read += piece
            self.over = not piece or len(self._read) > _LARGEST_ANSWER
        line, _, rest = self._read.partition(b"\n")
        self._read = rest
        return bytes(line)


def _is_of(connected: socket.socket, whose: ProcessId | None) -> bool:
    """Whether that one listens there; the pid of one of another PID namespace cannot be told, and is 0 (unix(7))."""
    if whose is None:
        return True
    try:
        return peers.peer(connected).pid in (0, whose.pid)
    except OSError:
        return False
