"""Real orphans: retitled processes whose launcher has ended, below a reaper that passes for a container's init.

Run as a program: `python orphanage.py --tell PATH SPEC…`, a SPEC being JSON. It makes itself the reaper of orphans,
calls itself `tini`, and starts each SPEC behind a launcher that exits at once. Every process says `role pid` in PATH,
the reaper `init pid` and then `ready`. Standard library only.

A SPEC: `role`; `title` (its only argument, as setproctitle does it); `env`, added, False clears it; `ignore_term`;
`bind` and `listen`, TCP ports; `map`, names in /dev/shm; `child`, the SPEC of a child;
`stays`: its launcher stays; `exec`: the arguments of another program that it becomes, with `log` as its output.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import signal
import socket
import sys
from typing import Any, NoReturn

_PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 15, 36
_libc = ctypes.CDLL(None)
Spec = dict[str, Any]


def main() -> NoReturn:
    if sys.argv[1] == "--be":
        be(json.loads(sys.argv[3]), sys.argv[2], int(sys.argv[4]))
    path, specs = sys.argv[2], [json.loads(spec) for spec in sys.argv[3:]]
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    rename("tini")
    for spec in specs:
        launch(spec, path)
    say(path, f"init {os.getpid()}\nready\n")
    while True:
        try:
            os.wait()
        except ChildProcessError:
            signal.pause()


def launch(spec: Spec, path: str) -> None:
    """Start a SPEC and wait until it has said who it is, and until its launcher is gone if it goes."""
    reader, writer = os.pipe()
    launcher = os.fork()
    if launcher == 0:
        os.close(reader)
        os.setsid()
        _libc.prctl(_PR_SET_NAME, b"launcher", 0, 0, 0)
        if os.fork() == 0:
            start(spec, path, writer)
        if not spec.get("stays"):
            os._exit(0)
        os.close(writer)
        say(path, f"launcher-of-{spec['role']} {os.getpid()}\n")
        rest()
    os.close(writer)
    os.read(reader, 1)
    os.close(reader)
    if not spec.get("stays"):
        os.waitpid(launcher, 0)


def start(spec: Spec, path: str, held: int) -> NoReturn:
    """Exec, so that /proc/PID/environ shows what the SPEC says; `held` closes once it is what it is to be."""
    os.set_inheritable(held, True)
    env = {} if spec.get("env") is False else os.environ | spec.get("env", {})
    if command := spec.get("exec"):
        log = os.open(spec["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.set_inheritable(held, False)
        say(path, f"{spec['role']} {os.getpid()}\n")
        os.execve(command[0], command, env)
    argv = [sys.executable, "-I", "-S", os.path.abspath(__file__), "--be", path, json.dumps(spec), str(held)]
    os.execve(sys.executable, argv, env)


def be(spec: Spec, path: str, held: int) -> NoReturn:
    """Become what the SPEC says."""
    if spec.get("ignore_term"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    kept: list[Any] = [bind(port, listening=False) for port in spec.get("bind", ())]
    kept += [bind(port, listening=True) for port in spec.get("listen", ())]
    kept += [mapping(name) for name in spec.get("map", ())]
    if child := spec.get("child"):
        reader, writer = os.pipe()
        if os.fork() == 0:
            os.close(reader)
            os.close(held)
            start(child, path, writer)
        os.close(writer)
        os.read(reader, 1)
        os.close(reader)
    if title := spec.get("title"):
        rename(title)
    say(path, f"{spec['role']} {os.getpid()}\n")
    os.close(held)
    rest()


def bind(port: int, *, listening: bool) -> socket.socket:
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("127.0.0.1", port))
    if listening:
        server.listen()
    return server


def mapping(name: str) -> mmap.mmap:
    with open(f"/dev/shm/{name}", "r+b") as file:
        return mmap.mmap(file.fileno(), 0)


def rename(title: str) -> None:
    """Overwrite the arguments, not the environment (proc(5): fields 48 and 49 of stat), and the 15-byte name."""
    with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    begin, end = int(fields[45]), int(fields[46])
    ctypes.memset(begin, 0, end - begin)
    ctypes.memmove(begin, title.encode(), len(title.encode()))
    _libc.prctl(_PR_SET_NAME, title.encode(), 0, 0, 0)


def say(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(fd, text.encode())
    os.close(fd)


def rest() -> NoReturn:
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
