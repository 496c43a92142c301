"""A process of the zoo: it becomes what a specification says, behind a launcher that goes or stays.

Run as a program: `python -I -S zoo_animal.py SPEC`, a SPEC being JSON; it says the animal's pid on standard output once
the animal is what it is to be. Standard library only.

A SPEC: `argv`, the words of its command line from then on (one is a title, as setproctitle does it); `ignore_term`;
`bind` and `listen`, TCP ports; `share`, they are shared (SO_REUSEPORT); `map`, `hold` and `lock`, files; `unix`, paths
of sockets; `attach`, it makes and attaches a System V segment and says its id as well; `launcher`, the words of a
launcher that stays.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import mmap
import os
import signal
import socket
import sys
from typing import Any, NoReturn

_PR_SET_NAME = 15
_IPC_CREAT, _RMID = 0o1000, 0
_libc = ctypes.CDLL(None, use_errno=True)
_libc.shmat.restype = ctypes.c_void_p
Spec = dict[str, Any]


def main() -> NoReturn:
    if sys.argv[1] == "--be":
        be(json.loads(sys.argv[2]), int(sys.argv[3]))
    spec: Spec = json.loads(sys.argv[1])
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    animal = os.fork()
    if animal == 0:
        os.close(reader)
        os.setsid()
        argv = [sys.executable, "-I", "-S", os.path.abspath(__file__), "--be", json.dumps(spec), str(writer)]
        os.execve(sys.executable, argv, os.environ)
    os.close(writer)
    with open(reader, encoding="utf-8") as told:
        said = told.read()
    launcher = spec.get("launcher")
    if launcher:
        rename(launcher)
    print(json.dumps({"pid": animal, "launcher": os.getpid(), **json.loads(said)}), flush=True)
    if not launcher:
        os._exit(0)
    rest()


def be(spec: Spec, told: int) -> NoReturn:
    """Become what the SPEC says, say so, and stay."""
    if spec.get("ignore_term"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    share = bool(spec.get("share"))
    kept: list[Any] = [bind(port, share=share) for port in spec.get("bind", ())]
    for port in spec.get("listen", ()):
        kept.append(bind(port, share=share))
        kept[-1].listen()
    kept += [mapping(path) for path in spec.get("map", ())]
    kept += [os.open(path, os.O_RDONLY) for path in spec.get("hold", ())]
    kept += [locked(path) for path in spec.get("lock", ())]
    kept += [endpoint(path) for path in spec.get("unix", ())]
    says = {"segment": attached()} if spec.get("attach") else {}
    for fd in (0, 1, 2):
        os.dup2(os.open(os.devnull, os.O_RDWR), fd)
    rename(spec["argv"])
    os.write(told, json.dumps(says).encode())
    os.close(told)
    rest()


def bind(port: int, *, share: bool) -> socket.socket:
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT if share else socket.SO_REUSEADDR, 1)
    server.bind(("127.0.0.1", port))
    return server


def mapping(path: str) -> mmap.mmap:
    with open(path, "r+b") as file:
        return mmap.mmap(file.fileno(), 0)


def locked(path: str) -> Any:
    file = open(path, "r+b")  # noqa: SIM115 - held for good
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


def endpoint(path: str) -> socket.socket:
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()
    return server


def attached() -> int:
    found = new_segment()
    if _libc.shmat(found, None, 0) == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "shmat")
    return found


def new_segment() -> int:
    """A private System V segment of 4096 bytes (shmget(2)); nobody is attached."""
    found = int(_libc.shmget(0, 4096, _IPC_CREAT | 0o600))
    if found < 0:
        raise OSError(ctypes.get_errno(), "shmget")
    return found


def drop_segment(number: int) -> None:
    _libc.shmctl(number, _RMID, None)


def rename(argv: list[str]) -> None:
    """Overwrite the arguments, not the environment (proc(5): fields 48 and 49 of stat), and the 15-byte name."""
    with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    begin, end = int(fields[45]), int(fields[46])
    line = "\0".join(argv).encode()
    assert len(line) < end - begin, line
    ctypes.memset(begin, 0, end - begin)
    ctypes.memmove(begin, line, len(line))
    _libc.prctl(_PR_SET_NAME, os.path.basename(argv[0]).encode(), 0, 0, 0)


def rest() -> NoReturn:
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
