"""The door to PID namespaces: a new one for our children, and a /proc that shows it.

In a new PID namespace behind the old /proc every process takes itself for another one (`psutil.Process()` is the host's
pid 1, and an engine's `kill_process_tree(os.getpid())` ends the wrong tree): the two come together or not at all.
"""

from __future__ import annotations

import os
import select
import signal
from typing import NoReturn

from supervise.host import kernel

_PROBE_S = 5.0
_DONE = b"done"


def for_children() -> None:
    """Give our future children a PID namespace of their own; we stay where we are (pid_namespaces(7)).

    Without privilege it takes a user namespace, in which our user stays who it is (user_namespaces(7)).

    Raises:
        OSError: the kernel, a container's seccomp filter or a security module refused; nothing has changed.
    """
    try:
        kernel.unshare(kernel.CLONE_NEWPID)
    except PermissionError:
        uid, gid = os.geteuid(), os.getegid()
        kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWPID)
        kernel.be_readable()
        # Without privilege outside, gid_map may only be written once setgroups(2) has been given up.
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)


def show() -> None:
    """In the first process of the new namespace: mount a /proc that shows it, for us and our descendants only.

    Raises:
        OSError: EPERM where /proc is partly hidden from us, as in most containers.
    """
    kernel.unshare(kernel.CLONE_NEWNS)
    kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_SLAVE)
    kernel.mount("proc", "/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)


def refusal() -> str | None:
    """Why there cannot be one here, tried out by a child of ours; None if there can.

    Call it while we have one thread. Bounded to 5 s.
    """
    reader, writer = os.pipe2(os.O_CLOEXEC)
    trial = os.fork()
    if trial == 0:
        _try(writer)
    os.close(writer)
    try:
        if not select.select([reader], [], [], _PROBE_S)[0]:
            os.kill(trial, signal.SIGKILL)
            return "the kernel did not answer"
        told = os.read(reader, 4096)
        return None if told == _DONE else told.decode(errors="replace") or "it could not be tried"
    finally:
        os.close(reader)
        os.waitpid(trial, 0)


def _try(writer: int) -> NoReturn:
    try:
        for_children()
        first = os.fork()
        if first == 0:
            show()
            os.write(writer, _DONE)
            os._exit(0)
        os.waitpid(first, 0)
    except OSError as error:
        os.write(writer, (error.strerror or str(error)).encode()[:4096])
    finally:
        # Never back into the caller: this is a copy of a process that goes on elsewhere.
        os._exit(0)
