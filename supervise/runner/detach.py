"""`-d`: supervise goes on in a session of its own, which no closed terminal and no end of an ssh connection reaches.

Whoever asked for it waits until the server is launched, and reads what is said until then. It is the parent of the one
that goes on for so long, so it hears of its end, and no clean slate takes it for a stranger. No keeper may have been
booted before: it would be a child of the wrong one.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import signal
import sys
import time
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING

from supervise.attempts import locking
from supervise.attempts.place import settle
from supervise.attempts.roles import living
from supervise.attempts.store import Run, Store, StoreError
from supervise.host import kernel, procfs, signals
from supervise.model.exits import Exit
from supervise.model.process import ProcessId
from supervise.report.console import Console, for_stream, write_unless_stuck
from supervise.runner import launch, plan
from supervise.runner.holder import refuse
from supervise.runner.plan import Options, Plan
from supervise.text import duration, home

if TYPE_CHECKING:
    from typing_extensions import Buffer

CONSOLE = "console.log"
"""Where one that has been detached says what others say on a terminal."""

_CLAIM = "detach.lock"
_SLACK_S = 60.0
_LOOK_EVERY_S = 0.05
_ASKING = (signal.SIGINT, signal.SIGTERM)
_PIECE = 64 * 1024


def detach(command: Sequence[str], options: Options) -> int | None:
    """Go on in the background.

    Args:
        command: the server's command line, unchanged.
        options: the user's.

    Returns:
        None in the process that goes on and is to launch the server. In the other one its exit status: 0 once the
        server has been launched, that of the other one if it ended before.

    Raises:
        NotExecutableError, ProfileError, PlaceError, StoreError, TellingError, TierError, OSError: nothing was begun.
    """
    launch.resolve(command[0], os.environ)
    planned = plan.make(command, os.environ, options)
    store = Store(settle(os.environ).root)
    run = store.run(planned.need.run)
    run.create()
    console = for_stream()
    # One at a time: its console must not be taken from one that has just begun.
    claim = locking.claim(os.path.join(run.path, _CLAIM))
    if claim is None:
        console.line("slate", f"{run.name}: another supervise -d is about to launch it")
        return Exit.SLATE
    holder = living(run.read_state(), "supervisor")
    if holder is not None and not _may_go_on(planned, store, run, holder, console):
        return Exit.SLATE
    said = _fresh(run)
    hearing, telling = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    other = _fork_twice()
    if other is None:
        _settle_down(said, telling)
        return None
    os.close(said)
    os.close(telling)
    return _Parent(run, other, hearing, console).wait(_bound_s(planned))


def _may_go_on(planned: Plan, store: Store, run: Run, holder: ProcessId, console: Console) -> bool:
    """Whether it is worth trying although the run is live: whoever has it keeps its console if not."""
    if not planned.options.replace:
        refuse(run, holder, console)
        return False
    from supervise.runner.replacing import may_replace

    return may_replace(planned, store, run, holder, console)


def _fresh(run: Run) -> int:
    """An empty console log; the last one is kept beside it."""
    path = os.path.join(run.path, CONSOLE)
    try:
        if os.path.exists(path):
            os.replace(path, f"{path}.1")
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}") from None


def _fork_twice() -> ProcessId | None:
    """None in the grandchild: it is in a new session and does not lead it, so no terminal can come to control it.

    Its parent is gone, so it is a child of ours, until we are gone ourselves (prctl(2), PR_SET_CHILD_SUBREAPER).
    """
    sys.stdout.flush()
    kernel.become_subreaper()
    reading, writing = os.pipe()
    between = os.fork()
    if between == 0:
        try:
            os.setsid()
            if (pid := os.fork()) == 0:
                return None
            os.write(writing, str(pid).encode())
        except OSError as error:
            os.write(2, f"supervise: cannot start another process: {error.strerror}\n".encode())
        os._exit(0)
    os.close(writing)
    told = os.read(reading, 32)
    os.close(reading)
    os.waitpid(between, 0)
    if not told:
        raise BlockingIOError(0, "cannot start another process", sys.executable)
    # It is our child: until we reap it, nobody else gets its pid.
    return procfs.identify(int(told)) or ProcessId(int(told), 0)


def _settle_down(said: int, telling: int) -> None:
    """Let go of everything that belongs to whoever has started us, but for the pipe to the one that waits."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(said, 1)
    os.dup2(said, 2)
    # What our caller has left open, its end of a pipe perhaps, on which somebody waits.
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd > 2 and fd != telling:
            with contextlib.suppress(OSError):
                os.close(fd)
    sys.stderr = io.TextIOWrapper(_Both(telling), encoding="utf-8", errors="backslashreplace", write_through=True)


class _Both(io.RawIOBase):
    """Our console: its log, and whoever waits for the launch. Each hears what it can, whatever becomes of the other.

    Args:
        telling: a pipe that never blocks, to the one that waits; it is closed once that has gone.
    """

    def __init__(self, telling: int) -> None:
        self._telling: int | None = telling

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, data: Buffer) -> int:
        """Say it; that the disk is full, or nobody hears it, is no failure."""
        said = bytes(data)
        with contextlib.suppress(OSError):
            os.write(2, said)
        if self._telling is not None:
            try:
                os.write(self._telling, said)
            except BlockingIOError:
                pass
            except OSError:
                os.close(self._telling)
                self._telling = None
        return len(said)


def _bound_s(planned: Plan) -> float:
    """Until the launch: the clean slate, and whoever has to end before it."""
    ending = planned.deadlines.total_s * (2 if planned.options.replace else 1)
    return planned.options.slate_timeout_s + ending + _SLACK_S


class _Parent:
    """Waits for the launch; what asks it to stop until then reaches the one that is to be launched.

    Args:
        run: what is launched.
        other: the supervise that goes on.
        hearing: what it says comes in here: its console log may not take it, on a full disk.
        console: where people read.
    """

    def __init__(self, run: Run, other: ProcessId, hearing: int, console: Console) -> None:
        self._run, self._other, self._hearing, self._console = run, other, hearing, console
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def wait(self, within_s: float) -> int:
        for signum in _ASKING:
            if signal.getsignal(signum) is not signal.SIG_IGN:
                signal.signal(signum, self._pass_on)
        until = time.monotonic() + within_s
        while time.monotonic() < until:
            pid, status = os.waitpid(self._other.pid, os.WNOHANG)
            begun = not pid and self._begun()
            self._relay()
            if pid:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
            if begun:
                self._tell()
                return Exit.OK
            time.sleep(_LOOK_EVERY_S)
        name = self._run.name
        self._console.error(f"run {name}: not launched after {duration(within_s)}; it goes on: supervise status {name}")
        return Exit.INTERNAL

    def _begun(self) -> bool:
        state = self._run.read_state()
        return state is not None and living(state, "supervisor") == self._other and bool(state.get("leader"))

    def _pass_on(self, signum: int, _: FrameType | None) -> None:
        signals.send(self._other, signum)

    def _relay(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while piece := os.read(self._hearing, _PIECE):
                write_unless_stuck(sys.stderr, self._decoder.decode(piece))

    def _tell(self) -> None:
        from supervise.host.leash import called

        name, attempt, supervise = self._run.name, self._run.latest(), called()
        self._console.line("detached", f"run {name} goes on without this terminal: supervise {self._other}")
        if attempt is not None:
            self._console.note(f"log       {home(attempt.log)}")
        self._console.note(f"console   {supervise} attach {name}")
        self._console.note(f"ready?    {supervise} wait {name} --ready")
        self._console.note(f"stop      {supervise} stop {name}")
