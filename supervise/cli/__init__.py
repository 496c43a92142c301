"""The entry point: which way a command line goes, and the exit status in the end.

`supervise [OPTIONS] COMMAND…` is `supervise run [OPTIONS] COMMAND…`. Without options there is nothing to parse, and the
launch does not pay for a parser.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import TYPE_CHECKING, NoReturn

from supervise.group.boot import Booted, boot
from supervise.model.exits import Exit

if TYPE_CHECKING:
    from collections.abc import Callable

    from supervise.lifecycle import Done
    from supervise.runner import Options

VERBS = (
    "run",
    "try",
    "clean",
    "status",
    "logs",
    "report",
    "diff",
    "history",
    "replay",
    "explain",
    "stop",
    "restart",
    "wait",
    "attach",
    "profiles",
    "unit",
    "demo",
    "healthcheck",
    "completion",
)
_OVER_SSH = ("-H", "--host", "--over-ssh=")
_OWN_FLAGS = ("--help", "-h", "--version")
_NO_MEMORY = "out of memory; see `ulimit -v` (RLIMIT_AS), the memory limit of the container, and `free -h`"
_NO_THREAD = (
    "cannot start another process or thread; see `ulimit -u` (RLIMIT_NPROC), the pids limit of the container, and "
    "`ulimit -v` (RLIMIT_AS)"
)
_NO_DIRECTORY = "the current directory does not exist any more: cd to one that does"
_UNMAPPED = (
    "failed to map segment",
    "annot allocate memory",
    "cannot create shared object",
    "returned NULL without setting",
    "error return without exception set",
)


def main() -> NoReturn:
    """Entry point of the `supervise` command; never returns."""
    _open_closed_streams()
    argv = sys.argv[1:]
    if argv and argv[0].startswith(_OVER_SSH):
        _guarded(lambda: _over_ssh(argv))
    if argv and argv[0] == "healthcheck":
        _healthcheck(argv[1:])
    if not argv or argv[0] in VERBS or argv[0] in _OWN_FLAGS:
        _guarded(lambda: _parser()(argv or ["--help"], prog_name="supervise"))
    elif argv[0].startswith("-"):
        _guarded(lambda: _parser()(["run", *argv], prog_name="supervise"))
    else:
        _guarded(lambda: run(argv, None, boot()))
    sys.exit(Exit.OK)


def _over_ssh(argv: list[str]) -> None:
    """Go to another host, or leave the words that whoever has come from another one wants to have carried out."""
    from supervise.cli.remote import enter

    argv[:] = enter(argv)


def _healthcheck(words: list[str]) -> None:
    """Answer without a parser, and come back where there is something for one."""
    from supervise.cli.healthchecks import checked

    if (status := checked(words)) is not None:
        sys.exit(status)


def _open_closed_streams() -> None:
    """A stream that the caller closed is /dev/null from here on: its number must not become a socket's."""
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            setattr(sys, name, open(fd, "r" if fd == 0 else "w", encoding="utf-8", closefd=False))  # noqa: SIM115


def _guarded(action: Callable[[], object]) -> None:
    """One clear line instead of a traceback for everything that users can bring about."""
    try:
        _answered(action)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(Exit.OK)
    except KeyboardInterrupt:
        _die_of_interrupt()
    except Exception as error:
        if lack := _lack(error):
            _fail(Exit.INTERNAL, lack)
        try:
            _explain(error)
        except (MemoryError, ImportError, SystemError, OSError):
            _fail(Exit.INTERNAL, _NO_MEMORY)
        if os.environ.get("SUPERVISE_TRACEBACK"):
            raise
        told = f"{type(error).__name__}: {error}"
        _fail(Exit.INTERNAL, f"internal error: {told}; please report it, with SUPERVISE_TRACEBACK=1 for the details")


def _die_of_interrupt() -> NoReturn:
    """A Ctrl-C while we are still importing ourselves: nothing has begun, and the caller sees what it was."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        sys.stdout.flush()
    except OSError:
        pass  # nobody reads it any more
    os.kill(os.getpid(), signal.SIGINT)
    sys.exit(128 + signal.SIGINT)


def _answered(action: Callable[[], object]) -> None:
    """An answer that is only written on the way out may not find room then, when nobody could say so any more."""
    try:
        action()
    except SystemExit:
        sys.stdout.flush()
        raise


def _lack(error: Exception) -> str | None:
    """What the machine or one of its limits denies us, if it is that; nothing is imported to tell."""
    text = str(error)
    # The linker's words for ENOMEM are all that is left of it in an ImportError (dlopen(3)), and less in a SystemError.
    if isinstance(error, MemoryError) or (
        isinstance(error, ImportError | SystemError) and any(map(text.__contains__, _UNMAPPED))
    ):
        return _NO_MEMORY
    if isinstance(error, RuntimeError) and text.startswith("can't start new thread"):
        return _NO_THREAD
    if not isinstance(error, OSError):
        return None
    # fork(2) and clone(2) have no other EAGAIN; of what else is not ready the name of a file or none is told.
    if isinstance(error, BlockingIOError) and error.filename == sys.executable:
        return _NO_THREAD
    if isinstance(error, FileNotFoundError) and error.filename is None and not _in_a_directory():
        return _NO_DIRECTORY
    return _NO_MEMORY if error.errno == errno.ENOMEM else f"{error.filename or _unnamed(error)}: {error.strerror}"


def _unnamed(error: OSError) -> str:
    """What failed where no file is named: what takes no further byte did not take the answer either."""
    if error.errno not in (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EFBIG):
        return "system call"
    try:
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError as again:
        if again.errno == error.errno:
            return "standard output"
    return "system call"


def _in_a_directory() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def _explain(error: Exception) -> None:
    """Leave with one line for what users can bring about; come back for what they cannot."""
    from supervise.attempts.place import PlaceError
    from supervise.attempts.store import StoreError
    from supervise.host.procfs import ForeignProcError
    from supervise.model.telling import TellingError
    from supervise.profiles.errors import ProfileError
    from supervise.runner.launch import NotExecutableError
    from supervise.runner.tiers import TierError

    if isinstance(error, NotExecutableError):
        _fail(error.status, f"{error.text}{_suggestion(error.program)}")
    if isinstance(error, ProfileError):
        _fail(Exit.USAGE, str(error))
    if isinstance(error, TellingError):
        _fail(error.status, str(error))
    if isinstance(error, PlaceError | StoreError | TierError | ForeignProcError):
        _fail(Exit.INTERNAL, str(error))


def run(command: list[str], options: Options | None, booted: Booted) -> None:
    """Run a server under supervision, then leave with its status."""
    # Before anything is touched: relative paths mean nothing in a directory that was removed.
    os.getcwd()
    from supervise import runner
    from supervise.attempts.place import settle
    from supervise.attempts.store import Store
    from supervise.report.console import for_stream

    options = options or runner.Options()
    # What a server writes on a terminal of its own goes to this one: a view would be torn.
    place, console = settle(os.environ), for_stream(plain=options.plain or options.tty)
    if place.note is not None:
        console.line("note", place.note)
    done = runner.run(command, options, Store(place.root), console, booted)
    leave(done)


def leave(done: Done) -> NoReturn:
    """Exit so that the caller sees the truth: die of the signal that stopped us, as PID 1 report it as 128+n."""
    import resource
    import signal

    if done.reraise is not None and os.getpid() != 1:
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        signal.signal(done.reraise, signal.SIG_DFL)
        os.kill(os.getpid(), done.reraise)
    sys.exit(int(done.status))


def _fail(status: int, text: str) -> NoReturn:
    try:
        from supervise.report.console import write_unless_stuck

        write_unless_stuck(sys.stderr, f"supervise: {text}\n")
    except (MemoryError, ImportError, SystemError, OSError):
        os.write(2, f"supervise: {text}\n".encode("utf-8", "backslashreplace"))
    # Not sys.exit: what Python would flush on its way out may be a pipe that nobody reads.
    os._exit(int(status))


def _suggestion(program: str) -> str:
    import difflib

    close = difflib.get_close_matches(program, VERBS, n=1)
    return f"; did you mean `supervise {close[0]}`?" if close else ""


def _parser() -> Callable[..., object]:
    """The parser, built when there is something to parse."""
    from supervise.cli.parser import app

    return app
