"""The server's other processes: an engine with its workers, and children that try to get away."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

ESCAPES = ("plain", "ignore-term", "setsid", "setpgid", "double-fork", "env-cleared", "stopped")
ENGINE = "VLLM::EngineCore"
API_SERVER = "VLLM::APIServer"

_PR_SET_NAME = 15


@dataclass(frozen=True, slots=True)
class Birth:
    """The pipe through which a child, once it is set up, says who it is; its end of file says that all have."""

    fd: int

    def announce(self, role: str) -> None:
        """Say who we are."""
        os.write(self.fd, f"{role} {os.getpid()}\n".encode())

    def close(self) -> None:
        """Nothing more to say."""
        os.close(self.fd)


class Family:
    """Forks the leader's children and knows them by name.

    Args:
        tell: is given one line per new process, `role pid`.
        release: closes what only the leader may hold.
    """

    def __init__(self, tell: Callable[[str], None], release: Callable[[], None]) -> None:
        self.pids: dict[str, int] = {}
        self._tell = tell
        self._release = release

    def start(self, body: Callable[[Birth], None], *, serves: bool = False) -> None:
        """Fork a child; returns once it, and all that it forks itself, have said who they are.

        Args:
            body: what it does; the process ends with it.
            serves: it keeps what only the leader may hold.
        """
        reader, writer = os.pipe()
        if os.fork() == 0:
            os.close(reader)
            if not serves:
                self._release()
            _become(lambda: body(Birth(writer)))
        os.close(writer)
        with open(reader, encoding="utf-8") as pipe:
            for line in pipe:
                role, pid = line.split()
                self.pids[role] = int(pid)
                self._tell(line.rstrip())

    def kill_engine(self) -> None:
        """What vLLM does when it is stopped: SIGKILL for its engine and the workers, and nobody else."""
        for role, pid in self.pids.items():
            if role.startswith("VLLM::"):
                _kill(pid)

    def ended(self) -> list[int]:
        """Reap what has ended; the pids of the children that have."""
        pids = []
        try:
            while pid := os.waitpid(-1, os.WNOHANG)[0]:
                pids.append(pid)
        except ChildProcessError:
            pass
        return pids


def engine(birth: Birth, workers: int, serve: Callable[[], None]) -> None:
    """EngineCore: forks the workers and ends when one of them does; without a parent it lives on (VLLM_REAL.md 5).

    Args:
        birth: where it says who it is.
        workers: how many it has.
        serve: begins to answer requests, once the workers are there; returns at once.
    """
    set_title(ENGINE)
    birth.announce(ENGINE)
    watched, held = os.pipe()
    for rank in range(workers):
        role = "VLLM::Worker" if workers == 1 else f"VLLM::Worker_TP{rank}"
        if os.fork() == 0:
            os.close(held)
            _become(lambda role=role: _worker(role, watched, birth))  # type: ignore[misc]
    birth.close()
    serve()
    os.wait()
    os._exit(1)


def api_server(birth: Birth, number: int, serve: Callable[[], None]) -> None:
    """One of several processes that serve; without a parent it serves on (VLLM_REAL.md section 5).

    Args:
        birth: where it says who it is, once it serves.
        number: which of them it is, from 0.
        serve: begins to serve; returns at once.
    """
    role = f"{API_SERVER}_{number}"
    set_title(role)
    serve()
    birth.announce(role)
    birth.close()
    _sleep()


def escape(role: str, birth: Birth) -> None:
    """A child that a naive supervisor loses.

    Args:
        role: one of ESCAPES.
        birth: where it says who it is, once it is what the role asks for.
    """
    match role:
        case "ignore-term":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        case "setsid":
            os.setsid()
        case "setpgid":
            os.setpgid(0, 0)
        case "double-fork":
            if os.fork():
                os._exit(0)
            os.setsid()
    birth.announce(role)
    if role == "env-cleared":
        _forget_everything()
    birth.close()
    if role == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    _sleep()


def set_title(title: str) -> None:
    """Overwrite our argument vector and name in place, as setproctitle does, padded with NULs.

    The area is where proc(5) says: fields 48 and 49 of /proc/self/stat, arg_start and arg_end.
    """
    with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    length = end - start
    ctypes.memmove(start, title.encode()[: length - 1].ljust(length, b"\0"), length)
    ctypes.CDLL(None).prctl(_PR_SET_NAME, ctypes.c_char_p(title.encode()), 0, 0, 0)


def _worker(role: str, watched: int, birth: Birth) -> None:
    """A worker: ends with its engine, whose end of the pipe closes."""
    set_title(role)
    birth.announce(role)
    birth.close()
    os.read(watched, 1)


def _become(body: Callable[[], None]) -> NoReturn:
    """Run a forked child, with signals as a fresh program has them; it never returns into its parent's code."""
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        body()
    finally:
        os._exit(0)


def _forget_everything() -> NoReturn:
    """Exec with an empty environment and no standard streams; the birth pipe closes with the exec."""
    for fd in (0, 1, 2):
        os.close(fd)
    code = "import signal\nwhile True: signal.pause()"
    os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", code], {})


def _sleep() -> NoReturn:
    while True:
        signal.pause()


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
