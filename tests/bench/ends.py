"""How a tool ends a tree of processes: who is left, and how long it takes until nobody is."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from supervise.host import kernel, procfs, signals
from supervise.model.process import ProcessId
from tests.bench.enders import NotAvailableError, Tool, discard
from tests.bench.managers import environment
from tests.support.family import Family
from tests.support.waiting import wait_until

# Start-up work of a tool is not to fall into the time of its end.
_SETTLE_S = 0.5
# A tool's helpers that have lost tool and tree are given the time to put their own things away.
_LEAVE_S = 2.0


@dataclass(frozen=True)
class Shape:
    """A tree: how many processes, and how many per cent of them get away by setsid and a double fork."""

    size: int
    percent: int


@dataclass(frozen=True)
class End:
    """How one tree ended.

    Attributes:
        left: processes of the tree that ran at the deadline.
        empty_s: seconds from the request until the last one had gone, None if some never went.
        over_s: seconds until the tool had gone too and a next start could begin; None if that never came.
    """

    left: int
    empty_s: float | None
    over_s: float | None


@dataclass(frozen=True)
class Ends:
    """Both ways to end: the tool is asked to, or is killed; the latter is None where there is no tool."""

    stopped: End
    killed: End | None


class Sampler:
    """Takes samples of one tool and one shape; what never ends is not measured again, as it costs the whole deadline.

    Args:
        tool: who runs the tree.
        shape: which tree.
        deadline_s: later than this is never.
    """

    def __init__(self, tool: Tool, shape: Shape, deadline_s: float) -> None:
        self._tool, self._shape, self._deadline_s = tool, shape, deadline_s
        self._never: dict[bool, End] = {}

    def __call__(self) -> Ends | str:
        """One sample, or why there is none."""
        try:
            return Ends(self._end(kill=False), None if self._tool.bare else self._end(kill=True))
        except NotAvailableError as error:
            return str(error)

    def _end(self, *, kill: bool) -> End:
        if kill in self._never:
            return self._never[kill]
        end = measure(self._tool, self._shape, self._deadline_s, kill=kill)
        if end.empty_s is None:
            self._never[kill] = end
        return end


def measure(tool: Tool, shape: Shape, deadline_s: float, *, kill: bool) -> End:
    """Run a tree behind a tool and end it; nothing of either is left behind.

    The members are watched through pidfds: reading /proc over and over would take CPU time from the tool.

    Args:
        tool: who runs the tree.
        shape: which tree.
        deadline_s: what is left after it stays for ever.
        kill: send SIGKILL to the tool instead of asking it to stop.

    Raises:
        NotAvailableError: the tool does not exist here, or does not start the tree.
    """
    kernel.become_subreaper()
    directory = Path(tempfile.mkdtemp(prefix="sv-ends-"))
    strangers = _below()
    try:
        with _run(tool, shape, directory) as (popen, members), ExitStack() as held:
            started = procfs.identify(popen.pid) or ProcessId(popen.pid, 0)
            tree, itself = [_pidfd(held, member) for member in members], _pidfd(held, started)
            time.sleep(_SETTLE_S)
            begun = time.monotonic()
            if kill:
                signals.send(started, signal.SIGKILL)
            else:
                tool.stop(started, directory)
            left = _wait_ended(tree, begun + deadline_s)
            empty = time.monotonic()
            over = not left and not _wait_ended([itself], begun + deadline_s)
            return End(left, None if left else empty - begun, time.monotonic() - begun if over else None)
    finally:
        _end_all(strangers)
        discard(directory)


@contextmanager
def _run(tool: Tool, shape: Shape, directory: Path) -> Iterator[tuple[subprocess.Popen[bytes], list[ProcessId]]]:
    """Start the tool with the tree behind it; yields once every member has told its pid."""
    told = Family(directory / "told")
    program = Path(__file__).with_name("tree.py")
    tree = [sys.executable, "-IS", str(program), str(told.path), str(shape.size), str(shape.percent)]
    command = tool.command(tree, directory)
    where = {name: str(directory) for name in ("XDG_STATE_HOME", "XDG_RUNTIME_DIR", "TMPDIR")}
    with (directory / "output").open("wb") as output:
        popen = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment() | where, cwd=directory
        )
    try:
        wait_until(lambda: told.refresh().ready or popen.poll() is not None)
        if popen.poll() is not None:
            raise NotAvailableError(_why_ended(popen.returncode, (directory / "output").read_text(errors="replace")))
        if len(told.members) != shape.size:
            raise NotAvailableError(f"{len(told.members)} processes told of {shape.size}")
        if not _below().issuperset(told.members.values()):
            raise NotAvailableError("pids were told that are not below us, as in a PID namespace of their own")
        yield popen, list(told.members.values())
    finally:
        for member in _below().intersection(told.refresh().members.values()):
            signals.send(member, signal.SIGKILL)
        popen.kill()
        popen.wait()


def _why_ended(status: int, output: str) -> str:
    """In one line; an option that is not known is how a version says that it does not have it yet."""
    if option := re.search(r"No such option:? \S+", output):
        return f"not available: {option[0]}"
    return f"ended with status {status}: {' / '.join(output.split(chr(10)))[-200:].strip(' /')}"


def _pidfd(held: ExitStack, target: ProcessId) -> int:
    """A descriptor that becomes readable when this process has ended; a zombie has."""
    fd = os.pidfd_open(target.pid)
    held.callback(os.close, fd)
    if procfs.identify(target.pid) != target:
        raise NotAvailableError(f"process {target.pid} ended before it was asked to")
    return fd


def _wait_ended(pidfds: list[int], until: float) -> int:
    """Wait for each in turn, for all of them together until then; returns how many still run (pidfd_open(2))."""
    left = 0
    for fd in pidfds:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        left += not poll.poll(max(0.0, until - time.monotonic()) * 1e3)
    return left


def _end_all(strangers: set[ProcessId]) -> None:
    """End whatever has come below us since and does not leave, and reap it; a keeper may start another meanwhile."""
    until = time.monotonic() + _LEAVE_S
    while mine := _below() - strangers:
        if time.monotonic() > until:
            for member in mine:
                signals.send(member, signal.SIGKILL)
        time.sleep(0.01)
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass  # nobody is left to be reaped


def _below() -> set[ProcessId]:
    below = procfs.descendants(procfs.scan(cmdline=False, environ=False), os.getpid())
    return {process.id for process in below if not process.gone}
