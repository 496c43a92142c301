"""What the machine, one of its limits or the caller's shell denies us is one line and status 125."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.launcher import Supervise
from tests.support.waiting import DEADLINE_S

_RAISE = """
import sys
from supervise.cli import _guarded

def fail():
    raise {error}

_guarded(fail)
"""


def told(error: str) -> str:
    """The one line that is told of it."""
    ended = subprocess.run(
        [sys.executable, "-c", _RAISE.format(error=error)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (125, ""), ended.stderr
    assert ended.stderr.startswith("supervise: ")
    assert ended.stderr.count("\n") == 1
    return ended.stderr


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("MemoryError", "out of memory; see `ulimit -v` (RLIMIT_AS)"),
        ("OSError(12, 'Cannot allocate memory', '/x')", "out of memory"),
        ("ImportError('/x.so: failed to map segment from shared object')", "out of memory"),
        ("""RuntimeError("can't start new thread")""", "`ulimit -u` (RLIMIT_NPROC)"),
        ("BlockingIOError(11, 'Resource temporarily unavailable', sys.executable)", "`ulimit -u` (RLIMIT_NPROC)"),
        ("BlockingIOError(11, 'Resource temporarily unavailable', '/x')", "/x: Resource temporarily unavailable"),
        ("RuntimeError('something else')", "internal error: RuntimeError: something else"),
        ("ImportError('no module of that name')", "internal error: ImportError"),
        ("FileNotFoundError(2, 'No such file or directory')", "system call: No such file or directory"),
    ],
)
def test_each_is_one_line(error: str, words: str) -> None:
    assert words in told(error)


def _limit(kind: int, value: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(kind, (value, value))


def _needed() -> int:
    """Bytes of address space that Python takes until it knows our entry point."""
    code = "import supervise.cli; print(open('/proc/self/status').read())"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    return next(int(line.split()[1]) * 1024 for line in said.stdout.splitlines() if line.startswith("VmPeak:"))


@pytest.mark.parametrize("more", [2, 6, 10, 14, 18, 22, 26])
def test_little_memory_is_no_traceback(supervise: Supervise, more: int) -> None:
    """Wherever in the imports it ends; how much is enough for a launch is another machine's another number."""
    ended = supervise.run("true", preexec_fn=_limit(resource.RLIMIT_AS, _needed() + more * 2**20))
    if ended.stderr.endswith("SystemError: error return without exception set\n"):
        # Python itself, for want of memory, has lost the exception on its way out of our last frame.
        assert "supervise/" not in ended.stderr
        return
    assert "Traceback" not in ended.stderr
    assert ended.popen.returncode in (91, 125)
    if ended.popen.returncode == 125:
        assert any(words in ended.stderr for words in ("out of memory", "cannot start", "supervise itself failed"))


@pytest.mark.parametrize("arguments", [("true",), ("--name", "x", "true"), ("run", "true")], ids=" ".join)
def test_a_directory_that_was_removed_is_named(supervise: Supervise, tmp_path: Path, arguments: tuple[str]) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = 'cd "$1" && rmdir "$1" && shift && exec "$@"'
    # Not `-m`: Python itself would look for the package in there.
    command = [sys.executable, "-c", "from supervise.cli import main; main()", *arguments]
    ended = subprocess.run(
        ["sh", "-c", script, "sh", str(gone), *command],
        capture_output=True,
        text=True,
        env=supervise.env | {"PYTHONPATH": os.pathsep.join(path for path in [os.getcwd(), *sys.path] if path)},
        timeout=DEADLINE_S,
        check=False,
    )
    line = "supervise: the current directory does not exist any more: cd to one that does\n"
    assert (ended.returncode, ended.stderr) == (125, line)
    assert not list(supervise.state.iterdir())
