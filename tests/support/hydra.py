"""A hostile process tree: one child per role, each of which some way of ending a group misses.

Run as a program: `python hydra.py --tell PATH ROLE…`. Every process says `role pid` in PATH once it is what its role
asks for, the leader says `ready` last. Nothing but signals ends any of them. Standard library only, so that any Python
and any user can run it.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import sys
from typing import NoReturn

ROLES = (
    "plain",
    "ignore-term",
    "setsid",
    "setpgid",
    "double-fork",
    "env-cleared",
    "renamed",
    "stopped",
    "grandchildren",
    "ignore-all",
)
_SLEEPER = "import signal\nwhile True: signal.pause()"


def main() -> NoReturn:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tell", required=True)
    parser.add_argument("--leader-ignores-term", action="store_true")
    parser.add_argument("--leader-exits", type=int, metavar="STATUS", help="once all are there")
    parser.add_argument("roles", nargs="*", choices=[*ROLES, []])
    options = parser.parse_args()
    if options.leader_ignores_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    say(options.tell, "leader")
    for role in options.roles:
        start(options.tell, role)
    with open(options.tell, "a", encoding="utf-8") as file:
        file.write("ready\n")
    if options.leader_exits is not None:
        os._exit(options.leader_exits)
    rest()


def start(path: str, role: str) -> None:
    """Fork a role; returns when every process of it has closed its end of the pipe, that is, has said who it is."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.close(reader)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        play(path, role, writer)
    os.close(writer)
    os.read(reader, 1)
    os.close(reader)


def play(path: str, role: str, held: int) -> NoReturn:
    match role:
        case "ignore-term":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        case "ignore-all":
            for signum in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
                signal.signal(signum, signal.SIG_IGN)
        case "setsid":
            os.setsid()
        case "setpgid":
            os.setpgid(0, 0)
        case "double-fork":
            leave_parent()
            os.setsid()
            leave_parent()
        case "renamed":
            rename("[kworker/0:1]")
        case "grandchildren":
            if os.fork() == 0:
                os.setsid()
                role = "grandchild"
    say(path, role)
    if role == "env-cleared":
        clear_out()
    os.close(held)
    if role == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    rest()


def leave_parent() -> None:
    if os.fork():
        os._exit(0)


def rename(title: str) -> None:
    """Overwrite argv (fields 48 and 49 of /proc/self/stat say where) and everything of the environment behind it."""
    with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    start, end, env_end = int(fields[45]), int(fields[46]), int(fields[48])
    ctypes.memset(start, 0, env_end - start)
    ctypes.memmove(start, title.encode()[: end - start - 1], min(len(title), end - start - 1))
    ctypes.CDLL(None).prctl(15, ctypes.c_char_p(title.encode()), 0, 0, 0)


def clear_out() -> NoReturn:
    """Lose the environment by exec, close the standard streams; the pipe closes with the exec."""
    for fd in (0, 1, 2):
        os.close(fd)
    os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", _SLEEPER], {})


def say(path: str, role: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(fd, f"{role} {os.getpid()}\n".encode())
    os.close(fd)


def rest() -> NoReturn:
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
