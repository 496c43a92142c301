"""A PID namespace around the server: the kernel ends everything in it the moment its first process is gone.

That first process is an init of ours: it reaps orphans, passes signals on to the server, and dies with the keeper.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from supervise.host import kernel, namespaces, procfs
from supervise.model.process import ProcessId

if TYPE_CHECKING:
    from types import FrameType

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_BIRTH_S = 10.0


class Namespace:
    """One PID namespace, seen from the keeper outside of it.

    Args:
        start: starts the server and gives its pid; called inside.
        release: descriptors that must not be held inside.

    Attributes:
        init: identity of its first process, as seen from outside.
        leader: the server's, likewise.
        reports: readable when the leader has ended.

    Raises:
        OSError: the namespace was refused, or the server could not be executed.
    """

    def __init__(self, start: Callable[[], int], release: tuple[int, ...]) -> None:
        namespaces.for_children()
        self.reports, told = os.pipe2(os.O_CLOEXEC)
        proceed, self._proceed = os.pipe2(os.O_CLOEXEC)
        pid = os.fork()
        if pid == 0:
            for fd in (*release, self.reports, self._proceed):
                os.close(fd)
            _serve(start, told, proceed)
        os.close(told)
        os.close(proceed)
        self.init = procfs.identify(pid) or ProcessId(pid, 0)
        self.leader = self._born()

    def status(self) -> int | None:
        """How the leader ended, once `reports` is readable: negative for a signal; None if its init is gone first."""
        report = self._report(0.0)
        return None if report is None else int(report["status"])

    def _born(self) -> ProcessId:
        """The server's identity out here: inside it has another number. It is not reaped before we have looked."""
        report = self._report(_BIRTH_S)
        if report is None:
            raise OSError(0, "the init of the PID namespace did not come up")
        if "errno" in report:
            raise OSError(report["errno"], report["error"])
        children = (process for process in procfs.scan(cmdline=False, environ=False).values())
        leader = next((process.id for process in children if process.ppid == self.init.pid), None)
        os.write(self._proceed, b"\n")
        return leader or ProcessId(0, 0)

    def _report(self, deadline_s: float) -> dict[str, int | str] | None:
        if not select.select([self.reports], [], [], deadline_s)[0]:
            return None
        line = os.read(self.reports, 4096)
        return json.loads(line) if line else None


def _serve(start: Callable[[], int], told: int, proceed: int) -> NoReturn:
    """Be the first process: never returns."""
    try:
        # Killed with the keeper, or at once if it has gone already: then nobody holds the other end any more.
        kernel.die_with_parent(signal.SIGKILL)
        if select.select([proceed], [], [], 0)[0]:
            os._exit(0)
        kernel.set_comm("supervise-init")
        namespaces.show()
        leader = start()
        _pass_signals_on(leader)
        os.write(told, json.dumps({"pid": leader}).encode())
        if not os.read(proceed, 1):
            os._exit(0)
        _reap(leader, told)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.write(told, json.dumps({"errno": error.errno, "error": error.strerror}).encode())
    finally:
        os._exit(0)


def _reap(leader: int, told: int) -> None:
    """Reap everybody until nobody is left; whoever loses its parent in here becomes our child."""
    while True:
        try:
            pid, status = os.wait()
        except ChildProcessError:
            return
        if pid == leader:
            os.write(told, json.dumps({"status": os.waitstatus_to_exitcode(status)}).encode())


def _pass_signals_on(leader: int) -> None:
    """The kernel gives the first process no default actions: what it does not handle is lost (pid_namespaces(7))."""

    def forward(signum: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(leader, signum)

    signal.set_wakeup_fd(-1)
    for signum in FORWARDED:
        signal.signal(signum, forward)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
