"""A hostile process tree: one child per role, each of which some way of ending a group misses.

Run as a program: `python hydra.py --tell PATH ROLE…`. Every process says `role pid` in PATH once it is what its role
asks for, the leader says `ready` last. Nothing but signals ends any of them, except the two that never hold still:
these end after a minute. All that is forked without an exec shares one flock(2) on PATH: whoever can take it
exclusively knows that none of them is left, those included whose pid nobody can know. Standard library only, so that
any Python and any user can run it.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import os
import select
import signal
import sys
import time
from typing import NoReturn

# One or two processes each that stay what they are.
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
    "nested-subreaper",
    "ghost",
    "traced",
    "zombie-keeper",
)
# Those of which some process is always just being born.
RESTLESS = ("fork-storm", "hop-chain")
FOR_ROOT = ("other-uid",)
ALL = (*ROLES, *FOR_ROOT, "crowd", *RESTLESS)
CROWD = 500
HOP_COMM = "hydra-hop"
STORM_COMM = "hydra-storm"

_SLEEPER = "import signal\nwhile True: signal.pause()"
_NOBODY = 65534
_RESTLESS_S = 60.0
# Each line of a storm is at most two processes: with its starter that makes seven.
_STORM_LINES = 3
_STORM_HOP_S = 0.001
_PR_SET_NAME, _PR_SET_CHILD_SUBREAPER, _PTRACE_TRACEME = 15, 36, 0
_libc = ctypes.CDLL(None, use_errno=True)
_exact: list[bool] = []


def members(role: str, crowd: int = CROWD) -> tuple[str, ...]:
    """The names under which the processes of a role announce themselves."""
    if role == "hop-chain":
        return ()
    beside = {"grandchildren": ("grandchild",), "nested-subreaper": ("adopted",), "traced": ("tracer",)}
    return (role, *(f"crowd-{number}" for number in range(crowd if role == "crowd" else 0)), *beside.get(role, ()))


def main() -> NoReturn:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tell", required=True)
    parser.add_argument("--tell-namespace", action="store_true", help="say `namespace INODE` first, and start ticks")
    parser.add_argument("--after", metavar="PATH", help="say `overlap` if any of the tree that tells there is alive")
    parser.add_argument("--crowd", type=int, default=CROWD, metavar="N")
    parser.add_argument("--leader-ignores-term", action="store_true")
    parser.add_argument("--leader-exits", type=int, metavar="STATUS", help="once all are there")
    parser.add_argument("roles", nargs="*", choices=[*ALL, []])
    options = parser.parse_args()
    if options.leader_ignores_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    overlap = options.after is not None and any_left(options.after)
    tell = os.open(options.tell, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    fcntl.flock(tell, fcntl.LOCK_SH)
    if options.tell_namespace:
        _exact.append(True)
        os.write(tell, f"namespace {os.stat('/proc/self/ns/pid').st_ino}\n".encode())
    if overlap:
        say(tell, "overlap")
    say(tell, "leader")
    for role in options.roles:
        start(tell, role, options.crowd)
    os.write(tell, b"ready\n")
    if options.leader_exits is not None:
        os._exit(options.leader_exits)
    rest()


def any_left(path: str) -> bool:
    """Whether any process forked by the tree that tells in PATH is alive; one that could tell nothing is not."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def start(tell: int, role: str, crowd: int) -> None:
    """Fork a role; returns when every process of it has closed its end of the pipe, that is, has said who it is."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.close(reader)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        play(tell, role, writer, crowd)
    os.close(writer)
    os.read(reader, 1)
    os.close(reader)


def play(tell: int, role: str, held: int, crowd: int) -> NoReturn:
    """Become what the role asks for, say so, and stay it."""
    name = become(tell, role, held, crowd)
    say(tell, name)
    if role in ("env-cleared", "ghost"):
        clear_out(silent=role == "ghost")
    os.close(held)
    if role == "fork-storm":
        feed_storm()
    if name in ("stopped", "traced"):
        os.kill(os.getpid(), signal.SIGSTOP)
    rest()


def become(tell: int, role: str, held: int, crowd: int) -> str:
    """Take on a role; the name of what this process then is in it."""
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
        case "double-fork" | "ghost":
            leave_parent()
            os.setsid()
            leave_parent()
        case "renamed":
            rename("[kworker/0:1]")
        case "grandchildren":
            if os.fork() == 0:
                os.setsid()
                return "grandchild"
        case "nested-subreaper":
            return adopt()
        case "traced":
            return trace()
        case "zombie-keeper":
            keep_zombie()
        case "other-uid":
            os.setgroups([])
            os.setgid(_NOBODY)
            os.setuid(_NOBODY)
        case "crowd":
            return gather(crowd)
        case "fork-storm":
            set_comm(STORM_COMM)
        case "hop-chain":
            os.close(held)
            hop(time.monotonic() + _RESTLESS_S)
    return role


def adopt() -> str:
    """Be a subreaper below the subreaper, and adopt a grandchild."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    adopter = os.getpid()
    if child := os.fork():
        os.waitpid(child, 0)
        return "nested-subreaper"
    leave_parent()
    while os.getppid() != adopter:
        time.sleep(0.001)
    return "adopted"


def trace() -> str:
    """Be the tracer of a child that is stopped: a signal other than SIGKILL reaches it only through its tracer."""
    child = os.fork()
    if child == 0:
        _libc.ptrace(_PTRACE_TRACEME, 0, 0, 0)
        return "traced"
    os.waitpid(child, 0)
    return "tracer"


def keep_zombie() -> None:
    """Have a dead child that is never reaped."""
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)


def gather(crowd: int) -> str:
    """Fork a crowd, every fifth of it into a session of its own."""
    for number in range(crowd):
        if os.fork() == 0:
            if number % 5 == 0:
                os.setsid()
            return f"crowd-{number}"
    return "crowd"


def feed_storm() -> NoReturn:
    """Keep lines of short-lived processes going; one that has been cut off, its pipe at its end, starts anew."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    until = time.monotonic() + _RESTLESS_S
    lines = [start_line(until) for _ in range(_STORM_LINES)]
    while time.monotonic() < until:
        for ended in select.select(lines, [], [], 1.0)[0]:
            os.close(ended)
            lines[lines.index(ended)] = start_line(until)
    os._exit(0)


def start_line(until: float) -> int:
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.close(reader)
        hop(until, _STORM_HOP_S, STORM_COMM)
    os.close(writer)
    return reader


def hop(until: float, delay_s: float = 0.0, comm: str = HOP_COMM) -> NoReturn:
    """Fork a successor and exit, over and over: whoever has been seen is gone already."""
    set_comm(comm)
    while time.monotonic() < until:
        leave_parent()
        if delay_s:
            time.sleep(delay_s)
    os._exit(0)


def leave_parent() -> None:
    if os.fork():
        os._exit(0)


def set_comm(name: str) -> None:
    _libc.prctl(_PR_SET_NAME, ctypes.c_char_p(name.encode()), 0, 0, 0)


def rename(title: str) -> None:
    """Overwrite argv (fields 48 and 49 of /proc/self/stat say where) and everything of the environment behind it."""
    fields = stat_fields()
    start, end, env_end = int(fields[45]), int(fields[46]), int(fields[48])
    ctypes.memset(start, 0, env_end - start)
    ctypes.memmove(start, title.encode()[: end - start - 1], min(len(title), end - start - 1))
    set_comm(title)


def clear_out(*, silent: bool) -> NoReturn:
    """Lose the environment by exec, the standard streams closed or going nowhere; pipe and lock close with the exec."""
    nowhere = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nowhere, fd) if silent else os.close(fd)
    os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", _SLEEPER], {})


def stat_fields() -> list[str]:
    with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()


def say(tell: int, name: str) -> None:
    """With start ticks where the pid may be another one outside: numbers of dead namespaces are soon given again."""
    ticks = f" {stat_fields()[19]}" if _exact else ""
    os.write(tell, f"{name} {os.getpid()}{ticks}\n".encode())


def rest() -> NoReturn:
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
