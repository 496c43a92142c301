"""`supervise healthcheck`: for exec probes of Kubernetes and for Docker's HEALTHCHECK, which ask every few seconds.

Little is imported: no parser, no asyncio. Docker knows 0 and 1 only (2 is reserved), so there is no other status.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from enum import StrEnum
from typing import Any, NamedTuple, NoReturn

from supervise.attempts.access import denied, expect_ours
from supervise.attempts.elsewhere import SOCKET, elsewhere
from supervise.attempts.place import default_root
from supervise.attempts.roles import living
from supervise.attempts.store import RUN_NAME, Run, Store
from supervise.host import procfs

# Docker and Kubernetes give a probe time of its own; one that hangs on a dead file system shall say so before them.
_WITHIN_S = 2.0
_CONNECT_S = 1.0
_ANSWER_S = 1.5
_PIECE = 64 * 1024
_LARGEST_ANSWER = 1024 * 1024
_EVENTS_TAIL = 256 * 1024
# States that an attempt reaches only once it has been launched; of these alone it is asked whether it was ready before.
_ENDING = ("capturing", "stopping", "killing", "verifying")


class Asked(StrEnum):
    """What is to be known."""

    STARTUP = "startup"
    READY = "ready"
    LIVE = "live"


class Health(NamedTuple):
    """The answer, and why."""

    well: bool
    why: str


def healthcheck(name: str | None, asked: Asked) -> int:
    """Say in one line on standard output how a run is.

    Args:
        name: the run; None for the only one there is.
        asked: see `judge`.

    Returns:
        0 if it is well, 1 if not or if that cannot be known; never anything else, and within 2 s.
    """
    _bound()
    try:
        procfs.self_id()
        run = _run(name)
        health = judge(run, asked) if isinstance(run, Run) else run
    except Exception as error:  # noqa: BLE001 - a probe knows no third status
        health = Health(False, f"it cannot be known: {str(error) or type(error).__name__}")
    return _tell(health)


def judge(run: Run, asked: Asked) -> Health:
    """Tell how a run is.

    LIVE: supervise works, also while the server loads, stops or waits for its next attempt: a server that hangs is
    supervise's own business, and a load of ten minutes no reason to kill a container. STARTUP: its server was ready
    once in this attempt. READY: it is ready now, and its port takes a connection.

    Args:
        run: the run.
        asked: which of them.

    Raises:
        OSError: it cannot be known.
    """
    state = run.read_state()
    if state is None:
        return Health(False, f"{run.name} has no live state: it has not begun, or {run.path}/run.json is damaged")
    if elsewhere(run):
        return _judge_elsewhere(run, asked)
    dead = _dead(run, state)
    if dead is not None:
        return dead
    shown = _shown(run, state)
    if asked is Asked.LIVE:
        return Health(True, shown) if _turns(run) else Health(False, f"{shown}, but supervise does not answer")
    if asked is Asked.STARTUP:
        return Health(_was_ready(run, state), shown)
    health = _ready(state, shown, (state.get("cause") or {}).get("text"))
    refused = _refuses(run, state) if health.well else None
    return Health(False, f"{shown}, but {refused}") if refused else health


def _judge_elsewhere(run: Run, asked: Asked) -> Health:
    """Of a run in another PID namespace there is what it says itself: its port may be in another network, too."""
    try:
        state = json.loads(_answer(run) or b"null")
    except (OSError, ValueError):
        state = None
    there = "in another PID namespace"
    if not isinstance(state, dict) or state.get("ok") is not True:
        return Health(False, f"{run.name} is live {there}, but supervise does not answer")
    shown = f"{_shown(run, state)} {there}"
    if asked is Asked.LIVE:
        return Health(state.get("over") is not True, shown)
    if asked is Asked.STARTUP:
        return Health(_was_ready(run, state), shown)
    return _ready(state, shown, state.get("cause"))


def _shown(run: Run, state: dict[str, Any]) -> str:
    return f"{run.name} is {state.get('state')}{_attempt(state)}"


def _ready(state: dict[str, Any], shown: str, cause: str | None) -> Health:
    if state.get("state") == "ready" and cause:
        return Health(False, f"{shown}, and its log says that it cannot go on: {cause}")
    return Health(state.get("state") == "ready", shown)


def _dead(run: Run, state: dict[str, Any]) -> Health | None:
    """Why nobody supervises it; None if somebody does."""
    supervisor = living(state, "supervisor")
    if supervisor is None or state.get("state") == "done":
        ended = state.get("ended") or _ended(run, state)
        why = ": ".join(str(ended[key]) for key in ("exit_status", "why", "outcome") if ended.get(key) is not None)
        return Health(False, f"{run.name} is over, {f'exit status {why}' if why else 'no record of how it ended'}")
    process = procfs.read(supervisor.pid, cmdline=False, environ=False)
    if process is not None and process.state in ("T", "t"):
        return Health(False, f"{run.name}: supervise (pid {supervisor.pid}) is stopped, kill -CONT continues it")
    return None


def _ended(run: Run, state: dict[str, Any]) -> dict[str, Any]:
    """How the attempt ended that a run ended with."""
    number = state.get("attempt")
    outcome = (run.attempt(number).read("outcome") if number is not None else None) or {}
    return outcome if outcome.get("exit_status") is not None else {}


def _turns(run: Run) -> bool:
    """Whether supervise's loop answers at its control socket; where there is none, that it lives is all we know."""
    try:
        return bool(_answer(run))
    except TimeoutError:
        return False
    except OSError:
        return True


def _answer(run: Run) -> bytes:
    """What supervise's loop says at its control socket: one line, empty if it hangs up.

    Raises:
        OSError: it cannot be asked, or does not answer in time.
    """
    from supervise.host import peers

    said = b""
    with peers.connect(run.path, SOCKET, _ANSWER_S) as connected:
        connected.sendall(b'{"request": "status"}\n')
        while not said.endswith(b"\n") and len(said) < _LARGEST_ANSWER and (piece := connected.recv(_PIECE)):
            said += piece
    return said


def _attempt(state: dict[str, Any]) -> str:
    number, phase = state.get("attempt"), state.get("phase")
    told = [f"attempt {number}"] if number is not None else []
    told += [phase] if phase and state.get("state") == "starting" else []
    return f" ({', '.join(told)})" if told else ""


def _was_ready(run: Run, state: dict[str, Any]) -> bool:
    """Whether this attempt has been ready, by its state or, while it ends, by the history."""
    if state.get("state") not in _ENDING:
        return state.get("state") == "ready"
    with open(os.path.join(run.path, "events.jsonl"), "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _EVENTS_TAIL))
        lines = file.read(_EVENTS_TAIL).splitlines()
    return any(_says_ready(line, state.get("attempt")) for line in lines)


def _says_ready(line: bytes, attempt: int | None) -> bool:
    try:
        said = json.loads(line)
    except ValueError:
        return False
    return isinstance(said, dict) and said.get("state") == "ready" and said.get("attempt") == attempt


def _refuses(run: Run, state: dict[str, Any]) -> str | None:
    """Why the server's port takes no connection; None if it does, or if nobody knows where it listens."""
    number = state.get("attempt")
    told = (run.attempt(number).read("attempt") if number is not None else None) or {}
    url = told.get("url")
    if not isinstance(url, str) or not url:
        return None
    import socket

    try:
        if url.startswith("unix:"):
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(_CONNECT_S)
                client.connect(url.removeprefix("unix:"))
        else:
            host, _, port = url.rpartition("/")[2].rpartition(":")
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
    except (OSError, ValueError) as error:
        return f"{url} takes no connection: {error}"
    return None


def _is_live(run: Run) -> bool:
    return living(run.read_state(), "supervisor") is not None or elsewhere(run)


def _run(name: str | None) -> Run | Health:
    """The run that is meant, or why that is not clear; several of which one is live mean that one.

    Raises:
        StoreError: it is not ours to see.
    """
    root = default_root(os.environ)
    store = Store(root)
    runs, hidden = store.runs(), denied(store)
    if name is not None:
        expect_ours(run for run in hidden if run.name == name)
        known = bool(RUN_NAME.fullmatch(name)) and os.path.isdir(store.run(name).path)
        return store.run(name) if known else Health(False, f"there is no run {name!r} in {root}")
    live = [run for run in runs if _is_live(run)] if len(runs) > 1 else runs
    if len(live) == 1:
        return live[0]
    if not runs:
        expect_ours(hidden)
        return Health(False, f"there is no run in {root}")
    names = ", ".join(run.name for run in live or runs)
    return Health(False, f"which run? {names}" if live else f"nothing runs; known: {names}")


def _tell(health: Health) -> int:
    try:
        sys.stdout.write(f"{'ok' if health.well else 'not ok'}: {_printable(health.why)}\n")
        sys.stdout.flush()
    except OSError:
        # Who hung up has no use for the reason, but still for the status.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 0 if health.well else 1


def _printable(text: str) -> str:
    from supervise.text import printable

    return printable(text)


def _bound() -> None:
    """Leave in time, whatever is waited for; only a system call that no signal interrupts can outlast it."""
    signal.signal(signal.SIGALRM, _too_late)
    signal.setitimer(signal.ITIMER_REAL, _WITHIN_S)


def _too_late(_signum: int, _frame: object) -> NoReturn:
    told = f"not ok: no answer within {_WITHIN_S:.0f} s; is the state directory on a file system that hangs?\n"
    os.write(1, told.encode())
    os._exit(1)
