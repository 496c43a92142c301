"""How the server is born: in its own session, in its leaf, with its output going straight into its log."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

from supervise.host import cgroupfs

# A tenth of the memory: enough that a server which is smaller than its supervisor is still the OOM killer's choice.
_OOM_RAISE = 100
_OOM_MOST = 1000


def spawn(program: str, argv: list[str], env: dict[str, str], log: str, terminal: str | None = None) -> int:
    """Start the server in its own session, its output going straight into its log file.

    Signals are reset to their defaults and unblocked: under `nohup`, or behind `&` in a script, a server would
    otherwise inherit an ignored SIGHUP or SIGINT for life (VLLM_REAL.md section 5).

    Args:
        program: path of the file to execute.
        argv: argument vector, the first one as the caller wrote it.
        env: complete environment.
        log: path of an existing log file; opened in append mode, so that nothing it holds is overwritten.
        terminal: path of a pseudo-terminal to be its standard streams instead; opened first by the leader of a new
            session it becomes its controlling terminal (tty_ioctl(4)).

    Returns:
        The pid of the server, which leads its session and process group.

    Raises:
        OSError: it could not be executed; the reason is the kernel's.
    """
    output = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    streams = (
        [(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0), (os.POSIX_SPAWN_OPEN, 1, log, output, 0o600)]
        if terminal is None
        else [(os.POSIX_SPAWN_OPEN, 0, terminal, os.O_RDWR, 0), (os.POSIX_SPAWN_DUP2, 0, 1)]
    )
    with first_choice_of_the_oom_killer():
        return os.posix_spawn(
            program,
            argv,
            env,
            file_actions=[*streams, (os.POSIX_SPAWN_DUP2, 1, 2)],
            setsid=True,
            setsigmask=[],
            setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
        )


@contextlib.contextmanager
def first_choice_of_the_oom_killer() -> Iterator[None]:
    """Whoever is born inside of this goes before us when memory runs out.

    The score is inherited at birth, so that there is no moment without it; raising it and going back to where one was
    takes no privilege (proc(5), oom_score_adj).
    """
    before = _oom_score(None)
    if before is not None:
        _oom_score(min(before + _OOM_RAISE, _OOM_MOST))
    try:
        yield
    finally:
        if before is not None:
            _oom_score(before)


def _oom_score(score: int | None) -> int | None:
    """Set our own score, or read it; None where /proc does not let us."""
    try:
        with open("/proc/self/oom_score_adj", "r+" if score is not None else "r", encoding="ascii") as file:
            if score is None:
                return int(file.read())
            file.write(str(score))
    except OSError:
        return None
    return score


class Birthplace:
    """The leaf that we are in for the moment, so that the server is born there.

    Entering takes the kernel some 30 ms when nobody did so lately: it is done ahead of the launch.

    Args:
        leaf: its directory, None without one.
    """

    def __init__(self, leaf: str | None) -> None:
        self.leaf = leaf
        self.refused: str | None = None
        if leaf is None:
            return
        try:
            self._home = cgroupfs.own()
            cgroupfs.enter(leaf)
        except (OSError, cgroupfs.NoCgroupError) as error:
            self.refused = f"cannot enter {leaf}: {error}"
            cgroupfs.remove(leaf)
            self.leaf = None

    def leave(self) -> None:
        """Go back to where we came from: what is killed as a whole must not be us.

        Raises:
            OSError: we are still in it.
        """
        if self.leaf is not None:
            cgroupfs.enter(self._home)
